package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A job that asks a person about each doubt: its tool cannot be asked.
const shoutScript = `export default Keep.workflow({
  name: "shout",
  jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) {
    await ctx.withItem("a", "Item a", async (ctx) => {
      if (!ctx.item.isDone) await ctx.crm.shout({ id: "a", name: "Person a" });
    });
  } } },
});
`

const shoutTool = `
[connections.crm.tools.shout]        # level D
effect   = "mutate"
path     = "/contacts"
identity = ["id"]
timeout  = "300ms"
settle_after = "0s"
`

// TestCopyGoesOn kills the command on a file while calls are in flight and a question is open,
// moves the database to Postgres, continues there, and moves it back. Nothing is done twice, and
// what was left behind can only be looked at.
func TestCopyGoesOn(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.write("shout.js", shoutScript)
	w.write("keep.toml", w.read("keep.toml")+shoutTool)
	w.crm.set("drop")
	if out, err := w.keep("run", "shout.js"); exited(err) != exit.NeedsPerson {
		t.Fatalf("run with a doubt: %v\n%s", err, out)
	}
	w.crm.set("ok")
	for kills := 0; kills < 4 || w.target != "arrived" && w.target != "done"; kills++ { // a call is in flight at the end
		if !w.runUntilKilled() {
			t.Fatal("it was done before it was killed")
		}
	}
	to, back := pgtest.URL(t), filepath.Join(w.dir, "back.db")
	w.must("db", "copy", "keep.db", to)
	if out, err := w.keep("run", "."); exited(err) != exit.Unreachable || !strings.Contains(string(out), "it was moved to postgres://") {
		t.Errorf("run on a sealed database: %v\n%s", err, out)
	}
	w.must("runs") // looking is fine
	w.must("db", "copy", "keep.db", to)

	w.env = append(w.env, "KEEP_DB="+to)
	if out, err := w.keep("run", "."); exited(err) != exit.NeedsPerson {
		t.Fatalf("run on Postgres with an open question: %v\n%s", err, out)
	}
	w.must("inbox", "do", w.question(), "skip")
	w.must("run", ".")
	w.doctor()
	if out, err := w.keep("db", "unseal", "keep.db", to); err == nil || !strings.Contains(string(out), "the copy was used since") {
		t.Errorf("unseal after use: %v\n%s", err, out)
	}

	w.crm.more(10)
	w.must("db", "copy", to, back)
	w.env = append(w.env, "KEEP_DB="+back)
	w.must("run", ".")
	w.doctor()
	w.checkOnce()
	if n := w.crm.effects("a"); n != 1 {
		t.Errorf("a was created %d times, want once", n)
	}
}

// must runs the command, which must end with status 0.
func (w *crashWorld) must(args ...string) []byte {
	w.Helper()
	out, err := w.keep(args...)
	if err != nil {
		w.Fatalf("keep %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// question returns the id of the only open question.
func (w *crashWorld) question() string {
	w.Helper()
	out, err := w.command("inbox", "--json").Output()
	var list []struct{ ID string }
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil || len(list) != 1 {
		w.Fatalf("inbox: %v\n%s", err, out)
	}
	return list[0].ID
}

func (w *crashWorld) read(name string) string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.Fatal(err)
	}
	return string(data)
}

func (w *crashWorld) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

// exited returns the exit status of a command.
func exited(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return 0
}

// Tables of a program beside Keep's are not moved, and a copy that leaves them says so before and after.
func TestCopyLeavesTables(t *testing.T) {
	w := newCrashWorld(t)
	w.must("run", ".")
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "keep.db"))
	if err == nil {
		_, err = db.ExecContext(t.Context(), `CREATE TABLE payment (id INT)`)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := w.keep("db", "copy", "keep.db", "new.db")
	if exited(err) != exit.Failed || !strings.Contains(string(out), "payment") || !strings.Contains(string(out), "--leave-tables") {
		t.Errorf("a copy that would leave a table: %v\n%s", err, out)
	}
	if out := w.must("db", "copy", "keep.db", "new.db", "--leave-tables"); !strings.Contains(string(out), "still in keep.db: payment.") {
		t.Errorf("a copy that leaves a table says:\n%s", out)
	}
}
