package host_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
)

// A host runs once at a time, and never after it was closed.
func TestRunOnceAtATime(t *testing.T) {
	h, err := host.Open(t.Context(), memory.New(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	entered, leave, runs := make(chan struct{}), make(chan struct{}), 0
	w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(context.Context, *handler.Worker) error {
		runs++
		entered <- struct{}{}
		<-leave
		return nil
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Deploy(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- h.RunUntilIdle(t.Context()) }()
	<-entered
	for name, run := range map[string]func(context.Context) error{"Run": h.Run, "RunUntilIdle": h.RunUntilIdle} {
		if err := run(t.Context()); err != host.ErrRunning {
			t.Errorf("%s beside another one: %v, want ErrRunning", name, err)
		}
	}
	close(leave)
	if err := <-ended; err != nil || runs != 1 {
		t.Errorf("the first: %v after %d runs, want one", err, runs)
	}
	if err := h.RunUntilIdle(t.Context()); err != nil {
		t.Errorf("again after it: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.RunUntilIdle(t.Context()); err != host.ErrClosed {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// What no program means is refused with a word of what is wrong, when the host is opened.
func TestMisuseIsRefused(t *testing.T) {
	type params struct {
		ID string `json:"id"`
	}
	do := func(context.Context, string, params) (string, error) { return "", nil }
	spec := connector.Spec{Name: "do", Identity: []string{"id"}}
	good := connector.NewMutator(spec, connector.Change[params, string]{Do: do})
	listed := spec
	listed.Effect = connector.List
	for want, c := range map[string]connector.Connection{
		`the name of a connection is ""`:    {Tools: []connector.Tool{good}},
		`the name of a connection is "a b"`: {Name: "a b", Tools: []connector.Tool{good}},
		"svc: tool 1 is nil":                {Name: "svc", Tools: []connector.Tool{good, nil}},
		"svc.read: its function is nil":     {Name: "svc", Tools: []connector.Tool{connector.NewReader[params, string](connector.Spec{Name: "read"}, nil)}},
		"svc.do: Do is nil":                 {Name: "svc", Tools: []connector.Tool{connector.NewMutator(spec, connector.Change[params, string]{})}},
		"svc.do: Identity is empty":         {Name: "svc", Tools: []connector.Tool{connector.NewMutator(connector.Spec{Name: "do"}, connector.Change[params, string]{Do: do})}},
		"svc.do: effect list of a mutator":  {Name: "svc", Tools: []connector.Tool{connector.NewMutator(listed, connector.Change[params, string]{Do: do})}},
	} {
		if _, err := host.Open(t.Context(), memory.New(), host.Config{Connections: []connector.Connection{c}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want %q", err, want)
		}
	}
	if _, err := host.Open(t.Context(), nil, host.Config{}); err == nil {
		t.Error("a host was opened without a store")
	}
	h, err := host.Open(t.Context(), memory.New(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, loaded := h.LoadGo(nil)
	_, deployed := h.Deploy(t.Context(), nil)
	_, zero := h.Deploy(t.Context(), &host.Workflow{})
	for what, err := range map[string]error{"LoadGo(nil)": loaded, "Deploy(nil)": deployed, "Deploy of a workflow that was not loaded": zero} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
