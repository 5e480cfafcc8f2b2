package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// letters are what examples/reminders writes, by customer.
var letters = map[string]string{
	"ada.txt": "Reminder: invoice R-101 of 120.00 EUR was due on 2026-10-01.\n" +
		"Notice: invoice R-101 will be collected.\n" +
		"Reminder: invoice R-102 of 35.50 EUR was due on 2026-11-02.\n",
	"grace.txt": "Reminder: invoice R-104 of 12.00 EUR was due on 2026-11-05.\n",
	"linus.txt": "Reminder: invoice R-105 of 640.00 EUR was due on 2026-09-12.\n" +
		"Notice: invoice R-105 will be collected.\n",
}

// copyOfReminders returns a copy of the example as it is before its first run.
func copyOfReminders(t testing.TB) string {
	t.Helper()
	dir := copyOf(t, "reminders")
	written, err := filepath.Glob(filepath.Join(dir, "outbox", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range written {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	emptyInvoices(t, dir)
	return dir
}

// outbox returns what was written, by file.
func outbox(t testing.TB, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "outbox", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}

// Each invoice is reminded of once; a second attempt is a person's wish.
func TestReminders(t *testing.T) {
	t.Parallel()
	dir := copyOfReminders(t)
	leavesClean(t, filepath.Dir(dir))
	runOnce(t, dir)
	if d := cmp.Diff(outbox(t, dir), letters); d != "" {
		t.Errorf("after the first run (-got +want):\n%s", d)
	}
	keep(t, dir, nil, 0, "trigger", "reminders")
	runOnce(t, dir)
	if d := cmp.Diff(outbox(t, dir), letters); d != "" {
		t.Errorf("after the second run (-got +want):\n%s", d)
	}

	out := keep(t, dir, nil, 0, "items", "reprocess", "reminders", "invoice:4")
	if !strings.Contains(out, "outbox.append on grace.txt") {
		t.Errorf("keep items reprocess = %s, want what is sent again", out)
	}
	keep(t, dir, nil, 0, "items", "reprocess", "reminders", "invoice:4", "--yes")
	keep(t, dir, nil, 0, "trigger", "reminders")
	runOnce(t, dir)
	if got, want := outbox(t, dir)["grace.txt"], strings.Repeat(letters["grace.txt"], 2); got != want {
		t.Errorf("after the second attempt grace.txt is %q, want %q", got, want)
	}
}

// A process that is killed after every change of the outbox still writes each
// letter once.
func TestRemindersKilledAfterEachLetter(t *testing.T) {
	t.Parallel()
	dir := copyOfReminders(t)
	kills := 0
	for ; kills < 4; kills++ {
		before := outbox(t, dir)
		p := start(t, dir, hurried...)
		for !p.over() && cmp.Equal(outbox(t, dir), before) {
		}
		if p.over() {
			break
		}
		p.kill()
	}
	runOnce(t, dir, hurried...)
	if d := cmp.Diff(sortedLines(outbox(t, dir)), sortedLines(letters)); d != "" {
		t.Errorf("after %d kills (-got +want):\n%s", kills, d)
	}
	t.Logf("killed %d times", kills)
}

// sortedLines sorts the lines of each file: an invoice in doubt is passed over, and
// its letter may come behind a later one's.
func sortedLines(files map[string]string) map[string][]string {
	out := map[string][]string{}
	for name, text := range files {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		slices.Sort(lines)
		out[name] = lines
	}
	return out
}
