package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// TestRestoreOfAnOlderMoment goes back to a backup after more was done, and follows what
// keep db restored --help says. Nothing is done twice, although the ledger has
// forgotten it, and what is new is done.
func TestRestoreOfAnOlderMoment(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.crm.fill(4)
	w.must("run", ".")
	w.must("db", "backup", "backup.db")
	w.crm.more(4)
	w.must("run", ".") // this is forgotten
	for _, name := range []string{"keep.db", "keep.db-wal", "keep.db-shm"} {
		_ = os.Remove(filepath.Join(w.dir, name)) // the last two need not be there
	}
	if err := os.Rename(filepath.Join(w.dir, "backup.db"), filepath.Join(w.dir, "keep.db")); err != nil {
		t.Fatal(err)
	}
	if out, err := w.keep("run", "."); exited(err) != exit.Unreachable {
		t.Fatalf("run on a backup: %v\n%s", err, out)
	}
	w.must("db", "restored")
	if out, err := w.keep("workflows", "show", "contacts"); err != nil || !strings.Contains(string(out), "restored from a backup") {
		t.Errorf("why the workflow is paused: %v\n%s", err, out)
	}
	w.crm.more(1)
	w.write("keep.toml", strings.ReplaceAll(w.read("keep.toml"), `effect   = "mutate"`, "effect = \"mutate\"\napprove = \"always\""))
	w.must("run", ".")
	w.must("resume", "contacts")
	rejected := 0
	for {
		out, err := w.keep("run", ".")
		if err == nil {
			break
		}
		if exited(err) != exit.NeedsPerson {
			t.Fatalf("run: %v\n%s", err, out)
		}
		id, contact := w.approval()
		if w.crm.effects(contact) > 0 {
			rejected++
			w.must("inbox", "do", id, "reject")
		} else {
			w.must("inbox", "do", id, "approve")
		}
	}
	if rejected != 4 {
		t.Errorf("%d calls were rejected, want 4", rejected)
	}
	w.doctor()
	for _, c := range []string{"c1", "c4", "c5", "c8", "c9"} {
		if n := w.crm.effects(c); n != 1 {
			t.Errorf("%s was created %d times, want once", c, n)
		}
	}
}

// approval returns the only open question, and the contact that it is about.
func (w *crashWorld) approval() (id, contact string) {
	w.Helper()
	id = w.question()
	out, err := w.command("inbox", "show", id, "--json").Output()
	var q struct{ Attempted string }
	if err == nil {
		err = json.Unmarshal(out, &q)
	}
	contact = regexp.MustCompile(`c[0-9]+`).FindString(q.Attempted[max(0, strings.Index(q.Attempted, "id")):])
	if err != nil || contact == "" {
		w.Fatalf("inbox show: %v\n%s", err, out)
	}
	return id, contact
}
