//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

var drill = flag.Bool("drill", false, "TestFileDrill gives every command every file")

// drillCommands are all commands that open the database or name a file of one, and end by
// themselves where the database cannot be worked on.
var drillCommands = [][]string{
	{"run", "."}, {"dev", ".", "--listen", "off"}, {"serve", "--listen", "off"}, {"deploy", "."}, {"status"}, {"runs"}, {"mutations"}, {"inbox"}, {"events"},
	{"inputs"}, {"items"}, {"topics"}, {"workflows"}, {"doctor"}, {"show", "run_1"}, {"pause", "contacts"}, {"trigger", "contacts", "feed"},
	{"db", "migrate"}, {"db", "check"}, {"db", "backup", "copy.db"}, {"db", "restored"}, {"db", "sweep"}, {"db", "unseal", "keep.db", "--lost"},
	{"db", "copy", "keep.db", "new.db"}, {"db", "copy", "good.db", "keep.db"}, {"keys", "--db", "keep.db"}, {"token", "list"}, {"hosts"},
	{"publish", "contacts", "people", "{}"}, {"resume", "contacts"}, {"hooks"}, {"why", "run_1"}, {"accounts"}, {"grants"}, {"budgets"}, {"repairs"}, {"proposals"}, {"checkpoints", "show", "contacts", "poll"}, {"secrets"}, {"token", "add", "x"}, {"gateway", "tools"},
	{"inputs", "skip", "in_1", "--yes"}, {"items", "reprocess", "contacts", "a", "--yes"}, {"events", "skip", "contacts", "people", "e1"}, {"audit"},
}

// drillAside are the commands that are given no file of a database, and why. A noun stands
// for its commands, which open the database in one way.
var drillAside = map[string]string{
	"api": "asks a daemon", "login": "asks a daemon", "connect": "asks a service first", "prove": "asks a service first",
	"guide": "opens nothing", "docs": "opens nothing", "update": "opens nothing", "mcp": "opens a file when a tool is called, as other commands do",
	"demo": "has a database of its own", "demo bank": "has none", "init": "makes files in a new directory", "version": "opens nothing", "trust": "keeps a list of its own",
	"idempotency": "opens nothing", "idempotency backend": "is a server without files", "idempotency guide": "opens nothing",
	"gateway": "needs a server in keep.toml first", "write": "needs a model first", "edit": "needs a model first",
	"db": "prints help", "packs list": "reads what packs reads", "packs copy": "reads what packs show reads",
}

// A command that opens files is in the drill.
func TestFileDrillKnowsEveryCommand(t *testing.T) {
	t.Parallel()
	drilled := make(map[string]bool)
	lists := [][][]string{drillCommands}
	for _, n := range namedFiles {
		lists = append(lists, n.commands)
	}
	for _, args := range slices.Concat(lists...) {
		drilled[args[0]] = true
		if len(args) > 1 {
			drilled[args[0]+" "+args[1]] = true
		}
	}
	for _, cmd := range allCommands(newApp(nil, nil).root()) {
		noun, verb, _ := strings.Cut(cmd, " ")
		if verb != "" && !slices.Contains([]string{"db", "packs", "idempotency"}, noun) {
			cmd = noun
		}
		if _, known := drillAside[cmd]; !known && !drilled[cmd] {
			t.Errorf("keep %s is not in the drill: add it to drillCommands, to namedFiles, or with a reason to drillAside", cmd)
		}
	}
}

// drillFiles are what may stand where the database should. Each is refused by each command,
// at once and with a word about it, and stays as it is.
var drillFiles = []struct {
	name, file string
	make       func(t *testing.T, path string)
}{
	{"FIFO", "keep.db", fifo},
	{"link to a FIFO", "keep.db", func(t *testing.T, path string) { fifo(t, path+".fifo"); link(t, path+".fifo", path) }},
	{"directory", "keep.db", func(t *testing.T, path string) { noError(t, os.Mkdir(path, 0o700)) }},
	{"device", "keep.db", device},
	{"foreign file", "keep.db", func(t *testing.T, path string) {
		noError(t, os.WriteFile(path, []byte(strings.Repeat("dear diary ", 100)), 0o600))
	}},
	{"truncated file", "keep.db", func(t *testing.T, path string) { shorten(t, path, 3000) }},
	{"FIFO as lock", "keep.db.lock", fifo},
	{"FIFO as log", "keep.db-wal", fifo},
	{"empty beside its lock", "keep.db", func(t *testing.T, path string) { shorten(t, path, 0) }},
	{"missing beside its lock", "keep.db", func(t *testing.T, path string) { noError(t, os.Remove(path)) }},
	{"missing directory", "keep.db", func(t *testing.T, path string) { noError(t, os.RemoveAll(filepath.Dir(path))) }},
}

