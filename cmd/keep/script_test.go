package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/internal/browsertest"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/testkit/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv("KEEP_BUNDLER") != "" {
		sandbox.BundlerMain() // for a process that has called main
	}
	// Who runs commands here bundles here: a process of its own would have the whole race detector
	// to start, for each script. The real command has its processes, in all tests that build it.
	os.Setenv(config.Ceiling, os.TempDir()) // a keep.toml there is none of ours
	// Most of these tests wait for processes: leases that end, answers that never come.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // an argument says otherwise
	testscript.Main(suite{m}, map[string]func(){"keep": main, "keep-skewed": skewedMain, "keep-go": goMain})
}

// A suite is all tests of the package. They share the compiled sandbox: one that is open, so that
// commands in this process need not load it, and its files.
type suite struct{ *testing.M }

// Run runs the tests and removes what they shared.
func (s suite) Run() int {
	if err := holdSandbox(project.CacheDir()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := pgtest.Main(s.M)
	browsertest.Stop()
	for _, rt := range held {
		rt.Close()
	}
	for _, dir := range append(shared, sharedCache, sharedBin) {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
	return status
}

// holdSandbox opens the sandbox of a directory of the cache until all tests have ended: commands that
// run in this process share what is compiled.
func holdSandbox(dir string) error {
	rt, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: dir})
	if err == nil {
		held = append(held, rt)
	}
	return err
}

var (
	held        []*sandbox.Runtime
	shared      []string // directories that tests share
	sharedCache string   // made by makeCache; empty: not yet
	makeCache   sync.Once
	sharedBin   string // made by makeBin; empty: not yet
	makeBin     sync.Once

	source, _ = os.Getwd() // the directory of this package, which tests leave
)

// buildKeep returns the file of the command, which is built once.
func buildKeep(tb testing.TB) string {
	tb.Helper()
	makeBin.Do(func() {
		dir, err := os.MkdirTemp(os.Getenv("KEEP_TEST_BIN"), "keep-bin-") // empty, but in test.sh, whose file system has large pages
		if err != nil {
			tb.Fatal(err)
		}
		sharedBin = dir
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "keep"), ".")
		build.Dir = source
		if out, err := build.CombinedOutput(); err != nil {
			tb.Fatalf("go build: %v\n%s", err, out)
		}
	})
	return filepath.Join(sharedBin, "keep")
}

// keepAt runs a command of keep as a process.
func keepAt(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	out, _ := cmd.Output() // the status says it
	return string(out), cmd.ProcessState.ExitCode()
}

// cacheHome returns a user's cache directory with the compiled sandbox in it.
func cacheHome(tb testing.TB) string {
	tb.Helper()
	makeCache.Do(func() {
		home, err := os.MkdirTemp("", "keep-cache-")
		if err != nil {
			tb.Fatal(err)
		}
		sharedCache = home
		if err := errors.Join(sandboxtest.Fill(filepath.Join(home, "keep")), holdSandbox(filepath.Join(home, "keep"))); err != nil {
			tb.Fatal(err)
		}
	})
	return sharedCache
}

func TestScripts(t *testing.T) {
	testscript.Run(t, scripts(t, func(*testscript.Env) {}, scriptFiles(t, func(string) bool { return true })...))
}

var allScripts = flag.Bool("all", false, "run every script on Postgres, too")

// What a host does is the same on Postgres, so are the scripts: each on a schema
// of its own, but for those that are about files or have two databases, and those that
// are about scripts and what is written of them, where a store only says which there are.
// Without -all it is a sample of them: what the stores do alike is tested with the stores.
func TestScriptsOnPostgres(t *testing.T) {
	pgtest.SchemaURL(t) // or the test is skipped
	aboutFiles := []string{"accounts_export", "asides", "database", "db", "demo", "exit_codes", "second", "keys", "idempotency", "config", "names", "init", "help", "check", "server"}
	aboutScripts := []string{"check_codes", "check_seams", "compare", "errors_json", "packs", "plan", "plan_grants", "renames", "renames_ask", "serve_path", "test", "test_first", "timeout_loop"}
	testscript.Run(t, scripts(t, func(e *testscript.Env) {
		e.Setenv("KEEP_DB", pgtest.SchemaURL(e.T().(testing.TB)))
	}, scriptFiles(t, func(name string) bool {
		return !slices.Contains(aboutFiles, name) && !slices.Contains(aboutScripts, name) && (*allScripts || storetest.Sampled(name, 3))
	})...))
}

// scriptFiles returns the scripts whose names are wanted.
func scriptFiles(t *testing.T, wanted func(name string) bool) (files []string) {
	t.Helper()
	all, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range all {
		if wanted(strings.TrimSuffix(filepath.Base(file), ".txtar")) {
			files = append(files, file)
		}
	}
	return files
}

