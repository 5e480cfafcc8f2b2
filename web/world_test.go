package web_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/web"
)

// A world is a host with workflows that run, the service that they speak to, and
// the pages on a server of their own.
type world struct {
	replays replayer
	bench   *bench
	testing.TB
	desk     *desk
	db       database
	keys     idempotency.Store
	host     *host.Host
	conns    []connector.Connection
	site     *httptest.Server
	stopHost func() // ends what the host executes: records that a test makes up stay as they are
}

// sandboxes is one sandbox for all worlds: to open it is what costs.
var sandboxes = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// newWorld starts a world in which the workflows are deployed that scripts name.
func newWorld(tb testing.TB, scripts ...string) *world {
	tb.Helper()
	return newBoundedWorld(tb, nil, keep.Breaker{}, scripts...)
}

// newBoundedWorld starts a world with budgets, and with a breaker.
func newBoundedWorld(tb testing.TB, budgets []budget.Rule, stops keep.Breaker, scripts ...string) *world {
	tb.Helper()
	w := &world{TB: tb, desk: newDesk(tb)}
	ctx, stop := context.WithCancel(context.Background())
	w.open(ctx)
	rt, err := sandboxes()
	w.must(err)
	p := policy.Default()
	// What waits stays as it is, as long as a test looks at it.
	p.Retry.First, p.Retry.Max = time.Hour, time.Hour
	p.Reconcile.First, p.Reconcile.Max, p.Reconcile.Inline = time.Hour, time.Hour, 10*time.Second
	p.Breaker = stops
	quiet := slog.New(slog.DiscardHandler)
	w.conns = []connector.Connection{w.desk.connection(tb)}
	w.host, err = host.Open(ctx, w.db, host.Config{Connections: w.conns, Policy: &p, Budgets: budgets, Runtime: rt, Logger: quiet})
	w.must(err)
	w.bench = &bench{world: w}
	cfg := web.Config{Deployer: w.bench, Planner: w.bench, Store: w.db, Actor: w.host, Feed: w.host.Changes(), Connections: w.conns,
		Keys: idempotency.NewKeys(w.keys), Policy: &p, Budgets: w.host.Budgets, Replayer: &w.replays, Version: "test", Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))}
	w.serve(cfg)
	var running sync.WaitGroup
	tb.Cleanup(func() {
		w.site.CloseClientConnections() // streams do not end by themselves
		w.site.Close()
		stop()
		running.Wait()
		w.must(w.host.Close())
		for err := range w.db.Check(context.Background()) {
			tb.Error(err)
		}
		w.must(w.db.Close())
	})
	executing, stopExecuting := context.WithCancel(ctx)
	w.stopHost = func() {
		stopExecuting()
		running.Wait()
	}
	running.Go(func() {
		if err := w.host.Run(executing); err != nil {
			tb.Error(err)
		}
	})
	for _, s := range scripts {
		w.deploy(s)
	}
	return w
}

// A database is a store with all that the pages read and tests ask.
type database interface {
	host.Store
	store.Reader
	Check(ctx context.Context) iter.Seq[error]
	Close() error
}

// allOnPostgres runs every test of the pages on Postgres; see TestOnPostgres.
var allOnPostgres = flag.Bool("postgres", false, "run every test of the pages on a Postgres")

// open opens the database of a world: a file, or a schema of a real Postgres.
func (w *world) open(ctx context.Context) {
	w.Helper()
	if *allOnPostgres || strings.HasPrefix(w.Name(), "TestOnPostgres/") {
		url := pgtest.TablesURL(w, func(url string) error {
			db := postgres.New(url, postgres.Config{})
			return errors.Join(db.Open(ctx), db.Close())
		})
		db := postgres.New(url, postgres.Config{Host: true, Conns: 5})
		w.must(db.Open(ctx))
		w.db, w.keys = db, db.Keys()
		return
	}
	db := sqlite.New(filepath.Join(w.TempDir(), "keep.db"), sqlite.Config{Host: true})
	w.must(db.Open(ctx))
	w.db, w.keys = db, db.Keys()
}