// TestFileDrill gives each command each file. In CI each file meets some commands of all
// kinds; the long form, -drill, tries every pair.
func TestFileDrill(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.must("run", ".")
	w.must("db", "copy", "keep.db", "good.db")
	w.must("db", "unseal", "keep.db", "good.db")
	w.must("db", "copy", "keep.db", "seed.db") // seed is open, keep is sealed
	seed := w.read("seed.db")
	for i, f := range drillFiles {
		t.Run(f.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "project")
			noError(t, os.CopyFS(dir, os.DirFS("testdata/crash")))
			for name, data := range map[string]string{"keep.db": seed, "keep.db.lock": "1\n", "good.db": seed} {
				noError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
			}
			path := filepath.Join(dir, f.file)
			if f.file != "keep.db" {
				_ = os.Remove(path)
			}
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && !strings.Contains(f.name, "beside") && f.name != "truncated file" && f.name != "missing directory" {
				noError(t, os.Remove(path))
			}
			f.make(t, path)
			before, _ := os.Lstat(path)
			for j, args := range drillCommands {
				if !*drill && (i+j)%3 != 0 || mayWork(f.name, args) {
					continue
				}
				drillRefused(t, w, dir, args)
				after, _ := os.Lstat(path)
				if (before == nil) != (after == nil) || before != nil && (before.Mode() != after.Mode() || before.Size() != after.Size()) {
					t.Fatalf("keep %s changed %s: %v, then %v", strings.Join(args, " "), f.file, before, after)
				}
			}
		})
	}
}

// mayWork reports whether a command is right to work: a copy to where a database was begins
// nothing anew, and without a directory there is no place for relative names.
func mayWork(file string, args []string) bool {
	if file == "missing directory" {
		return args[0] == "doctor" || slices.Contains(args, "keep.db")
	}
	return strings.Contains(file, "beside") && slices.Equal(args, []string{"db", "copy", "good.db", "keep.db"})
}

// drillRefused gives a command, and wants it to end soon and unsuccessfully, with a reason.
func drillRefused(t *testing.T, w *crashWorld, dir string, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.bin, append(slices.Clone(args), "--config", filepath.Join(w.dir, "keep.toml"))...)
	cmd.Dir, cmd.Env = dir, append(w.env, "KEEP_DB="+filepath.Join(dir, "keep.db"))
	if _, err := os.Stat(dir); err != nil {
		cmd.Dir = w.dir
	}
	out, err := cmd.CombinedOutput()
	what := "keep " + strings.Join(args, " ")
	switch {
	case ctx.Err() != nil:
		t.Errorf("%s does not end:\n%s", what, out)
	case err == nil:
		t.Errorf("%s works:\n%s", what, out)
	case len(out) == 0 || strings.Contains(string(out), "panic"):
		t.Errorf("%s: %v\n%s", what, err, out)
	}
}

func fifo(t *testing.T, path string) {
	t.Helper()
	noError(t, syscall.Mkfifo(path, 0o600))
}

func link(t *testing.T, to, path string) {
	t.Helper()
	noError(t, os.Symlink(to, path))
}

// device makes one like /dev/null, which root may.
func device(t *testing.T, path string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("devices have other numbers")
	}
	if err := mknod(path); err != nil {
		t.Skipf("make a device: %v", err)
	}
}

// shorten leaves the beginning of a file.
func shorten(t *testing.T, path string, n int64) {
	t.Helper()
	noError(t, os.Truncate(path, n))
}

// Two hosts that have the same file by two names are one too many: the second is refused,
// and nothing is done twice.
func TestTwoNamesOfADatabase(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(t *testing.T, w *crashWorld) string{
		"hard link": func(t *testing.T, w *crashWorld) string {
			other := filepath.Join(w.dir, "other.db")
			noError(t, os.Link(filepath.Join(w.dir, "keep.db"), other))
			return other
		},
		"symbolic link": func(t *testing.T, w *crashWorld) string {
			other := filepath.Join(t.TempDir(), "other.db")
			link(t, filepath.Join(w.dir, "keep.db"), other)
			return other
		},
		"bind mount of the file": bindMount,
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrashWorld(t)
			w.must("db", "migrate")
			other := give(t, w)
			var once sync.Once
			w.crm.tell(func(point string) {
				if point != "feed" {
					return
				}
				once.Do(func() { // the first host is at work, and waits for a read
					for _, args := range [][]string{{"run", ".", "--db", other}, {"db", "migrate", "--db", other}, {"runs", "--db", other}} {
						out, err := w.keep(args...)
						if name == "symbolic link" && args[0] != "run" {
							continue // it leads to the same name
						}
						if exited(err) != exit.Unreachable || !strings.Contains(string(out), "another Keep host") {
							t.Errorf("keep %s: %v\n%s", args, err, out)
						}
					}
				})
			})
			w.must("run", ".")
			w.checkOnce()
		})
	}
}

