package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// TestCrashRedo has all events done again, twice, kills the command that does it between two
// steps, and the host at random points of its calls. Each attempt has one effect, of its own
// (laws: once, nothing-lost), and a redo that is repeated continues where it was.
func TestCrashRedo(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.crm.fill(redoBatch + 5)
	if out, err := w.keep("run", "."); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	for _, attempt := range []string{"1", "2"} {
		redo := []string{"events", "redo", "contacts", "found", "--all", "--attempt", attempt, "--yes"}
		cmd := w.command(redo...)
		said, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "Redone: ") {
				if err := cmd.Process.Kill(); err != nil {
					t.Log("it was over:", err)
				}
			}
		}
		_ = cmd.Wait() // it was killed, or was faster
		w.doctor()
		if out, err := w.keep(redo...); err != nil {
			t.Fatalf("redo once more: %v\n%s", err, out)
		}
		for killed := 0; killed < 2 && w.runUntilKilled(); killed++ {
			w.doctor()
		}
		if out, err := w.keep("run", "."); err != nil {
			t.Fatalf("run to the end: %v\n%s", err, out)
		}
		w.doctor()
	}
	data, err := w.command("events", "--all", "--topic", "found", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var events []api.Event
	if err := json.Unmarshal(data, &events); err != nil {
		t.Fatal(err)
	}
	third := 0
	for _, e := range events {
		if e.Attempt == 3 {
			third++
		}
		if n := w.crm.effects(string(e.MessageID)); e.Status != keep.EventConsumed || n != e.Attempt {
			t.Errorf("event %s is %s at attempt %d, and has %d effects", e.MessageID, e.Status, e.Attempt, n)
		}
	}
	if third < redoBatch+5 {
		t.Errorf("%d events of %d are at attempt 3", third, len(events))
	}
}
