package host_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/sqlite"
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
	if _, err := h.Deploy(t.Context(), w); err != host.ErrClosed {
		t.Errorf("Deploy after Close: %v, want ErrClosed", err)
	}
}

// A file on which another process may run workflows is read, and decided on, and nothing is run on it: what a host has
// in its calls would be taken for what a crash left.
func TestRunNeedsAHostsFile(t *testing.T) {
	w := newFileWorld(t).quick()
	w.unwatched = true
	calling, answer := make(chan struct{}), make(chan struct{})
	w.service.onCall = func(context.Context, keep.Mutation, int) (bool, error) {
		close(calling)
		<-answer
		return true, nil
	}
	w.deploy(act("w", "blind"))
	w.publish("w", "in", "a")
	w.start()
	<-calling
	beside := sqlite.New(w.path, sqlite.Config{})
	if err := beside.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	other, err := host.Open(t.Context(), beside, host.Config{Connections: []connector.Connection{w.service.connection()}, Sandbox: sandbox.Config{CacheDir: cacheDir}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, run := range map[string]func(context.Context) error{"Run": other.Run, "RunUntilIdle": other.RunUntilIdle} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := run(ctx)
		cancel()
		if !errors.Is(err, sqlite.ErrNotHost) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Config.Host") {
			t.Errorf("%s beside a host: %v, want that it was not opened as one", name, err)
		}
	}
	close(answer)
	w.idle()
	if qs := w.questions("w"); len(qs) > 0 {
		t.Errorf("asked %q about a call that a host was making", qs[0].Question)
	}
	w.wantOnce(t, 1)
	if err := other.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: "for now"}); err != nil {
		t.Errorf("to pause it beside the host: %v", err)
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
	for want, approve := range map[string]map[string]string{
		`approve.od: the connection "svc" has no such tool`: {"od": "always"},
		"approve.read: read reads":                          {"read": "always"},
		"approve.do: is empty":                              {"do": ""},
		"no-condition(":                                     {"do": "no-condition("},
	} {
		c := connector.Connection{Name: "svc", Approve: approve, Tools: []connector.Tool{good, connector.NewReader(connector.Spec{Name: "read"},
			func(context.Context, params) (string, error) { return "", nil })}}
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

// A budget that bounds nothing, as one about a mistyped tool does, is refused when the host is opened and when it is configured anew.
// A literal is as good as what budget.New returns.
func TestBudgetsAreChecked(t *testing.T) {
	type params struct {
		ID     string `json:"id"`
		Amount int    `json:"amount"`
	}
	paid := 0
	conns := []connector.Connection{{Name: "bank", Tools: []connector.Tool{connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"id"}},
		connector.Change[params, string]{Do: func(_ context.Context, _ string, p params) (string, error) { paid += p.Amount; return "", nil }})}}}
	rule := func(name string, tools ...string) budget.Rule {
		return budget.Rule{Name: name, Tools: tools, Sum: "params.amount", Limit: 150 * keep.AmountUnit, Per: time.Hour}
	}
	wrong := rule("cash", "bank.pay")
	wrong.Sum = "params.amount +"
	cfg := host.Config{Connections: conns, Budgets: []budget.Rule{rule("cash", "bank.pay", "shop.buy"), rule("all", "*"), rule("wide", "bank.*")},
		Elsewhere: func(c string) bool { return c == "shop" }}
	h, err := host.Open(t.Context(), memory.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for want, rules := range map[string][]budget.Rule{
		`budget "cash": bank.pya: the connection "bank" has no such tool`: {rule("cash", "bank.pya")},
		`budget "cash": bnk.pay: there is no connection "bnk"`:            {rule("cash", "bnk.pay")},
		`budget "cash": "cash" is a name of two budgets`:                  {rule("cash", "bank.pay"), rule("cash", "bank.pay")},
		`budget "cash": it is about no call`:                              {rule("cash")},
		`is no name of a budget`:                                          {{}},
		`budget "cash": "params.amount +"`:                                {wrong},
	} {
		if h, err := host.Open(t.Context(), memory.New(), host.Config{Connections: conns, Budgets: rules}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want %q", err, want)
			if err == nil {
				h.Close()
			}
		}
		if err := h.Reconfigure(conns, policy.Retention{}, rules, keep.Breaker{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Reconfigure: %v, want %q", err, want)
		}
	}
	w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, w *handler.Worker) error {
		for _, id := range []string{"a", "b"} {
			if err := w.Item(ctx, id, id, func(ctx context.Context, it *handler.Item) error {
				if it.Done() {
					return nil
				}
				return it.Call(ctx, "bank.pay", params{id, 100}, nil)
			}); err != nil {
				return err
			}
		}
		return nil
	}}}})
	if err == nil {
		_, err = h.Deploy(t.Context(), w)
	}
	if err == nil {
		err = h.RunUntilIdle(t.Context())
	}
	if err != nil || paid != 100 {
		t.Errorf("a budget of 150 let %d through, %v; want 100", paid, err)
	}
}

// A tool whose calls a lease cuts short is named when it comes while the host runs, as at its start.
func TestShortLeasesAreNamedAtReload(t *testing.T) {
	type params struct {
		ID string `json:"id"`
	}
	slow := func(limit time.Duration) []connector.Connection {
		return []connector.Connection{{Name: "bank", Tools: []connector.Tool{connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"id"}, Timeout: limit},
			connector.Change[params, string]{Do: func(context.Context, string, params) (string, error) { return "", nil }})}}}
	}
	for shared, want := range map[bool]bool{true: true, false: false} {
		var said strings.Builder
		var db host.Store = memory.New()
		if shared {
			db = memory.New().Share(time.Now)
		}
		h, err := host.Open(t.Context(), db, host.Config{Connections: slow(time.Second), Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		err = h.Reconfigure(slow(time.Hour), policy.Retention{}, nil, keep.Breaker{})
		if got := strings.Contains(said.String(), "raise the ttl of policy.lease"); err != nil || got != want {
			t.Errorf("shared %t: %v, warned %t, want %t:\n%s", shared, err, got, want, said.String())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A host whose store is closed under it can do nothing any more: Run ends and says so, as RunUntilIdle does.
func TestRunEndsWithItsStore(t *testing.T) {
	for name, run := range map[string]func(*host.Host, context.Context) error{"Run": (*host.Host).Run, "RunUntilIdle": (*host.Host).RunUntilIdle} {
		db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
		if err := db.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		h, err := host.Open(t.Context(), db, host.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Job{Name: "j", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(context.Context, *handler.Worker) error {
			return db.Close()
		}}}})
		if err == nil {
			_, err = h.Deploy(t.Context(), w)
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := run(h, ctx); !errors.Is(err, keep.ErrClosed) || ctx.Err() != nil {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
		cancel()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
