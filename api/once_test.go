package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// A dying actor is that of a process which dies before or after it did what it was asked: it never comes back.
type dying struct {
	api.Actor
	after   bool
	reached chan struct{}
	end     chan struct{}
}

func (d *dying) die(do func() error) error {
	if d.after {
		if err := do(); err != nil {
			return err
		}
	}
	close(d.reached)
	<-d.end
	panic(http.ErrAbortHandler)
}

func (d *dying) Publish(ctx context.Context, p operator.Publication) (ev keep.Event, created bool, err error) {
	return ev, false, d.die(func() error { _, _, err := d.Actor.Publish(ctx, p); return err })
}

func (d *dying) Decide(ctx context.Context, id keep.EscalationID, dec keep.Decision) error {
	return d.die(func() error { return d.Actor.Decide(ctx, id, dec) })
}

func (d *dying) Pause(ctx context.Context, w keep.WorkflowName, dec keep.Decision) error {
	return d.die(func() error { return d.Actor.Pause(ctx, w, dec) })
}

// lose sends a request to a server that dies under it, and then the same again to w, with which that shared its store.
func lose(t *testing.T, after bool, path, body string) (*world, answer) {
	t.Helper()
	return loseThen(t, after, path, body, func(*world) {})
}

// withBudget returns a world in which somebody is asked about a budget, and its configuration.
func withBudget(t *testing.T, cfg *api.Config) *world {
	t.Helper()
	w := newWorld(t, func(c *api.Config) {
		o, err := operator.New(c.Store.(*memory.Store), operator.Config{Logger: slog.New(slog.DiscardHandler), Budgets: func() []budget.Rule {
			return []budget.Rule{{Name: "money", Limit: keep.AmountUnit, Per: time.Hour}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.Actor = o
		*cfg = *c
	})
	w.commit(keep.OpenEscalation{Escalation: keep.Escalation{ID: budget.QuestionID("money", 1), Kind: keep.AskBudget, Budget: "money", Workflow: "invoices", Run: "run_1",
		Question: "?", Choices: []keep.Choice{{Action: keep.Raise}, {Action: keep.Stop}}, CreatedAt: noon}})
	return w
}

// loseThen is lose with what others do before the repetition.
func loseThen(t *testing.T, after bool, path, body string, others func(*world)) (*world, answer) {
	t.Helper()
	var cfg api.Config
	w := withBudget(t, &cfg)
	d := &dying{Actor: cfg.Actor, after: after, reached: make(chan struct{}), end: make(chan struct{})}
	cfg.Actor = d
	old, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k1")
	r = r.WithContext(access.With(r.Context(), access.Identity{Name: "ann", Role: access.Admin, Via: access.ViaToken}))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		old.ServeHTTP(httptest.NewRecorder(), r)
	})
	t.Cleanup(func() {
		close(d.end)
		wg.Wait()
	})
	<-d.reached
	others(w)
	return w, w.ask("ann admin", "POST", path, body, "Idempotency-Key", "k1")
}

// What names what it makes or ends is executed again, at once, where a process died at it: nobody is asked.
func TestRepeatedAfterACrash(t *testing.T) {
	const event = `{"message_id": "m7", "payload": 1}`
	for name, c := range map[string]struct {
		after      bool
		path, body string
		status     int
		part       string
	}{
		"event that was not made": {false, topicEvents, event, 201, `"message_id":"m7"`},
		"event that was made":     {true, topicEvents, event, 200, `"message_id":"m7"`},
		"decision":                {false, api.Prefix + "/escalations/esc_1/decision", `{"action":"skip"}`, 200, `"action":"skip"`},
		"decision that was taken": {true, api.Prefix + "/escalations/esc_1/decision", `{"action":"skip"}`, 200, `"action":"skip"`},
		"result that was said":    {true, api.Prefix + "/escalations/esc_1/decision", `{"action":"happened","result":{"b": 2, "id": 9007199254740993}}`, 200, `"action":"happened"`},
		"raise that was given":    {true, api.Prefix + "/escalations/esc_budget_money_1/decision", `{"action":"raise","limit":5,"until":"2999-01-01T00:00:00.123456789Z"}`, 200, `"action":"raise"`},
	} {
		w, got := lose(t, c.after, c.path, c.body)
		if got.Status != c.status || !strings.Contains(got.Body, c.part) {
			t.Errorf("%s: %d %s, want %d with %s", name, got.Status, got.Body, c.status, c.part)
		}
		if list := w.ask("ann viewer", "GET", api.Prefix+"/keys?state=in_progress", ""); !strings.Contains(list.Body, `"items":[]`) {
			t.Errorf("%s: keys in progress: %s", name, list.Body)
		}
	}
}

// Whether a workflow was paused may have changed since: of that nobody knows, and the answer says where it is told.
func TestUnknownAfterACrash(t *testing.T) {
	w, got := lose(t, true, api.Prefix+"/workflows/invoices/pause", "{}")
	got.want(t, 409, "in-progress")
	var p struct{ Instance string }
	if err := json.Unmarshal([]byte(got.Body), &p); err != nil {
		t.Fatal(err)
	}
	w.ask("ann viewer", "GET", p.Instance, "").want(t, 200, `"state":"in_progress"`, `"path":"/api/v1/workflows/invoices/pause"`)
}

// To stop answers nothing for good: the workflow may have been resumed since, and is not paused once more unawares.
func TestStopIsRepeatedAsAPause(t *testing.T) {
	w, got := lose(t, true, api.Prefix+"/escalations/esc_budget_money_1/decision", `{"action":"stop"}`)
	got.want(t, 409, "in-progress")
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"paused":true`)
}

// An answer of the same person with the same action is another one if it has another result or limit.
func TestAnotherAnswerIsNotTaken(t *testing.T) {
	for path, c := range map[string]struct{ lost, taken string }{
		"/escalations/esc_1/decision":              {`{"action":"happened","result":{"id":9007199254740993}}`, `{"action":"happened","result":{"id":9007199254740992}}`},
		"/escalations/esc_budget_money_1/decision": {`{"action":"raise","limit":5}`, `{"action":"raise","limit":6}`},
	} {
		_, got := loseThen(t, false, api.Prefix+path, c.lost, func(w *world) { w.ask("ann admin", "POST", api.Prefix+path, c.taken).want(t, 200) })
		got.want(t, 409, "decided", "already decided: ann")
	}
}

// A raise whose end is the zero time, as programs send that forgot to set it, is not one without an end.
func TestRaiseUntilNoTime(t *testing.T) {
	w := withBudget(t, new(api.Config))
	w.ask("ann admin", "POST", api.Prefix+"/escalations/esc_budget_money_1/decision", `{"action":"raise","limit":5,"until":"0001-01-01T00:00:00Z"}`).want(t, 422, "limit-needed", "over")
	w.ask("ann viewer", "GET", api.Prefix+"/escalations/esc_budget_money_1", "").want(t, 200, `"decision":null`)
}

// A refusal is about the moment: what was not done is done under the same key once it can be.
func TestRefusalsHoldNoKey(t *testing.T) {
	w := newWorld(t, nil)
	ask := func(path, body string) answer {
		return w.ask("ann operator", "POST", api.Prefix+path, body, "Idempotency-Key", "k1")
	}
	const later = "/workflows/invoices/topics/later/events"
	ask(later, `{"payload": 1}`).want(t, 404, "not-found")
	d := fullDeployment
	d.Code, d.Version.Minor = []byte("x"), d.Version.Minor+1
	d.Definition.Topics = append(slices.Clone(d.Definition.Topics), "later")
	w.commit(keep.Deploy{Deployment: d})
	if got := ask(later, `{"payload": 1}`); got.Status != 201 {
		t.Errorf("once the topic is there: %d %s", got.Status, got.Body)
	}
	for path, c := range map[string]struct {
		body   string
		status int
	}{
		"/workflows/invoices/trigger":    {`{"handler":"poll"}`, 409},
		"/workflows/invoices/events":     {``, 405},
		"/workflows/invoices/pause":      {`{"typo":1}`, 422},
		"/workflows/invoices/resume":     {`{`, 400},
		"/escalations/esc_1/decision":    {`{"action":"approve"}`, 409},
		"/workflows/invoices/items/redo": {`{}`, 405},
		"/workflows/invoices/nothing":    {`{}`, 404},
	} {
		for range 2 {
			got := w.ask("ann operator", "POST", api.Prefix+path, c.body, "Idempotency-Key", path)
			if got.Status != c.status || got.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: %d %v %s, want %d again", path, got.Status, got.Header, got.Body, c.status)
			}
		}
	}
}

// Who renewed a token and repeats what the old one sent gets no second effect, and no answer of the other; another person's
// key is another one, and so is that of a refusal.
func TestKeyOfARenewedToken(t *testing.T) {
	w := newWorld(t, nil)
	ask := func(as, token, path, body string) answer {
		return w.ask(as, "POST", path, body, "Idempotency-Key", "k1", "Token", token)
	}
	const pause = api.Prefix + "/workflows/invoices/pause"
	ask("ann operator", "tok_1", pause, `{"note":"mine"}`).want(t, 200, `"paused":true`)
	w.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/resume", "").want(t, 200)
	renewed := ask("ann operator", "tok_2", pause, `{"note":"mine"}`)
	renewed.want(t, 409, "caller-changed", "/api/v1/keys/key_")
	if strings.Contains(renewed.Body, "paused") {
		t.Errorf("the renewed token sees %s", renewed.Body)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"paused":false`)
	ask("ann operator", "tok_2", pause, `{"note":"another"}`).want(t, 200, `"paused":true`)
	ask("bob operator", "tok_3", pause, `{"note":"mine"}`).want(t, 200, `"paused":true`)

	ask("ann operator", "tok_1", topicEvents, `{"message_id":"m7","payload":1}`).want(t, 422, "key-reused")
	event := func(token string) answer {
		return w.ask("ann operator", "POST", topicEvents, `{"message_id":"m7","payload":1}`, "Idempotency-Key", "k2", "Token", token)
	}
	event("tok_1").want(t, 201)
	event("tok_2").want(t, 200, `"m7"`) // it names itself

	ask("ann operator", "tok_1", api.Prefix+"/workflows/none/pause", "").want(t, 422)
	for _, token := range []string{"tok_1", "tok_2"} {
		w.ask("ann operator", "POST", api.Prefix+"/workflows/none/pause", "", "Idempotency-Key", "k3", "Token", token).want(t, 404, "not-found")
	}
}

// stumbling fails at the second input that it skips.
type stumbling struct {
	api.Actor
	skipped int
	err     error
}

func (s *stumbling) SkipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (operator.SkipResult, error) {
	if s.skipped++; s.skipped == 2 {
		return operator.SkipResult{}, s.err
	}
	return s.Actor.SkipInput(ctx, w, id, d)
}

// What fails in the middle of a list is not said to be nothing: its key is not free.
func TestHalfAListHoldsItsKey(t *testing.T) {
	var s *stumbling
	w := newWorld(t, func(c *api.Config) {
		s = &stumbling{Actor: c.Actor, err: keep.ErrNotFound}
		c.Actor = s
	})
	for range 2 {
		w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"ids":["in_1","in_1"]}`, "Idempotency-Key", "k1").want(t, 500, "the first 1 of the list were gone through")
	}
	if s.skipped != 2 {
		t.Errorf("%d inputs were skipped under one key, want 2", s.skipped)
	}
	s.skipped, s.err = 0, errors.New("dial tcp 10.0.0.5:5432: user keep_admin")
	got := w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"ids":["in_1","in_1"]}`)
	if got.want(t, 500, "the first 1 of the list were gone through", "its log says why"); strings.Contains(got.Body, "10.0.0.5") {
		t.Errorf("what only the log may say: %s", got.Body)
	}
}

// The history of a workflow says who paused it and resumed it, when, from where and why; a request that is repeated under its key, and one
// that changes nothing, is not there twice. Lists leave it out.
func TestWhoPaused(t *testing.T) {
	w := newWorld(t, nil)
	const path = api.Prefix + "/workflows/invoices"
	for _, c := range []struct{ who, path, body, key string }{
		{"ann operator", "/pause", `{"note":"it pays twice"}`, "k1"},
		{"ann operator", "/pause", `{"note":"it pays twice"}`, "k1"},
		{"bob operator", "/pause", `{"note":"it pays twice"}`, ""},
		{"bob operator", "/resume", `{"note":"it is mended"}`, ""},
		{"bob operator", "/resume", ``, ""},
	} {
		header := []string{}
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key}
		}
		if got := w.ask(c.who, "POST", path+c.path, c.body, header...); got.Status != 200 {
			t.Fatalf("%s: %d %s", c.path, got.Status, got.Body)
		}
	}
	got, err := api.ShowWorkflow(t.Context(), w.store, "invoices")
	if err != nil || len(got.History) != 2 {
		t.Fatalf("history: %+v, %v, want a pause and a resume", got.History, err)
	}
	for i, want := range []struct {
		what     keep.Action
		by, note string
	}{{keep.Pause, "ann", "it pays twice"}, {keep.Resume, "bob", "it is mended"}} {
		if h := got.History[i]; h.What != want.what || h.By != want.by || h.From != "api" || h.Note == nil || *h.Note != want.note || time.Time(h.At).IsZero() || h.Handler != nil {
			t.Errorf("history has %+v, want %+v", h, want)
		}
	}
	if list := w.ask("ann viewer", "GET", api.Prefix+"/workflows", ""); strings.Contains(list.Body, "history") {
		t.Errorf("the list has it: %s", list.Body)
	}
}
