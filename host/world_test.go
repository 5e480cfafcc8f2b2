package host_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/sqlite"
)

// cacheDir holds the compiled JavaScript engine.
var cacheDir = sandboxtest.CacheDir()

// backstops counts the commits in which only a unique index of the store kept
// something from being there twice. The law decides before: it must stay 0.
var backstops atomic.Int64

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Sandboxes that are open at the same time share the engine: loading it would be a fifth of all tests.
	held, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	held.Close()
	if n := backstops.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: a unique index prevented %d duplicates; the law must decide before\n", n)
		code = 1
	}
	if leaked := leakedGoroutines(); leaked != "" {
		fmt.Fprintf(os.Stderr, "FAIL: goroutines are left:\n\n%s\n", leaked)
		code = 1
	}
	return code
}

// leakedGoroutines returns the stacks of goroutines that run code of this module
// although every test is over. It waits a little for those that are ending.
func leakedGoroutines() string {
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		buf := make([]byte, 1<<20)
		var left []string
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "keep-run/keep") && !strings.Contains(stack, "leakedGoroutines") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

// A database is a store with the lists that tests look at.
type database interface {
	host.Store
	Runs(context.Context, keep.RunFilter, keep.Page) ([]keep.Run, string, error)
	Mutations(context.Context, keep.MutationFilter, keep.Page) ([]keep.Mutation, string, error)
	Events(context.Context, keep.EventFilter, keep.Page) ([]keep.Event, string, error)
	Inputs(context.Context, keep.InputFilter, keep.Page) ([]keep.Input, string, error)
	Items(context.Context, keep.ItemFilter, keep.Page) ([]keep.Item, string, error)
	History(context.Context, keep.MutationKey) ([]keep.Move, error)
	Logs(context.Context, keep.RunID) ([]keep.LogLine, error)
}

var (
	_ database = (*sqlite.DB)(nil)
	_ database = (*memory.Store)(nil)
)

// A watched database counts backstops.
type watched struct {
	database
}

func (d watched) Commit(ctx context.Context, c keep.Commit) error {
	err := d.database.Commit(ctx, c)
	if errors.Is(err, keep.ErrMutationExists) || errors.Is(err, keep.ErrRunOpen) && !isRequest(c) {
		backstops.Add(1)
	}
	return err
}

// isRequest reports whether c is a person's "run now", which may be refused.
func isRequest(c keep.Commit) bool {
	for _, change := range c.Changes {
		if _, ok := change.(keep.RequestRun); ok {
			return true
		}
	}
	return false
}

// A world is a database, a service outside, and the hosts that come and go.
type world struct {
	gated   bool   // the connection has limits
	approve bool   // a person must agree to each svc.create
	build   string // of the program, for handlers in Go
	only    []keep.WorkflowName
	connect func(c *connector.Connection) // changes the connection; nil: it stays

	t       testing.TB
	path    string // of the SQLite file; empty: mem
	mem     *memory.Store
	db      database // nil while the file is closed
	service *service
	policy  policy.Policy
	limits  sandbox.Limits
	passed  func(engine.Point) // is called at each point; nil: nothing is
	dieAt   engine.Point       // actors that come there die, each once
	mu      sync.Mutex         // protects alive
	alive   int                // workflows whose actor has yet to die
	died    chan struct{}      // closed when all have
	limit   time.Duration      // how long idle waits

	unwatched bool // the host has the database itself, not one that counts backstops

	host *host.Host // nil between hosts
	stop context.CancelFunc
	done sync.WaitGroup
}

// newWorld returns a world in memory.
func newWorld(t testing.TB) *world {
	w := &world{t: t, mem: memory.New(), service: newService(), policy: policy.Default(), limit: 2 * time.Minute}
	t.Cleanup(w.close)
	return w
}

// newBubbleWorld returns a world in memory whose time is that of the bubble.
func newBubbleWorld(t testing.TB) *world {
	w := newWorld(t)
	w.limit = 7 * 24 * time.Hour
	t.Cleanup(func() { time.Sleep(time.Second) }) // virtual: a goroutine of the bundler sleeps a little
	return w
}

// newFileWorld returns a world whose database is a real file.
func newFileWorld(t testing.TB) *world {
	path := filepath.Join(t.TempDir(), "keep.db") // first: its directory goes after the world has looked at it
	w := newWorld(t)
	w.mem, w.path = nil, path
	return w
}

