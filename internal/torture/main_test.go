package main

import (
	"bytes"
	"errors"
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
	if _, messages, status := run("-for", "0s"); status != 2 || !strings.Contains(messages, "positive") {
		t.Errorf("-for 0s: status %d, %s", status, messages)
	}
}
