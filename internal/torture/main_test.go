package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tool reports worlds, shows one seed as the same history each time, and refuses
// to simulate for no time.
func TestTool(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tool")
	}
	bin := filepath.Join(t.TempDir(), "torture")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(args ...string) (out, messages string, status int) {
		t.Helper()
		var o, e bytes.Buffer
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Stdout, cmd.Stderr = &o, &e
		err := cmd.Run()
		if exited, ok := errors.AsType[*exec.ExitError](err); ok {
			return o.String(), e.String(), exited.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return o.String(), e.String(), 0
	}
	if out, messages, status := run("-seed", "7", "-for", "1s", "-json"); status != 0 || !strings.Contains(out, `"broken": []`) || !strings.Contains(messages, "from seed 7 on") {
		t.Errorf("status %d:\n%s%s", status, out, messages)
	}
	_, first, _ := run("-seed", "3", "-trace")
	_, second, _ := run("-seed", "3", "-trace")
	if first == "" || first != second {
		t.Error("seed 3 was two histories")
	}
	tally := filepath.Join(t.TempDir(), "worlds.jsonl")
	run("-seed", "7", "-for", "1s", "-tally", tally)
	one, err := readTally(tally)
	out, messages, status := run("-for", "1s", "-tally", tally)
	both, err2 := readTally(tally)
	switch {
	case err != nil || err2 != nil || len(one) != 1 || len(both) != 2:
		t.Errorf("the tally is %v, %v and then %v, %v", one, err, both, err2)
	case one[0].Seed != 7 || one[0].Worlds == 0 || one[0].Next < 7+uint64(one[0].Worlds):
		t.Errorf("the first part is %+v", one[0])
	case status != 0 || both[1].Seed != one[0].Next || !strings.Contains(messages, fmt.Sprintf("from seed %d on", one[0].Next)):
		t.Errorf("status %d; after %+v comes %+v:\n%s", status, one[0], both[1], messages)
	case !strings.Contains(out, fmt.Sprintf("all parts: %d worlds", one[0].Worlds+both[1].Worlds)):
		t.Errorf("the sum is not in %s", out)
	}
	if _, messages, status := run("-for", "0s"); status != 2 || !strings.Contains(messages, "positive") {
		t.Errorf("-for 0s: status %d, %s", status, messages)
	}
}
