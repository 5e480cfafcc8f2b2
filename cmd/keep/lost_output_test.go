//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A fullDisk is stdout on a disk that has room for so many bytes.
type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) <= d.room {
		d.room -= len(p)
		return len(p), nil
	}
	return 0, &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.ENOSPC}
}

// What a command prints is not taken for the whole if a part of it could not be written: a plan without its end has fewer changes than there
// would be. How it ended otherwise stays in its status.
func TestOutputThatIsLost(t *testing.T) {
	t.Chdir(t.TempDir())
	if out, talk, status := runCommand(t, "init", "."); status != exit.Done {
		t.Fatal(out, talk)
	}
	put(t, ".", "bad.js", "export default 7;")
	for _, c := range []struct {
		room, status int
		line         string
	}{
		{0, exit.Failed, "check journal.js"}, {100, exit.Failed, "check journal.js"}, {0, exit.Misused, "check bad.js"},
		{0, exit.Failed, "plan journal.js"}, {20, exit.Failed, "plan journal.js"}, {0, exit.Failed, "test journal.js"},
		{0, exit.Failed, "doctor"}, {0, exit.Failed, "docs search deploy"},
	} {
		var talk bytes.Buffer
		status := run(t.Context(), strings.Fields(c.line), &fullDisk{c.room}, &talk)
		if status != c.status || strings.Count(talk.String(), "no space left on device") != 1 {
			t.Errorf("keep %s with room for %d bytes: status %d, want %d\n%s", c.line, c.room, status, c.status, talk.String())
		}
	}
}

// A change was made although nothing of it can be printed, also by the API of a host: who reads the error does not make it once more.
func TestChangeWhoseOutputIsLost(t *testing.T) {
	without, with := newPlaces(t)
	for _, c := range []struct {
		p    *place
		line []string
	}{
		{without, []string{"publish", "quiet", "t", "{}"}},
		{with, []string{"publish", "quiet", "t", "{}"}},
		{with, []string{"api", "POST", "/workflows/mail/pause", "{}"}},
	} {
		t.Chdir(c.p.dir)
		var talk bytes.Buffer
		a := newApp(&fullDisk{}, &talk)
		a.Clock = func() time.Time { return c.p.now }
		if status := a.execute(t.Context(), c.line); status != exit.Failed || strings.Count(talk.String(), "what was asked for was done") != 1 {
			t.Errorf("keep %v: status %d\n%s", c.line, status, talk.String())
		}
	}
}

// Questions that could not be listed are not answered: with --yes a person agrees to what was listed, and no more.
func TestAnswersOfAListThatIsLost(t *testing.T) {
	p, _ := newPlaces(t)
	open := p.must(0, "inbox", "--json")
	if !strings.Contains(open, `"action": "skip"`) {
		t.Fatalf("no question can be skipped: %s", open)
	}
	t.Chdir(p.dir)
	var talk bytes.Buffer
	a := newApp(&fullDisk{}, &talk)
	a.Clock = func() time.Time { return p.now }
	status := a.execute(t.Context(), []string{"inbox", "do", "--all", "skip", "--yes"})
	if after := p.must(0, "inbox", "--json"); status != exit.Failed || after != open {
		t.Errorf("status %d, and the questions are\n%s\nwant\n%s\n%s", status, after, open, talk.String())
	}
}

// Who names the list that he read answers no question that was asked since, and none if one of them has an answer.
func TestAnswersOfAListThatWasSeen(t *testing.T) {
	p, _ := newPlaces(t)
	look := func() (seen string) {
		t.Helper()
		_, rest, ok := strings.Cut(p.keep("inbox", "do", "--all", "skip").Talk, "--seen ")
		if seen, _, _ = strings.Cut(rest, " "); !ok {
			t.Fatal("the list has no name")
		}
		return seen
	}
	first := look()
	if again := look(); again != first {
		t.Errorf("the same list is called %s and %s", first, again)
	}
	_, id, _ := strings.Cut(p.keep("inbox", "do", "--all", "skip").Out, "keep inbox do ")
	id, _, _ = strings.Cut(id, " ")
	p.must(0, "inbox", "do", id, "skip")
	if now := look(); now == first {
		t.Error("a list with a question less has the same name")
	}
	open := p.must(0, "inbox", "--json")
	if o := p.keep("inbox", "do", "--all", "skip", "--yes", "--seen", first); o.Status != exit.Failed || !strings.Contains(o.Talk, "others than those that were shown") {
		t.Errorf("another list is answered: %+v", o)
	}
	if after := p.must(0, "inbox", "--json"); after != open {
		t.Errorf("the questions are\n%s\nwant\n%s", after, open)
	}
	if o := p.keep("inbox", "do", "--all", "skip", "--yes", "--seen", look()); !strings.Contains(o.Talk, "Recorded: skip") {
		t.Errorf("the list that was seen is not answered: %+v", o)
	}
}