// Once the file has gone or is another one, a host makes no further call, and ends; and the
// next start does not begin anew in silence.
func TestDatabaseReplacedUnderAHost(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, w *crashWorld, path string){
		"removed":     func(t *testing.T, _ *crashWorld, path string) { noError(t, os.Remove(path)) },
		"moved":       func(t *testing.T, _ *crashWorld, path string) { noError(t, os.Rename(path, path+".moved")) },
		"log removed": func(t *testing.T, _ *crashWorld, path string) { noError(t, os.Remove(path+"-wal")) },
		"emptied":     func(t *testing.T, _ *crashWorld, path string) { shorten(t, path, 0) },
		"replaced": func(t *testing.T, w *crashWorld, path string) {
			noError(t, os.Rename(filepath.Join(w.dir, "other.db"), path))
		},
		"written over": func(t *testing.T, w *crashWorld, path string) {
			noError(t, os.WriteFile(path, []byte(w.read("other.db")), 0o600))
		},
		"its directory": func(t *testing.T, _ *crashWorld, path string) {
			noError(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrashWorld(t)
			w.must("db", "migrate", "--db", "other.db")
			dir := filepath.Join(w.dir, "data")
			noError(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "keep.db")
			calls, after := 0, 0
			w.crm.tell(func(point string) {
				if point != "arrived" {
					return
				}
				calls++
				if calls == 3 {
					harm(t, w, path)
				} else if calls > 3 {
					after++
				}
			})
			out, err := w.keep("run", ".", "--db", path)
			if exited(err) != exit.Unreachable || !strings.Contains(string(out), "removed or replaced") {
				t.Errorf("run: %v\n%s", err, out)
			}
			if after > 0 {
				t.Errorf("%d calls were made after the file had gone", after)
			}
			if name != "removed" && name != "moved" {
				return
			}
			w.crm.tell(nil)
			if out, err := w.keep("run", ".", "--db", path); exited(err) != exit.Unreachable || !strings.Contains(string(out), "--new") {
				t.Errorf("the next run: %v\n%s", err, out)
			}
			if n := w.crm.effects("c5"); n != 0 {
				t.Error("the next run made calls")
			}
			w.must("run", ".", "--db", path, "--new")
			if out, err := w.keep("run", ".", "--db", path, "--new"); err == nil {
				t.Errorf("--new on a database that is there works:\n%s", out)
			}
		})
	}
}

// A backup that is copied over the file of a host that died finds the log of that file.
func TestRestoreBesideALog(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.must("run", ".")
	w.must("db", "backup", "backup.db")
	w.crm.more(20)
	w.kill = nil
	w.target = "arrived"
	for !w.killedAt("arrived", 3) {
		w.crm.more(20)
	}
	if info, err := os.Stat(filepath.Join(w.dir, "keep.db-wal")); err != nil || info.Size() == 0 {
		t.Fatalf("the dead host left no log: %v", err)
	}
	noError(t, os.WriteFile(filepath.Join(w.dir, "keep.db"), []byte(w.read("backup.db")), 0o600))
	for _, args := range [][]string{{"run", "."}, {"runs"}, {"db", "check"}, {"db", "migrate"}} {
		if out, err := w.keep(args...); err == nil || !strings.Contains(string(out), "keep.db-wal") {
			t.Errorf("keep %s: %v\n%s", args, err, out)
		}
	}
	if w.read("keep.db") != w.read("backup.db") {
		t.Fatal("the backup was changed")
	}
	if out := w.must("db", "restored"); !strings.Contains(string(out), "keep.db-wal.before") {
		t.Errorf("restored: %s", out)
	}
	w.must("db", "check")
	w.must("status")
}

// killedAt runs the command until the n-th time at a point, where it is killed. It reports
// whether it came there.
func (w *crashWorld) killedAt(point string, n int) bool {
	w.Helper()
	cmd := w.command("run", ".")
	w.mu.Lock()
	w.target, w.left, w.killed = point, n-1, false
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.process = cmd.Process
	w.mu.Unlock()
	_ = cmd.Wait() // killed, or done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = nil
	return w.killed
}

// A restored file that is damaged is not worked on.
func TestRestoredIsChecked(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.must("run", ".")
	w.must("db", "backup", "backup.db")
	f, err := os.OpenFile(filepath.Join(w.dir, "backup.db"), os.O_RDWR, 0)
	noError(t, err)
	info, err := f.Stat()
	noError(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), info.Size()/2/4096*4096)
	noError(t, errors.Join(err, f.Close()))
	out, err := w.keep("db", "restored", "--db", "backup.db")
	if exited(err) != exit.Unreachable || !strings.Contains(string(out), "damaged") {
		t.Errorf("restored: %v\n%s", err, out)
	}
	if out, err := w.keep("run", ".", "--db", "backup.db"); err == nil {
		t.Errorf("run on a damaged backup works:\n%s", out)
	}
}

// What is copied to is a new or empty file, and nothing else is touched.
func TestCopyToWhatIsNoFile(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.must("run", ".")
	for name, make := range map[string]func(t *testing.T, path string){"FIFO": fifo, "device": device} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "to.db")
			make(t, to)
			before, err := os.Lstat(to)
			noError(t, err)
			for _, args := range [][]string{{"db", "copy", "keep.db", to}, {"db", "backup", to}, {"db", "copy", to, "x.db"}, {"run", ".", "--db", to}} {
				drillRefused(t, w, w.dir, args)
			}
			after, err := os.Lstat(to)
			if err != nil || after.Mode() != before.Mode() || !os.SameFile(before, after) {
				t.Errorf("it is %v now, %v, and was %v", after, err, before)
			}
			w.must("run", ".") // it is not sealed
		})
	}
}