// scripts says how scripts are run; more adds to the environment of each. The command is
// the real one: what the race detector was built into takes half a second to start, and
// scripts start it a thousand times. Tests that call run are for the detector.
func scripts(t *testing.T, more func(*testscript.Env), files ...string) testscript.Params {
	t.Helper()
	cache, bin := cacheHome(t), filepath.Dir(buildKeep(t))
	return testscript.Params{
		Files:              files,
		RequireUniqueNames: true,
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return os.Getuid() == 0, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
			s := startService()
			e.Defer(s.Close)
			e.Values["crm"] = s
			e.Values["daemon"] = &serveProcess{}
			e.Defer(func() { e.Values["daemon"].(*serveProcess).kill() })
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("CRM_URL", s.URL)
			e.Setenv("KEEP_SECRET_CRM", "hunter2")
			e.Setenv("USER", "tester")
			e.Setenv(config.Ceiling, filepath.Dir(e.WorkDir))
			more(e)
			return os.CopyFS(filepath.Join(e.WorkDir, "crm"), os.DirFS("testdata/crm"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":  cmdStatus,
			"crm":     cmdCRM,
			"effects": cmdEffects,
			"serve":   cmdServe,
			"sqlite":  cmdSQLite,
			"mkbig":   cmdMkbig,
			"id":      cmdID,
		},
	}
}

// status N command args… runs a command that must end with that status.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s ended with status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// crm MODE changes how the service behaves; crm feed N fills its feed; crm called
// waits until a creation was asked for.
func cmdCRM(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value("crm").(*service)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: crm MODE | crm feed N | crm called")
	case args[0] == "feed":
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		s.fill(n)
	case args[0] == "called":
		<-s.calls
	default:
		s.set(args[0])
	}
}

// effects ID N checks how often a contact was created.
func cmdEffects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: effects ID N")
	}
	got := ts.Value("crm").(*service).effects(args[0])
	if fmt.Sprint(got) != args[1] {
		ts.Fatalf("%s was created %d times, want %s", args[0], got, args[1])
	}
}

// A serveProcess is a keep serve that a script started.
type serveProcess struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
	rest   bytes.Buffer
}

// start starts the command and returns once it said a line that begins as wanted.
func (d *serveProcess) start(cmd *exec.Cmd, line string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stderr = w
	err = cmd.Start()
	w.Close() // or its end would not be seen
	if err != nil {
		return err
	}
	d.cmd, d.stderr = cmd, bufio.NewReader(r)
	for {
		got, err := d.stderr.ReadString('\n')
		if err != nil {
			return fmt.Errorf("it ended without saying %q: %s", line, d.rest.String())
		}
		d.rest.WriteString(got)
		if strings.HasPrefix(got, line) {
			return nil
		}
	}
}

// stop asks the command to end and returns what it said.
func (d *serveProcess) stop() (string, error) {
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		return "", err
	}
	if _, err := io.Copy(&d.rest, d.stderr); err != nil {
		return "", err
	}
	err := d.cmd.Wait()
	d.cmd = nil
	return d.rest.String(), err
}

func (d *serveProcess) kill() {
	if d.cmd != nil {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		d.cmd = nil
	}
}

// serve start [args…] runs keep serve as a process of its own until serve stop,
// which checks that it ended well, or serve kill. serve says TEXT waits until it says so.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	d := ts.Value("daemon").(*serveProcess)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: serve start [args…] | serve says TEXT | serve stop | serve kill")
	case args[0] == "start":
		bin, err := lookPath(ts.Getenv("PATH"), "keep")
		ts.Check(err)
		cmd := exec.CommandContext(context.Background(), bin, append([]string{"serve"}, args[1:]...)...)
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = []string{
			"PATH=" + ts.Getenv("PATH"), "XDG_CACHE_HOME=" + ts.Getenv("XDG_CACHE_HOME"),
			"CRM_URL=" + ts.Getenv("CRM_URL"), "KEEP_SECRET_CRM=" + ts.Getenv("KEEP_SECRET_CRM"), "HOME=" + ts.Getenv("HOME"),
			"GORACE=" + ts.Getenv("GORACE"),
		}
		if db := ts.Getenv("KEEP_DB"); db != "" {
			cmd.Env = append(cmd.Env, "KEEP_DB="+db)
		}
		ts.Check(d.start(cmd, "Serving "))
	case args[0] == "says" && len(args) == 2:
		for !strings.Contains(d.rest.String(), args[1]) {
			line, err := d.stderr.ReadString('\n')
			ts.Check(err)
			d.rest.WriteString(line)
		}
	case args[0] == "stop":
		said, err := d.stop()
		ts.Logf("%s", said)
		ts.Check(err)
		if !strings.HasSuffix(said, "Stopped.\n") {
			ts.Fatalf("serve did not stop in order")
		}
	case args[0] == "kill":
		d.kill()
	}
}

func lookPath(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// sqlite FILE SQL changes a database behind Keep's back.
func cmdSQLite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sqlite FILE SQL")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

// mkbig FILE BYTES writes a file of that size.
func cmdMkbig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mkbig FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("x"), n), 0o600))
}

// id PREFIX puts the first id with that prefix on stdout of the last command
// into $ID, and its last seven characters into $PART.
func cmdID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: id PREFIX")
	}
	id := regexp.MustCompile(args[0] + "_[0-9a-z]+").FindString(ts.ReadFile("stdout"))
	if id == "" {
		ts.Fatalf("no id that begins with %s_", args[0])
	}
	ts.Setenv("ID", id)
	ts.Setenv("PART", id[max(0, len(id)-7):])
}
