//go:build unix

package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// frozenAt names the service in the environment of the process that TestFrozen stops.
const frozenAt = "KEEP_TEST_FROZEN_AT"

// A process that is stopped when the request is written but not sent, and resumes
// after the time for the call, sends nothing. Law: once; see docs/design/0005-leases.md, Calls.
func TestFrozen(t *testing.T) {
	if base := os.Getenv(frozenAt); base != "" {
		freeze(t, base)
		return
	}
	t.Parallel()
	var arrived atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer service.Close()
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFrozen$", "-test.v")
		cmd.Env = append(os.Environ(), frozenAt+"="+service.URL)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var state syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
			t.Fatalf("the process did not stop: %v, %v\n%s", state, err, out.String())
		}
		time.Sleep(frozenTimeout + 100*time.Millisecond) // the time for the call passes
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "the call said:") {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	if n := arrived.Load(); n != 0 {
		t.Errorf("%d requests came after the time for their calls, want none", n)
	}
}

const frozenTimeout = 500 * time.Millisecond

// freeze makes a call, and stops this process in it.
func freeze(t *testing.T, base string) {
	conn, err := httpapi.New("svc", httpapi.Config{BaseURL: base, Tools: map[string]httpapi.Tool{
		"make": {Effect: connector.Mutate, Path: "/things", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), frozenTimeout)
	defer cancel()
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			panic(err)
		}
		for time.Since(began) < frozenTimeout {
		} // until this thread is stopped, too; then it is late
	}})
	receipt, err := conn.Tools[0].(connector.Mutator).Mutate(ctx, keep.Mutation{Token: "t", Payload: json.RawMessage(`{"id":"1"}`)})
	fmt.Println("the call said:", receipt, err)
}