// open opens the database and a host, unless they are open.
func (w *world) open() *host.Host {
	w.t.Helper()
	if w.host != nil {
		return w.host
	}
	var store host.Store = watched{w.database()}
	if w.unwatched {
		store = w.database()
	}
	h, err := host.Open(w.t.Context(), store, host.Config{
		Only:        w.only,
		Connections: []connector.Connection{w.connection()},
		Policy:      &w.policy,
		Build:       w.build,
		Sandbox:     sandbox.Config{Limits: w.limits, CacheDir: cacheDir},
		Logger:      slog.New(slog.NewTextHandler(w.t.Output(), nil)),
		Trace:       w.trace,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.host = h
	return h
}

// connection returns that of the service.
func (w *world) connection() connector.Connection {
	c := w.service.connection()
	if w.gated {
		c.Limits = limit.Rule{Rates: []limit.Rate{{N: 100, Per: time.Second}}, Concurrency: 2}
	}
	if w.approve {
		c.Approve = map[string]string{"create": "always"}
	}
	if w.connect != nil {
		w.connect(&c)
	}
	return c
}

// trace kills the actor that comes to dieAt, as a SIGKILL does. An actor is gone
// after that, so it comes there once.
func (w *world) trace(_ keep.WorkflowName, p engine.Point) {
	if w.passed != nil {
		w.passed(p)
	}
	if p != w.dieAt {
		return
	}
	w.mu.Lock()
	if w.alive--; w.alive == 0 {
		close(w.died)
	}
	w.mu.Unlock()
	runtime.Goexit()
}

func (w *world) database() database {
	w.t.Helper()
	switch {
	case w.db != nil:
	case w.path == "":
		w.db = w.mem
	default:
		db := sqlite.New(w.path, sqlite.Config{Host: true})
		if err := db.Open(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		w.db = db
	}
	return w.db
}

// close ends the host and closes the file.
func (w *world) close() {
	w.t.Helper()
	if w.stop != nil {
		w.stop()
		w.done.Wait()
		w.stop = nil
	}
	if w.host != nil {
		if err := w.host.Close(); err != nil {
			w.t.Errorf("close host: %v", err)
		}
		w.host = nil
	}
	if w.db == nil {
		return
	}
	w.check()
	if db, ok := w.db.(*sqlite.DB); ok {
		if _, err := os.Stat(w.path); err != nil {
			w.t.Errorf("the file went before the world: %v", err)
		}
		if err := db.Close(); err != nil {
			w.t.Errorf("close database: %v", err)
		}
	}
	w.db = nil
}

// start runs the host until close.
func (w *world) start() {
	w.t.Helper()
	h := w.open()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.stop = stop
	w.done.Go(func() {
		if err := h.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// idle waits until the running host is idle.
func (w *world) idle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), w.limit)
	defer cancel()
	if err := w.host.WaitIdle(ctx); err != nil {
		w.t.Fatalf("not idle: %v", err)
	}
}

// run runs a host until it is idle, and ends it.
func (w *world) run() {
	w.t.Helper()
	w.start()
	w.idle()
	w.close()
}

// load reads a script.
func (w *world) load(source string) (*host.Workflow, error) {
	w.t.Helper()
	b, err := sandbox.BuildSource("w.js", []byte(source))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.open().LoadBundle(w.t.Context(), b)
}

// deploy deploys a script.
func (w *world) deploy(source string) keep.Version {
	w.t.Helper()
	wf, err := w.load(source)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, source)
	}
	v, err := w.open().Deploy(w.t.Context(), wf)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// commit makes changes as another part of the system would.
func (w *world) commit(wf keep.WorkflowName, changes ...keep.Change) {
	w.t.Helper()
	if err := w.database().Commit(w.t.Context(), keep.Commit{Workflow: wf, At: now(), Changes: changes}); err != nil {
		w.t.Fatal(err)
	}
	if w.host != nil {
		w.host.Reload()
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// publish adds events to a topic, each with an input of its own.
func (w *world) publish(wf keep.WorkflowName, topic keep.TopicName, ids ...string) {
	w.t.Helper()
	var cs []keep.Change
	for _, id := range ids {
		in := keep.Input{ID: keep.InputID("in_" + string(wf) + "_" + id), Workflow: wf, Source: "test", Type: "event",
			ExternalID: id, Title: id, Status: keep.InputPending, CreatedAt: now()}
		cs = append(cs, keep.PutInput{Input: in}, keep.Publish{Event: keep.Event{
			Workflow: wf, Topic: topic, MessageID: keep.MessageID(id), Payload: []byte(`{"n":1}`),
			Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now(), UpdatedAt: now(),
		}})
	}
	w.commit(wf, cs...)
}

// consumed returns the changes of a run that consumed an event.
func consumed(wf keep.WorkflowName, topic keep.TopicName, id keep.MessageID) []keep.Change {
	run := keep.Run{ID: "run_before_" + keep.RunID(wf), Chain: "run_before_" + keep.RunID(wf), Workflow: wf, Version: keep.Version{Major: 1},
		Handler: "c", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true,
		Reservations: []keep.Reservation{{Topic: topic, IDs: []keep.MessageID{id}}}, CreatedAt: now(), UpdatedAt: now()}
	return []keep.Change{keep.PutRun{Run: run}, keep.Reserve{Chain: run.Chain, Reservation: run.Reservations[0]},
		keep.Finish{Chain: run.Chain, Status: keep.EventConsumed}}
}

// check fails the test if the database breaks a law.
func (w *world) check() {
	w.t.Helper()
	if c, ok := w.db.(interface {
		Check(context.Context) iter.Seq[error]
	}); ok {
		for err := range c.Check(context.WithoutCancel(w.t.Context())) {
			w.t.Errorf("Check: %v", err)
		}
	}
}

var all = keep.Page{Limit: keep.MaxPage}

// list returns what a list method returns, newest first.
func list[F, T any](w *world, f F, m func(database, context.Context, F, keep.Page) ([]T, string, error)) []T {
	w.t.Helper()
	got, _, err := m(w.database(), w.t.Context(), f, all)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) runs(wf keep.WorkflowName) []keep.Run {
	w.t.Helper()
	return list(w, keep.RunFilter{Workflow: wf}, database.Runs)
}

func (w *world) mutations(wf keep.WorkflowName) []keep.Mutation {
	w.t.Helper()
	return list(w, keep.MutationFilter{Workflow: wf}, database.Mutations)
}

func (w *world) events(wf keep.WorkflowName, topic keep.TopicName) []keep.Event {
	w.t.Helper()
	return list(w, keep.EventFilter{Workflow: wf, Topic: topic}, database.Events)
}

func (w *world) inputs(wf keep.WorkflowName) []keep.Input {
	w.t.Helper()
	return list(w, keep.InputFilter{Workflow: wf}, database.Inputs)
}

func (w *world) items(wf keep.WorkflowName) []keep.Item {
	w.t.Helper()
	return list(w, keep.ItemFilter{Workflow: wf}, database.Items)
}

func (w *world) questions(wf keep.WorkflowName) []keep.Escalation {
	w.t.Helper()
	return list(w, keep.EscalationFilter{Workflow: wf, Open: true}, database.Escalations)
}

// lastRun returns the newest run of a workflow.
func (w *world) lastRun(wf keep.WorkflowName) keep.Run {
	w.t.Helper()
	runs := w.runs(wf)
	if len(runs) == 0 {
		w.t.Fatalf("%s has no run", wf)
	}
	return runs[0]
}

// event returns an event; its zero value if there is none.
func (w *world) event(wf keep.WorkflowName, topic keep.TopicName, id string) keep.Event {
	w.t.Helper()
	got, err := w.database().EventsByID(w.t.Context(), wf, topic, []keep.MessageID{keep.MessageID(id)})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(got) == 0 {
		return keep.Event{}
	}
	return got[0]
}

// logs returns what all runs of a workflow logged, oldest first.
func (w *world) logs(wf keep.WorkflowName) []string {
	w.t.Helper()
	var lines []string
	runs := w.runs(wf)
	for i := range runs {
		got, err := w.database().Logs(w.t.Context(), runs[len(runs)-1-i].ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, l := range got {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// decide answers the only open question of a workflow.
func (w *world) decide(wf keep.WorkflowName, a keep.Action) error {
	w.t.Helper()
	qs := w.questions(wf)
	if len(qs) != 1 {
		w.t.Fatalf("%d open questions of %s, want 1", len(qs), wf)
	}
	return w.open().Decide(w.t.Context(), qs[0].ID, keep.Decision{Action: a, By: "ann", From: "test", Note: "looked"})
}
