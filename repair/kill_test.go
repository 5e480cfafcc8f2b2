//go:build unix

package repair_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/policy"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/repair"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// A life is what a process of TestKilled does; it is told in the environment, as JSON.
type life struct {
	Dir, Service, Model string
	Postgres            string // URL of the database; empty: a file in Dir
	Activate            law.Activate
	At                  int  // the durable step of the repair at which it is killed, from 1; 0: none
	After               bool // right after the step, not before it
}

const lifeVariable = "KEEP_TEST_REPAIR_LIFE"

// A killing store ends its process, by SIGKILL, at a durable step of a repair.
type killing struct {
	database
	life life
	mu   sync.Mutex
	n    int
}

func (k *killing) step(do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	if k.n == k.life.At && !k.life.After {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	err := do()
	if k.n == k.life.At {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return err
}

func (k *killing) PutRepair(ctx context.Context, r keep.Repair) error {
	return k.step(func() error { return k.database.PutRepair(ctx, r) })
}

func (k *killing) Commit(ctx context.Context, c keep.Commit) error {
	for _, change := range c.Changes {
		switch change.(type) {
		case keep.PutProposal, keep.OpenEscalation:
			return k.step(func() error { return k.database.Commit(ctx, c) })
		}
	}
	return k.database.Commit(ctx, c)
}

// TestLife is one process of TestKilled; it is no test by itself.
func TestLife(t *testing.T) {
	text := os.Getenv(lifeVariable)
	if text == "" {
		t.Skip("a process of TestKilled")
	}
	var l life
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	l.live(t, true)
}

// A database is a store that is open.
type database interface {
	host.Store
	repair.Store
	Open(ctx context.Context) error
	Close() error
}

// open opens the database, as a host or as a command beside one.
func (l life) open(t *testing.T, hosts bool) database {
	t.Helper()
	var db database = sqlite.New(filepath.Join(l.Dir, "keep.db"), sqlite.Config{Host: hosts})
	if l.Postgres != "" {
		db = postgres.New(l.Postgres, postgres.Config{Host: hosts})
	}
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// replace is a person who deploys a version that does what the one that failed was to do.
func (l life) replace(t *testing.T, source string) {
	db := l.open(t, false)
	defer db.Close()
	rt, err := runtime()
	if err != nil {
		t.Error(err)
		return
	}
	b, err := sandbox.BuildSource("base.js", []byte(source))
	if err != nil {
		t.Error(err)
		return
	}
	w, err := host.LoadBundle(t.Context(), rt, b)
	if err == nil {
		var o *operator.Operator
		if o, err = operator.New(db, operator.Config{}); err == nil {
			_, err = o.Deploy(t.Context(), keep.Deployment{Workflow: w.Name, Hash: b.Hash(), Entry: b.Entry, Code: b.Code, Map: b.Map, Definition: w.Definition})
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// live opens the database, publishes the odd event if there is to be one, and works until nothing is left to do.
func (l life) live(t *testing.T, odd bool) {
	db := l.open(t, true)
	defer db.Close()
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := httpapi.New("svc", httpapi.Config{BaseURL: l.Service, Tools: map[string]httpapi.Tool{
		"pay": {Effect: connector.Mutate, Path: "/pay", Identity: []string{"ref"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true}}})
	if err != nil {
		t.Fatal(err)
	}
	store, conns := &killing{database: db, life: l}, []connector.Connection{*conn}
	cfg := host.Config{Presence: l.Dir, Connections: conns, Runtime: rt, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if odd {
		cfg.Repairs = l.repairs(t, store, conns, rt)
	}
	h, err := host.Open(t.Context(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if !odd {
		l.deploy(t, h, rt)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for id, payload := range l.events(odd) {
		if _, _, err := h.Publish(ctx, operator.Publication{Workflow: "bills", Topic: "mail", MessageID: keep.MessageID(id), Payload: json.RawMessage(payload)}); err != nil {
			t.Error(err)
		}
	}
	if err := h.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
}

// events returns what is published: bills that the script understands, and the one that it does not.
func (l life) events(odd bool) map[string]string {
	if odd {
		return map[string]string{"m9": `{"ref": "REF9", "iban": "DE09", "text": "Please pay.", "amount": 90}`}
	}
	out := map[string]string{}
	for ref, total := range map[string]string{"1": "10", "2": "20", "3": "900"} {
		out["m"+ref] = fmt.Sprintf(`{"ref": "REF%s", "iban": "DE0%s", "text": "Please pay.", "total": {"value": %q}}`, ref, ref, total)
	}
	return out
}

func (l life) deploy(t *testing.T, h *host.Host, rt *sandbox.Runtime) {
	source, err := os.ReadFile(filepath.Join(renamed, "base.js"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.BuildSource("base.js", source)
	if err != nil {
		t.Fatal(err)
	}
	w, err := host.LoadBundle(t.Context(), rt, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.DeployGranted(t.Context(), w, nil, operator.Consent{Give: true, Calls: []keep.ToolName{"svc.pay"}}); err != nil {
		t.Fatal(err)
	}
}

func (l life) repairs(t *testing.T, store *killing, conns []connector.Connection, rt *sandbox.Runtime) *host.Repairs {
	c, err := llm.New(llm.Config{API: llm.Anthropic, BaseURL: l.Model, Key: llmtest.Key,
		Retry: policy.Backoff{First: time.Millisecond, Max: time.Millisecond, Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	bench := &repair.Bench{Store: store.database, Connections: conns, Runtime: rt, Comparer: repair.Recorded{Store: store.database, Connections: conns}}
	return &host.Repairs{Activate: l.Activate, Repairer: &repair.Keeper{Store: store, Clock: time.Now,
		Repairer: &repair.Repairer{Bench: bench, Model: c, Name: "m-1", Limits: limits}}}
}

// process lives a life in a process of its own, and reports whether it was killed.
func (l life) process(t *testing.T) bool {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLife$")
	cmd.Env = append(os.Environ(), lifeVariable+"="+string(text))
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%+v: %v\n%s", l, err, out)
	}
	return false
}

// TestKilled kills a host of each store, by SIGKILL, before and after each durable step of a repair, and starts it again: a version is current, or a
// person is asked, once; nothing is half of both, and the service got the call once or never.
func TestKilled(t *testing.T) {
	var mu sync.Mutex
	paid := map[string]int{}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		paid[string(body)]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{}`)
	}))
	defer service.Close()
	first := t.TempDir()
	life{Dir: first, Service: service.URL}.live(t, false)
	prepared, err := os.ReadFile(filepath.Join(first, "keep.db"))
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(t *testing.T, store string) life {
		l := life{Dir: t.TempDir(), Service: service.URL}
		if store == "postgres" {
			l.Postgres = pgtest.URL(t)
			l.live(t, false)
		} else if err := os.WriteFile(filepath.Join(l.Dir, "keep.db"), prepared, 0o600); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		clear(paid)
		mu.Unlock()
		return l
	}
	fixed := call("propose", caseOf(t, "falls-back").source)
	for _, tt := range []struct {
		name     string
		activate law.Activate
		reply    llmtest.Reply
		steps    []int
		version  string
		asked    keep.EscalationKind // empty: nothing
		made     int                 // versions of the repair
	}{
		// Attempt begun, verdict stored, version current.
		{"safe", law.WhenSafe, fixed, []int{1, 2, 3}, "1.1", "", 1},
		{"ask", law.Ask, fixed, []int{3}, "1.0", keep.AskProposal, 1},
		// Attempts begin and end at 1 to 6, the budget is spent at 7, and the question is asked at 8.
		{"nothing", law.WhenSafe, llmtest.Reply{Text: "no"}, []int{1, 6, 7, 8}, "1.0", keep.AskLogic, 0},
		// A person deploys while the model is asked: attempt begun, repair replaced.
		{"deployed", law.WhenSafe, fixed, []int{1, 2}, "2.0", "", 0},
	} {
		for i, at := range append(tt.steps, tt.steps...) {
			store := []string{"sqlite", "postgres"}[i/len(tt.steps)]
			for _, after := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/%d/%t", store, tt.name, at, after)
				if store == "postgres" && !storetest.Sampled(name, 2) { // that a commit is whole is tested with the store
					continue
				}
				if ceiling.Race && !storetest.Sampled(name, 8) { // test.sh has them without the race detector, too
					continue
				}
				t.Run(name, func(t *testing.T) {
					l := prepare(t, store)
					s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply {
						if tt.name == "deployed" {
							l.replace(t, caseOf(t, "falls-back").source)
						}
						return tt.reply
					})
					l.Model, l.Activate, l.At, l.After = s.Base(false), tt.activate, at, after
					if !l.process(t) {
						t.Fatal("it was not killed")
					}
					l.At = 0
					l.process(t)
					mu.Lock()
					sent := fmt.Sprint(paid)
					mu.Unlock()
					if once := strings.Count(sent, "REF9") == 1 && strings.HasSuffix(sent, ":1]"); once != (tt.asked == "") {
						t.Errorf("the service got %s", sent)
					}
					most := limits.Attempts
					if tt.name == "deployed" {
						most = 1
					}
					if n := len(s.Requests()); n > most {
						t.Errorf("the model was asked %d times, want %d at most", n, most)
					}
					l.check(t, tt.version, tt.asked, tt.made)
				})
			}
		}
	}
}

// check looks at what the second life left.
func (l life) check(t *testing.T, version string, asked keep.EscalationKind, made int) {
	t.Helper()
	db := l.open(t, true)
	defer db.Close()
	w, err := db.Workflow(t.Context(), "bills")
	if err != nil || w.Version.String() != version {
		t.Errorf("version %s, %v; want %s", w.Version, err, version)
	}
	if d, err := db.Deployment(t.Context(), "bills", w.Version); err != nil || len(d.Code) == 0 {
		t.Errorf("the source of version %s is not whole: %v", w.Version, err)
	}
	qs, _, err := db.Escalations(t.Context(), keep.EscalationFilter{}, keep.Page{})
	if err != nil || len(qs) > 1 || (len(qs) == 0) != (asked == "") || len(qs) == 1 && (qs[0].Kind != asked || !qs[0].ClosedAt.IsZero()) {
		t.Errorf("the questions are %+v, %v; want one of kind %q", qs, err, asked)
	}
	ps, err := db.Proposals(t.Context(), "bills")
	if err != nil || len(ps) != made || made == 1 && (ps[0].State == keep.ProposalApproved) != (version == "1.1") {
		t.Errorf("the proposals are %+v, %v; want %d", ps, err, made)
	}
}