// serve starts the pages. Who asks says so in a cookie, or is an operator called
// ada.
func (w *world) serve(cfg web.Config) {
	w.Helper()
	pages, err := web.New(cfg)
	w.must(err)
	w.site = httptest.NewServer(asSomebody(pages))
}

// shown returns a world of pages over a store that a test fills, without a host.
func shown(tb testing.TB, db *memory.Store) *world {
	tb.Helper()
	w := &world{TB: tb}
	actor, err := operator.New(db, operator.Config{})
	w.must(err)
	w.serve(web.Config{Store: db, Actor: actor, Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	tb.Cleanup(w.site.Close)
	return w
}

// asSomebody gives each request an identity.
func asSomebody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id := access.Identity{Name: "ada", Role: access.Operator, Via: access.ViaSession}
		if c, err := r.Cookie("who"); err == nil {
			id.Name = c.Value
		}
		if c, err := r.Cookie("role"); err == nil {
			id.Role = access.Role(c.Value)
		}
		if r.URL.Path == "/as" {
			http.SetCookie(rw, &http.Cookie{Name: "who", Value: r.FormValue("who"), Path: "/"})
			return
		}
		next.ServeHTTP(rw, r.WithContext(access.With(r.Context(), id)))
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// deploy makes a script of testdata current.
func (w *world) deploy(script string) {
	w.Helper()
	v, err := w.host.Load(w.Context(), "testdata", script)
	w.must(err)
	_, err = w.host.Deploy(w.Context(), v)
	w.must(err)
}

// settle waits until a workflow does not move by itself: its run waits, or there is
// none and nothing for one.
func (w *world) settle(name keep.WorkflowName) {
	w.Helper()
	w.until(string(name)+" does not move by itself", func() bool {
		open, err := w.db.OpenRuns(w.Context(), name)
		w.must(err)
		for _, r := range open {
			return r.Status != keep.StatusActive && (r.RetryAt.IsZero() || time.Until(r.RetryAt) > 0)
		}
		counts, err := w.db.TopicCounts(w.Context(), name)
		w.must(err)
		v := w.version(name)
		for _, c := range counts {
			for _, h := range v.Definition.Handlers {
				// A reserved one is of a run that began after OpenRuns was read.
				if c.Pending+c.Reserved > 0 && slices.Contains(h.Subscribe, c.Topic) {
					return false
				}
			}
		}
		return true
	})
}

// version returns the current version of a workflow.
func (w *world) version(name keep.WorkflowName) keep.Deployment {
	w.Helper()
	all, err := w.db.Deployments(w.Context(), name)
	w.must(err)
	return all[0]
}

// until waits for a fact of the store.
func (w *world) until(what string, fact func() bool) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !fact(); <-tick.C {
		if time.Now().After(deadline) {
			open, _, err := w.db.Runs(w.Context(), keep.RunFilter{Open: true}, keep.Page{})
			for _, r := range open {
				w.Logf("open: %s of %s, %s: %v", r.Handler, r.Workflow, r.Status, r.Error)
			}
			w.Fatalf("waited a minute until %s (%v)", what, err)
		}
	}
}

// ran returns the last run of a handler.
func (w *world) ran(name keep.WorkflowName, h keep.HandlerName) keep.RunID {
	w.Helper()
	states, err := w.db.Handlers(w.Context(), name)
	w.must(err)
	for _, s := range states {
		if s.Handler == h {
			return s.LastRun
		}
	}
	return ""
}

// began waits until a handler has run for the first time.
func (w *world) began(name keep.WorkflowName, h keep.HandlerName) {
	w.Helper()
	w.until(fmt.Sprintf("%s of %s ran", h, name), func() bool { return w.ran(name, h) != "" })
	w.settle(name)
}

// trigger runs a producer or job now, and waits until it is over.
func (w *world) trigger(name keep.WorkflowName, h keep.HandlerName) {
	w.Helper()
	before := w.ran(name, h)
	w.until(string(name)+" is free", func() bool { // it may look once more for events
		err := w.host.Trigger(w.Context(), name, h, keep.Decision{By: "ann"})
		if !errors.Is(err, keep.ErrRunOpen) {
			w.must(err)
		}
		return err == nil
	})
	w.until(fmt.Sprintf("%s of %s ran again", h, name), func() bool { return w.ran(name, h) != before })
	w.settle(name)
}

// questions returns the open questions, newest first.
func (w *world) questions() []keep.Escalation {
	w.Helper()
	qs, _, err := w.db.Escalations(w.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	w.must(err)
	return qs
}

// question waits for the open question of a workflow.
func (w *world) question(name keep.WorkflowName) keep.Escalation {
	w.Helper()
	var found keep.Escalation
	w.until("a question of "+string(name)+" is open", func() bool {
		for _, q := range w.questions() {
			if q.Workflow == name {
				found = q
				return true
			}
		}
		return false
	})
	return found
}

// A client is somebody with a browser that keeps cookies and knows no JavaScript.
type client struct {
	*world
	http *http.Client
}

// as returns a client that is somebody with a role.
func (w *world) as(name string, role access.Role) *client {
	w.Helper()
	jar, err := cookiejar.New(nil)
	w.must(err)
	u, err := url.Parse(w.site.URL)
	w.must(err)
	jar.SetCookies(u, []*http.Cookie{{Name: "who", Value: name}, {Name: "role", Value: string(role)}})
	return &client{w, &http.Client{Jar: jar, Timeout: time.Minute}}
}

// An answer is a response that was read.
type answer struct {
	status int
	header http.Header
	path   string // after redirects, with its query
	body   string
}

func (c *client) read(res *http.Response, err error) answer {
	c.Helper()
	c.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	c.must(err)
	return answer{res.StatusCode, res.Header, res.Request.URL.RequestURI(), string(body)}
}

func (c *client) get(path string) answer {
	c.Helper()
	return c.read(c.http.Get(c.site.URL + path))
}

// post sends a form and follows where it leads.
func (c *client) post(path string, pairs ...string) answer {
	c.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return c.read(c.http.PostForm(c.site.URL+path, form))
}

// want checks the status of an answer, and what it says.
func (a answer) want(tb testing.TB, status int, says ...string) {
	tb.Helper()
	if a.status != status {
		tb.Errorf("%s: status %d, want %d:\n%.3000s", a.path, a.status, status, a.body)
	}
	for _, s := range says {
		if !strings.Contains(a.body, s) {
			_, page, _ := strings.Cut(a.body, `<main id="main"`)
			page, _, _ = strings.Cut(page, "</main>")
			tb.Errorf("%s does not say %q:\n%.3000s", a.path, s, page)
		}
	}
}

// inputOf returns an input that a question is about.
func (w *world) inputOf(q keep.Escalation) keep.InputID {
	w.Helper()
	r, err := w.db.Run(w.Context(), q.Run)
	w.must(err)
	ids, err := w.db.Causes(w.Context(), r.Chain)
	w.must(err)
	if len(ids) == 0 {
		w.Fatalf("question %s is about no input", q.ID)
	}
	return ids[0]
}

func keepNow() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// lateInput is an input that comes in after something was planned.
func lateInput() []keep.Change {
	now := keepNow()
	id := keep.InputID(keep.NewID("in", now.Add(time.Second), [10]byte{1}))
	return []keep.Change{
		keep.PutInput{Input: keep.Input{ID: id, Workflow: "mails", Source: "desk", Type: "mail", ExternalID: "late", Title: "Invoice, late",
			Status: keep.InputPending, CreatedAt: now}},
		keep.Publish{Event: keep.Event{Workflow: "mails", Topic: "mail.received", MessageID: "late", Payload: []byte(`{}`),
			Status: keep.EventPending, CausedBy: []keep.InputID{id}, CreatedAt: now, UpdatedAt: now}},
	}
}

var hiddenFields = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// formOf returns the hidden fields of a page, as a browser would send them.
func formOf(tb testing.TB, body string) []string {
	tb.Helper()
	var pairs []string
	for _, m := range hiddenFields.FindAllStringSubmatch(body, -1) {
		pairs = append(pairs, m[1], html.UnescapeString(m[2]))
	}
	if len(pairs) == 0 {
		tb.Fatalf("no form in\n%s", body)
	}
	return pairs
}
