package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// TestPgDump follows what keep db backup --help says of Postgres: a dump of one
// moment, restored to another database, is lawful and has the same runs.
func TestPgDump(t *testing.T) {
	t.Parallel()
	from, to := pgtest.URL(t), pgtest.URL(t)
	w := newCrashWorld(t)
	w.env = append(w.env, "KEEP_DB="+from)
	for _, args := range [][]string{{"run", "."}, {"db", "check"}} {
		if out, err := w.keep(args...); err != nil {
			t.Fatalf("keep %s: %v\n%s", args, err, out)
		}
	}
	dump := filepath.Join(t.TempDir(), "keep.dump")
	for _, args := range [][]string{{"pg_dump", "--format=custom", "--file=" + dump, from}, {"pg_restore", "--dbname=" + to, dump}} {
		if out, err := exec.Command(pgtest.Program(t, args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	before := w.runs()
	w.env = append(w.env, "KEEP_DB="+to)
	if out, err := w.keep("db", "check"); err != nil {
		t.Fatalf("keep db check of the copy: %v\n%s", err, out)
	}
	if after := w.runs(); after != before {
		t.Errorf("runs of the copy:\n%s\nwant\n%s", after, before)
	}
	w.must("pause", "contacts", "--note", "duplicates at the bank")
	w.must("db", "restored")
	if out, err := w.keep("db", "restored"); err != nil || !strings.Contains(string(out), "Workflow contacts: paused") {
		t.Errorf("restored: %v\n%s", err, out)
	}
	// Once as why it is paused, and once as what was decided.
	if out, err := w.keep("workflows", "show", "contacts"); err != nil || strings.Count(string(out), "restored from a backup") != 2 || !strings.Contains(string(out), "duplicates at the bank") {
		t.Errorf("why the workflow is paused: %v\n%s", err, out)
	}
	w.crm.more(1)
	w.must("run", ".")
	if after := w.runs(); after != before {
		t.Errorf("a restored database was worked on before somebody said so:\n%s", after)
	}
	w.must("resume", "contacts")
	w.must("run", ".")
	if after := w.runs(); after == before {
		t.Error("nothing continued after resume")
	}
	if out, err := w.keep("db", "sweep", "--yes"); err != nil || !strings.HasPrefix(string(out), "Deleted: 0 runs") || strings.Contains(string(out), "file") {
		t.Errorf("a sweep of Postgres, which is no file: %v\n%s", err, out)
	}
	out, err := w.keep("db", "backup", filepath.Join(t.TempDir(), "x"))
	if err == nil || !strings.Contains(string(out), "pg_dump") {
		t.Errorf("keep db backup of Postgres: %v\n%s", err, out)
	}
}

// TestPgDumpUnderLoad dumps in the middle of a call of a host at work. What comes back is
// lawful, and has the call in flight: it will be looked up, not repeated.
func TestPgDumpUnderLoad(t *testing.T) {
	t.Parallel()
	from, to := pgtest.URL(t), pgtest.URL(t)
	w := newCrashWorld(t)
	w.write("keep.toml", strings.ReplaceAll(w.read("keep.toml"), `timeout  = "1s"`, `timeout  = "5m"`)) // the call is in flight for as long as the dump takes
	env := w.env
	w.env = append(env, "KEEP_DB="+from)
	dump, program := filepath.Join(t.TempDir(), "keep.dump"), pgtest.Program(t, "pg_dump")
	var done atomic.Int64 // the workflow makes one call after the other
	w.crm.tell(func(point string) {
		if point != "done" {
			return
		}
		if done.Add(1) != 21 {
			return
		}
		if out, err := exec.Command(program, "--format=custom", "--file="+dump, from).CombinedOutput(); err != nil {
			t.Errorf("pg_dump: %v\n%s", err, out)
		}
	})
	w.must("run", ".")
	if out, err := exec.Command(pgtest.Program(t, "pg_restore"), "--dbname="+to, dump).CombinedOutput(); err != nil {
		t.Fatalf("pg_restore: %v\n%s", err, out)
	}
	w.env = append(env, "KEEP_DB="+to)
	w.must("db", "check")
	if out, err := w.keep("db", "restored"); exited(err) != exit.Unreachable || !strings.Contains(string(out), "copy of a dump") || !strings.Contains(string(out), "its leases end in") {
		t.Errorf("restored while the host of the dump may live: %v\n%s", err, out)
	}
	conn, err := pgx.Connect(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE host SET until = until - 3600000`); err != nil { // an hour later
		t.Fatal(err)
	}
	var report restoredReport
	out, err := w.command("db", "restored", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil || len(report.Workflows) != 1 || report.Newest == nil {
		t.Errorf("restored: %v\n%s", err, out)
	}
	if out := w.must("mutations", "--status", "in_flight", "--json"); !strings.Contains(string(out), `"in_flight"`) {
		t.Errorf("calls in flight: %s", out)
	}
}

// runs returns the list of all runs.
func (w *crashWorld) runs() string {
	w.Helper()
	out, err := w.command("runs", "--all", "--json").Output()
	if err != nil || !json.Valid(out) {
		w.Fatalf("keep runs: %v\n%s", err, out)
	}
	return string(out)
}
