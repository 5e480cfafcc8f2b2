package logsink_test

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/logsink"
)

// A line that a lookup finds is flushed before it counts: who wrote it may have died before that, and the record outlives a loss of power.
// What Linux shows of a process is a regular file that nothing can flush, so its line shows nothing.
func TestLineThatIsNotFlushed(t *testing.T) {
	t.Parallel()
	line := "\n" + `{"time":"2026-12-01T03:00:00Z","token":"tok_1","text":"paid"}` + "\n"
	process := exec.CommandContext(t.Context(), "sh", "-c", "echo; read line", "sh", line)
	hold, err := process.StdinPipe()
	began, err2 := process.StdoutPipe()
	if err = errors.Join(err, err2); err == nil {
		err = process.Start()
	}
	if err == nil {
		_, err = began.Read(make([]byte, 1)) // it has its arguments
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); _ = process.Wait() })
	conn, err := logsink.New("out", logsink.Config{Path: fmt.Sprintf("/proc/%d/cmdline", process.Process.Pid)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := conn.Tools[0].(connector.Reconciler).Reconcile(t.Context(), keep.Mutation{Token: "tok_1"})
	if err == nil || a.Verdict != "" {
		t.Errorf("the lookup says %q, %v", a.Verdict, err)
	}
}
