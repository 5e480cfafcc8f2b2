package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// A world is a server with a store behind it.
type world struct {
	t       testing.TB
	store   *memory.Store
	engine  *operator.Operator
	changes *feed.Feed
	server  *httptest.Server

	following atomic.Int64 // requests for /events that are under way
}

// told publishes what is committed, as a host does.
type told struct {
	*memory.Store
	changes *feed.Feed
}

func (s told) Commit(ctx context.Context, c keep.Commit) error {
	err := s.Store.Commit(ctx, c)
	s.changes.Publish(feed.Of(c))
	return err
}

// newWorld returns a server over a store with one of everything. Who sends a
// request says so in the header As: a name and a role.
func newWorld(t testing.TB, change func(*api.Config)) *world {
	t.Helper()
	w := &world{t: t, store: memory.New(), changes: feed.New(64)}
	var err error
	w.engine, err = operator.New(told{w.store, w.changes}, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := api.Config{Store: w.store, Actor: w.engine, Changes: w.changes, Keys: new(memory.Keys), Access: w.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	s, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.Prefix+"/events" {
			w.following.Add(1)
			defer w.following.Add(-1)
		}
		if name, role, ok := strings.Cut(r.Header.Get("As"), " "); ok {
			r = r.WithContext(access.With(r.Context(), access.Identity{Name: name, Role: access.Role(role), Via: access.ViaToken, ID: r.Header.Get("Token")}))
		}
		s.ServeHTTP(rw, r)
	}))
	w.server.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if tcp, ok := c.(*net.TCPConn); ok && s == http.StateNew {
			tcp.SetWriteBuffer(16 << 10) // little, so that who does not read is found out
		}
	}
	w.server.Start()
	t.Cleanup(w.server.Close)
	w.populate()
	return w
}

func (w *world) commit(changes ...keep.Change) {
	w.t.Helper()
	if err := w.store.Commit(context.Background(), keep.Commit{Workflow: "invoices", At: noon, Changes: changes}); err != nil {
		w.t.Fatal(err)
	}
}

// populate makes a workflow whose run asks whether a call happened.
func (w *world) populate() {
	w.t.Helper()
	run, m, d := fullRun, fullMutation, fullDeployment
	d.Code = []byte("x")
	run.Chain, run.ID, run.RetryOf, run.Status, run.Rev, run.Error = "run_1", "run_1", "", keep.StatusReconciliation, 0, nil
	run.Reservations = []keep.Reservation{{Topic: "email.received", IDs: []keep.MessageID{"m1"}}}
	m.Run, m.State, m.Result, m.ResolvedBy, m.Rev, m.Item, m.Attempt = run.ID, keep.Indeterminate, nil, "", 0, "", 0
	q := fullEscalation
	q.Run, q.ClosedAt, q.Decision, q.Item = run.ID, time.Time{}, nil, ""
	q.Choices = []keep.Choice{{Action: keep.Skip, Label: "Skip", Effect: "continues"}, {Action: keep.DidNotHappen, Label: "No", Effect: "sends"},
		{Action: keep.Happened, Label: "Yes", Effect: "continues", Result: keep.ResultRequired}}
	event := fullEvent
	event.ReservedBy, event.Seq = "", 0
	free := event
	free.MessageID = "m2"
	w.commit(keep.Deploy{Deployment: d}, keep.PutInput{Input: fullInput}, keep.Publish{Event: event}, keep.Publish{Event: free},
		keep.PutRun{Run: run}, keep.Reserve{Chain: run.Chain, Reservation: run.Reservations[0]},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: noon, By: "call", To: keep.InFlight}, {At: noon, By: "call", From: keep.InFlight, To: keep.Indeterminate}}},
		keep.OpenEscalation{Escalation: q},
		keep.PutNotice{Notice: keep.Notice{Escalation: q.ID, Sink: "webhook", Status: keep.NoticeGivenUp, Attempts: 2, Error: "refused", UpdatedAt: noon}},
		keep.AppendLogs{Lines: []keep.LogLine{{Run: run.ID, At: noon, Level: "log", Text: "hi"}}})
	for i, status := range []keep.ItemStatus{keep.ItemDone, keep.ItemFailed} {
		it := fullItem
		it.ID, it.Status, it.Rev = fmt.Sprint("invoice:", i), status, 0
		w.commit(keep.PutItem{Item: it})
	}
	for _, h := range d.Definition.Handlers {
		w.commit(keep.PutHandler{State: keep.HandlerState{Workflow: "invoices", Handler: h.Name, Kind: h.Kind}})
	}
}

// An answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// ask sends a request as somebody. A body is sent as JSON.
func (w *world) ask(as, method, path, body string, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if as != "" {
		r.Header.Set("As", as)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// want fails the test if the answer is not of that status, or lacks a part.
func (a answer) want(t testing.TB, status int, parts ...string) {
	t.Helper()
	if a.Status != status {
		t.Errorf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	for _, part := range parts {
		if !strings.Contains(a.Body, part) {
			t.Errorf("%s\nlacks %q", a.Body, part)
		}
	}
	if a.Status >= 400 && a.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("an error of type %q, want a problem", a.Header.Get("Content-Type"))
	}
}

// Each object is what ShowX and the golden files have.
func TestReads(t *testing.T) {
	w := newWorld(t, nil)
	for path, parts := range map[string][]string{
		"/whoami":                {`"name":"ann"`, `"role":"viewer"`, `"now":"`},
		"/runs":                  {`"id":"run_1"`, `"next":null`, `"prepared":null`},
		"/runs?full=true":        {`"prepared":{"data":{"b":1,"a":2}}`},
		"/runs?status=committed": {`"items":[]`},
		"/runs?since=2020-01-01&until=2099-01-01T12:00&handler=addRow": {`"id":"run_1"`},
		"/runs?until=2020-01-01":                              {`"items":[]`},
		"/runs/counts?since=2020-01-01":                       {`"total":1`},
		"/runs?error=nothing":                                 {`"items":[]`},
		"/mutations?since=2020-01-01":                         {`"key":"mut_1"`},
		"/inputs?until=2020-01-01":                            {`"items":[]`},
		"/items?since=2099-01-01":                             {`"items":[]`},
		"/topics/events?since=2099-01-01":                     {`"items":[]`},
		"/runs/counts":                                        {`"total":1`, `"paused:reconciliation":1`},
		"/runs/run_1":                                         {`"waits_for":"`, `"trigger":{"topic":"email.received"`},
		"/runs/run_1/logs":                                    {`"text":"hi"`},
		"/mutations?q=create":                                 {`"key":"mut_1"`, `"payload":null`},
		"/mutations?q=nothing":                                {`"items":[]`},
		"/mutations/counts?workflow=invoices&q=cre":           {`"by":{"indeterminate":1}`},
		"/mutations/mut_1":                                    {`"history":[{`, `"payload":{"id":1,"name":"Ada"}`},
		"/inputs?q=alice":                                     {`"title":"Email from alice"`, `"outputs":["mut_1"]`},
		"/inputs/counts":                                      {`"pending":1`},
		"/inputs/in_1":                                        {`"external_id":"`},
		"/items?status=failed":                                {`"id":"invoice:1"`},
		"/items/counts":                                       {`"total":2`},
		"/workflows/invoices/items/invoice:1":                 {`"attempt":2`},
		"/workflows/invoices/items/invoice%3A1":               {`"attempt":2`},
		"/escalations":                                        {`"id":"esc_1"`, `"actions":[{"action":"skip"`},
		"/escalations/counts":                                 {`"unknown_outcome":1`},
		"/escalations?since=2020-01-01&q=happen":              {`"items":[{"id":"esc_1"`},
		"/escalations?q=nobody":                               {`{"items":[],"next":null}`},
		"/escalations?until=2020-01-01":                       {`{"items":[],"next":null}`},
		"/escalations/counts?q=happen":                        {`{"total":1,"by":{"unknown_outcome":1}}`},
		"/escalations/counts?until=2020-01-01":                {`{"total":0,"by":{}}`},
		"/escalations/esc_1":                                  {`"decision":null`},
		"/workflows":                                          {`"name":"invoices"`},
		"/workflows/invoices":                                 {`"version":"1.2"`},
		"/workflows/invoices/versions":                        {`"hash":"abc"`},
		"/workflows/invoices/topics":                          {`"pending":1`, `"reserved":1`},
		"/workflows/invoices/events?status=pending":           {`"message_id":"m2"`},
		"/workflows/invoices/topics/email.received/events/m1": {`"payload":{"x":1}`},
		"/workflows/invoices/topics/email.received":           {`"pending":1`, `"oldest":[{`, `"message_id":"m2","payload":null`},
		"/topics":                      {`"topic":"email.received","pending":1`},
		"/topics/events?input=in_1":    {`"message_id":"m1"`, `"message_id":"m2"`},
		"/topics/events?workflow=none": {`"items":[]`},
		"/escalations/esc_1/notices":   {`"items":[{"sink":"webhook","status":"given_up","attempts":2,`},
		"/status":                      {`"needs_you":[{"id":"esc_1"`, `"not_told":[{"question":"esc_1","sink":"webhook"`, `"failing":[]`},
		"/hosts":                       {`"items":[]`},
		"/keys?state=done":             {`"items":[]`},
		"/openapi.json":                {`"openapi": "3.1.0"`},
		"/docs":                        {"<h1>The API of Keep"},
	} {
		w.ask("ann viewer", "GET", api.Prefix+path, "").want(t, 200, parts...)
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t, nil)
	var page api.Page[api.Item]
	a := w.ask("ann viewer", "GET", api.Prefix+"/items?limit=1", "")
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Items) != 1 || page.Next == nil {
		t.Fatalf("first page: %v: %s", err, a.Body)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/items?limit=1&cursor="+*page.Next, "").want(t, 200, `"next":null`, `"id":"invoice:0"`)
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct {
		as, method, path, body string
		status                 int
		part                   string
	}{
		{"", "GET", "/runs", "", 401, "keep token add"},
		{"ann viewer", "POST", "/workflows/invoices/pause", "", 403, "needs operator"},
		{"ann operator", "PUT", "/workflows/invoices", `{"file":"a.js","source":"x"}`, 403, "needs author"},
		{"ann root", "GET", "/runs", "", 403, "root"},
		{"ann viewer", "GET", "/runs/none", "", 404, "none"},
		{"ann viewer", "GET", "/nothing", "", 404, "/api/v1/docs"},
		{"ann viewer", "GET", "/runs?limit=0", "", 422, "query.limit"},
		{"ann author", "POST", "/workflows/invoices/compare", `{}`, 422, "problems/ambiguous"},
		{"ann author", "POST", "/workflows/invoices/compare", `{"from":"1.0"}`, 422, "/api/v1/workflows/invoices/versions"},
		{"ann author", "POST", "/workflows/invoices/compare", `{"version":"2.0"}`, 501, "replays no runs"},
		{"ann viewer", "GET", "/runs?stauts=active", "", 422, "stauts"},
		{"ann viewer", "GET", "/runs?cursor=x", "", 400, "bad-cursor"},
		{"ann viewer", "GET", "/runs?since=yesterday", "", 422, "bad-time"},
		{"ann viewer", "GET", "/items/counts?since=2h&until=3h", "", 422, "is not before"},
		{"ann viewer", "GET", "/topics/events?until=soon", "", 422, "until: "},
		{"ann operator", "POST", "/workflows/none/pause", "", 404, "none"},
		{"ann operator", "POST", "/workflows/invoices/trigger", `{"handler":"poll"}`, 409, "run-open"},
		{"ann operator", "POST", "/workflows/invoices/trigger", `{"handler":"addRow"}`, 422, "consumer"},
		{"ann operator", "POST", "/workflows/invoices/trigger", `{}`, 422, "poll"},
		{"ann operator", "POST", "/escalations/esc_1/decision", `{"action":"approve"}`, 409, "choose from skip, did-not-happen, happened"},
		{"ann operator", "POST", "/escalations/none/decision", `{"action":"skip"}`, 404, "none"},
		{"ann operator", "POST", "/inputs/skip", `{}`, 422, "ids or a match"},
		{"ann operator", "POST", "/inputs/skip", `{"ids":["in_1"],"typo":1}`, 422, "typo"},
		{"ann author", "PUT", "/workflows/invoices", `{"file":"a.js","source":"x"}`, 501, "keep deploy"},
		{"ann viewer", "GET", "/workflows/invoices/topics/none", "", 404, "none"},
		{"ann viewer", "GET", "/escalations/none/notices", "", 404, "none"},
		{"ann viewer", "GET", "/keys/nonsense", "", 422, "not a reference"},
		{"ann viewer", "GET", "/keys/key_36aagtdmsnzqbd7rejge7z5zdv", "", 404, "no idempotency key"},
		{"ann viewer", "POST", "/keys/key_36aagtdmsnzqbd7rejge7z5zdv/forget", "", 403, "needs operator"},
		{"ann operator", "POST", "/hosts/a/drain", `{}`, 404, "no host"},
		{"ann author", "GET", "/tokens", "", 403, "needs admin"},
		{"ann author", "POST", "/tokens", `{}`, 403, "needs admin"},
		{"ann admin", "POST", "/tokens", `{"id":"short","hash":"x","name":"a","role":"viewer"}`, 422, "body.hash"},
		{"ann admin", "POST", "/tokens", `{"id":"abcdefghij","hash":"` + strings.Repeat("0", 64) + `","name":"` + strings.Repeat("é", 60) + `","role":"viewer"}`, 422, "120"},
		{"ann admin", "POST", "/tokens/none/revoke", "", 404, "none"},
	} {
		w.ask(tt.as, tt.method, api.Prefix+tt.path, tt.body).want(t, tt.status, tt.part)
	}
}

// What this API answered to an admin is kept for a repeat, and shown to admins alone.
func TestAnswersOfKeysAreForAdmins(t *testing.T) {
	w := newWorld(t, nil)
	w.ask("ann admin", "POST", api.Prefix+"/workflows/invoices/set-checkpoint", `{"handler":"poll","key":"cursor","value":"only admins see this","preview":true}`,
		"Idempotency-Key", `"k1"`).want(t, 200, "only admins see this")
	var keys struct{ Items []idempotency.View }
	list := w.ask("ann viewer", "GET", api.Prefix+"/keys", "")
	if err := json.Unmarshal([]byte(list.Body), &keys); err != nil || len(keys.Items) != 1 {
		t.Fatalf("keys: %v: %s", err, list.Body)
	}
	one := api.Prefix + "/keys/" + keys.Items[0].Reference
	w.ask("ann admin", "GET", one, "").want(t, 200, "only admins see this")
	if a := w.ask("ann author", "GET", one, ""); a.Status != 200 || strings.Contains(list.Body+a.Body, "only admins") {
		t.Errorf("an author sees %d %s", a.Status, a.Body)
	}
}

// A value of a checkpoint is changed as it was shown: what was set since stays.
func TestCheckpointAsItWasShown(t *testing.T) {
	w := newWorld(t, nil)
	set := func(more string) answer {
		return w.ask("ann admin", "POST", api.Prefix+"/workflows/invoices/set-checkpoint", `{"handler":"poll","key":"since",`+more+`}`)
	}
	seen := func(a answer) string {
		var c api.CheckpointChanged
		if err := json.Unmarshal([]byte(a.Body), &c); err != nil || a.Status != 200 || c.Seen == "" {
			t.Fatalf("%d %s: %v", a.Status, a.Body, err)
		}
		return c.Seen
	}
	unset := seen(set(`"value":1,"preview":true`))
	set(`"value":1,"seen":"`+unset+`"`).want(t, 200, `"now":1`)
	set(`"value":2,"seen":"`+unset+`"`).want(t, 409, "stale", "is not as it was shown")
	one := seen(set(`"value":2,"preview":true`))
	set(`"value":3`).want(t, 200, `"was":1`, `"now":3`) // whatever it is
	set(`"delete":true,"seen":"`+one+`"`).want(t, 409, "stale")
	w.ask("ann admin", "GET", api.Prefix+"/workflows/invoices/checkpoints/poll", "").want(t, 200, `"since":3`)
	set(`"delete":true,"seen":"`+seen(set(`"delete":true,"preview":true`))+`"`).want(t, 200, `"was":3`)
	w.ask("ann admin", "GET", api.Prefix+"/workflows/invoices/checkpoints/poll", "").want(t, 200, `"values":{}`)
}

// Of two people who decide at once one wins, and the other is told who and when.
func TestTwoDecideAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	answers := make([]answer, 2)
	var wg sync.WaitGroup
	for i, who := range []string{"ann operator", "bob operator"} {
		wg.Go(func() {
			answers[i] = w.ask(who, "POST", api.Prefix+"/escalations/esc_1/decision", `{"action":"skip","note":"looked"}`)
		})
	}
	wg.Wait()
	names := []string{"ann", "bob"}
	won := 0
	if answers[0].Status != 200 {
		won = 1
	}
	answers[won].want(t, 200, `"decision":{"action":"skip","by":"`+names[won]+`","from":"api","note":"looked","at":"20`)
	answers[1-won].want(t, 409, names[won]+" decided skip at 20", "problems/decided")
}

// What may send again says so, and is refused until it is confirmed.
func TestConfirmation(t *testing.T) {
	w := newWorld(t, nil)
	question := api.Prefix + "/escalations/esc_1"
	w.ask("ann viewer", "GET", question, "").want(t, 200,
		`{"action":"skip","label":"Skip","effect":"continues","confirm":false,"result":"none"}`,
		`{"action":"did-not-happen","label":"No","effect":"sends","confirm":true,"result":"none"}`)
	w.ask("ann operator", "POST", question+"/decision", `{"action":"did-not-happen"}`).want(t, 422,
		"problems/confirmation-needed", fullEscalation.Attempted)
	w.ask("ann viewer", "GET", question, "").want(t, 200, `"decision":null`)
	list := api.Prefix + "/escalations?all=true"
	w.ask("ann viewer", "GET", list, "").want(t, 200, `"decision":null`, `"closed_at":null`)
	closed := api.Prefix + "/escalations?closed=true"
	w.ask("ann viewer", "GET", closed, "").want(t, 200, `"items":[]`)
	w.ask("ann operator", "POST", question+"/decision", `{"action":"did-not-happen","confirm":true}`).want(t, 200, `"by":"ann"`)
	for _, list := range []string{list, closed} {
		w.ask("ann viewer", "GET", list, "").want(t, 200, `"decision":{"action":"did-not-happen","by":"ann","from":"api"`, `"closed_at":"20`)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/escalations", "").want(t, 200, `"items":[]`)
}

// A person says that a call happened, and with which result: null is one, nothing is not.
func TestHappened(t *testing.T) {
	for given, want := range map[string]string{`"result":{"id":7}`: `"result":{"id":7}`, `"result":null`: `"result":null`} {
		w := newWorld(t, nil)
		question := api.Prefix + "/escalations/esc_1"
		w.ask("ann viewer", "GET", question, "").want(t, 200, `{"action":"happened","label":"Yes","effect":"continues","confirm":false,"result":"required"}`)
		w.ask("ann operator", "POST", question+"/decision", `{"action":"happened"}`).want(t, 422, "problems/result-needed", "wanted is what crm.create would have answered")
		w.ask("ann operator", "POST", question+"/decision", `{"action":"skip","result":{}}`).want(t, 422, "problems/result-needed", "skip takes no result")
		w.ask("ann viewer", "GET", question, "").want(t, 200, `"decision":null`)
		w.ask("ann operator", "POST", question+"/decision", `{"action":"happened",`+given+`}`).want(t, 200, `"by":"ann"`)
		key := string(fullMutation.Key)
		w.ask("ann viewer", "GET", api.Prefix+"/mutations/"+key, "").want(t, 200, `"state":"applied"`, want, `"resolved_by":"ann"`)
	}
}

// A call that another run made already: the question says which, and what each answer does.
// To send again wants to be confirmed; a call in doubt cannot stand for another one.
func TestAlreadyDone(t *testing.T) {
	for _, action := range []keep.Action{keep.TreatAsDone, keep.DoAgain, keep.Skip} {
		for _, state := range []keep.MutationState{keep.Applied, keep.InFlight} {
			w := newWorld(t, nil)
			first, m := fullRun, fullMutation
			first.ID, first.Chain, first.RetryOf, first.Workflow, first.Rev, first.Mutation = "run_other", "run_other", "", "other", 0, "mut_other"
			first.Status, first.Closed, first.Reservations = keep.StatusReconciliation, state == keep.Applied, nil
			m.Key, m.Workflow, m.Run, m.Item, m.Attempt, m.Rev, m.State = first.Mutation, first.Workflow, first.ID, "", 0, 0, state
			moves := []keep.Move{{At: noon, By: "call", To: keep.InFlight}, {At: noon, By: "call", From: keep.InFlight, To: keep.Applied}}
			if state == keep.InFlight {
				m.Result, m.ResolvedBy, moves = nil, "", moves[:1]
			}
			run, q := fullRun, fullEscalation
			run.ID, run.Chain, run.RetryOf, run.Workflow, run.Rev, run.Mutation = "run_again", "run_again", "", "again", 0, ""
			run.Phase, run.Status, run.Reservations = keep.Prepared, keep.StatusPerson, nil
			q.ID, q.Kind, q.Workflow, q.Run, q.Mutation, q.Item = "esc_again", keep.AskAlreadyDone, run.Workflow, run.ID, m.Key, ""
			q.CanVerify, q.VerifyByHand, q.ClosedAt, q.Decision = false, "", time.Time{}, nil
			q.Choices = []keep.Choice{{Action: keep.TreatAsDone, Label: "Treat it as done", Effect: "sends nothing"},
				{Action: keep.DoAgain, Label: "Do it again", Effect: "makes this very call"}, {Action: keep.Skip, Label: "Skip", Effect: "gives up"}}
			for _, c := range []keep.Commit{
				{Workflow: first.Workflow, At: noon, Changes: []keep.Change{keep.PutRun{Run: first}, keep.PutMutation{Mutation: m, Moves: moves}}},
				{Workflow: run.Workflow, At: noon, Changes: []keep.Change{keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q}}},
			} {
				if err := w.store.Commit(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			question := api.Prefix + "/escalations/esc_again"
			w.ask("ann viewer", "GET", question, "").want(t, 200, `"kind":"already_done"`, `"mutation":"mut_other"`,
				`{"action":"treat-as-done","label":"Treat it as done","effect":"sends nothing","confirm":false,"result":"none"}`,
				`{"action":"do-again","label":"Do it again","effect":"makes this very call","confirm":true,"result":"none"}`,
				`{"action":"skip","label":"Skip","effect":"gives up","confirm":false,"result":"none"}`)
			body := `{"action":"` + string(action) + `"}`
			if action == keep.DoAgain {
				w.ask("ann operator", "POST", question+"/decision", body).want(t, 422, "problems/confirmation-needed", q.Attempted)
				w.ask("ann viewer", "GET", question, "").want(t, 200, `"decision":null`)
				body = `{"action":"do-again","confirm":true}`
			}
			if action == keep.TreatAsDone && state == keep.InFlight {
				w.ask("ann operator", "POST", question+"/decision", body).want(t, 409, "mut_other is in_flight")
				w.ask("ann viewer", "GET", question, "").want(t, 200, `"decision":null`)
				continue
			}
			w.ask("ann operator", "POST", question+"/decision", body).want(t, 200, `"decision":{"action":"`+string(action)+`","by":"ann"`)
		}
	}
}

func TestSkips(t *testing.T) {
	w := newWorld(t, nil)
	events := api.Prefix + "/workflows/invoices/topics/email.received/skip"
	w.ask("ann operator", "POST", events, `{"ids":["m1","m2"],"preview":true}`).want(t, 200, `"preview":true,"skipped":1,"in_run":1`)
	w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"match":{"q":"ali"},"preview":true}`).want(t, 200, `"input":"in_1","preview":true,"skipped":1,"in_run":1`)
	w.ask("ann operator", "POST", events, `{"ids":["m2"],"note":"a duplicate"}`).want(t, 200, `"preview":false,"skipped":1`)
	w.ask("ann operator", "POST", events, `{"ids":["m2","none"]}`).want(t, 404, "none")
	w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"ids":["in_1"]}`).want(t, 200, `"skipped":0`, `"too_late":1`, `"finished":1`)
	for path, want := range map[string]string{
		"/workflows/invoices/topics/email.received/events/m2": `"by":"ann","from":"api","what":"skip","note":"a duplicate","input":null`,
		"/inputs/in_1": `"by":"ann","from":"api","what":"skip","note":null,"input":null`,
	} {
		w.ask("ann viewer", "GET", api.Prefix+path, "").want(t, 200, want)
	}
	items := api.Prefix + "/workflows/invoices/items/"
	body := `{"ids":["invoice:0","invoice:1"],"preview":true}`
	w.ask("ann operator", "POST", items+"skip", body).want(t, 200, `"done":false,"refused":"`, `{"id":"invoice:1","done":true,"refused":null,"status":"failed"}`)
	w.ask("ann operator", "POST", items+"reprocess", strings.Replace(body, "true", "false", 1)).want(t, 422, "confirmation-needed")
	w.ask("ann viewer", "GET", items+"invoice:0", "").want(t, 200, `"attempt":2`)
	w.ask("ann operator", "POST", items+"reprocess", `{"ids":["invoice:0","invoice:1"],"confirm":true}`).want(t, 200, `"id":"invoice:0","done":true`)
	w.ask("ann viewer", "GET", items+"invoice:0", "").want(t, 200, `"attempt":3`)
}

func TestPause(t *testing.T) {
	w := newWorld(t, nil)
	w.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/pause", "").want(t, 200, `"paused":true`)
	w.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/resume", "").want(t, 200, `"paused":false`)
}

// A POST with a key is done once, also when its answer was lost; another person's
// key is another one.
func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t, nil)
	decide := func(as, body string) answer {
		return w.ask(as, "POST", api.Prefix+"/escalations/esc_1/decision", body, "Idempotency-Key", `"k1"`)
	}
	first := decide("ann operator", `{"action":"skip"}`)
	first.want(t, 200)
	again := decide("ann operator", `{"action":"skip"}`)
	if again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repetition got %+v, want the first answer: %s", again, first.Body)
	}
	decide("ann operator", `{"action":"did-not-happen"}`).want(t, 422, "key-reused")
	decide("bob operator", `{"action":"skip"}`).want(t, 409, "ann decided")

	// Another token of the same name has its own keys.
	w.ask("ann operator", "POST", api.Prefix+"/escalations/esc_1/decision", `{"action":"skip"}`, "Idempotency-Key", `"k1"`, "Token", "tok_2").
		want(t, 409, "ann decided")

	bare := newWorld(t, func(c *api.Config) { c.Keys = nil })
	bare.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/pause", "", "Idempotency-Key", "k").want(t, 501, "keeps no idempotency keys")
}

// deployer takes every script that is not "broken". While it reads one that is
// "overtaken", somebody else deploys.
type deployer struct{ w *world }

func (d deployer) Deploy(ctx context.Context, name keep.WorkflowName, s api.Script, over *keep.Version, by operator.Giver, give bool) (operator.Deployed, error) {
	if strings.Contains(s.Source, "broken") {
		return operator.Deployed{}, &api.ScriptError{Mistakes: []api.Mistake{{File: s.File, Line: 1, Column: 2, Message: "no"}}}
	}
	deployment := fullDeployment
	deployment.Workflow, deployment.Code, deployment.Hash = name, []byte(s.Source), s.Source
	if strings.Contains(s.Source, "overtaken") {
		other := deployment
		other.Hash = "another"
		if _, err := d.w.engine.Deploy(ctx, other); err != nil {
			return operator.Deployed{}, err
		}
	}
	if strings.Contains(s.Source, "calls") {
		return d.w.engine.DeployGranted(ctx, deployment, over, operator.Consent{Giver: by, Calls: []keep.ToolName{"bank.pay"}, Give: give})
	}
	if over == nil {
		v, err := d.w.engine.Deploy(ctx, deployment)
		return operator.Deployed{Version: v}, err
	}
	v, err := d.w.engine.Replace(ctx, deployment, *over)
	if err == nil && strings.Contains(s.Source, "followed") {
		deployment.Hash = "another"
		_, err = d.w.engine.Deploy(ctx, deployment)
	}
	return operator.Deployed{Version: v}, err
}

func (d deployer) Propose(ctx context.Context, name keep.WorkflowName, s api.NewProposal, over *keep.Version, by operator.Giver) (operator.Deployed, error) {
	deployment := fullDeployment
	deployment.Workflow, deployment.Code, deployment.Hash, deployment.Definition.Writing = name, []byte(s.Source), s.Source, s.Writing()
	return d.w.engine.DeployGranted(ctx, deployment, over, operator.Consent{Giver: by, Ask: true, Calls: []keep.ToolName{"bank.pay"}})
}

// What is proposed waits for a person although it calls nothing that was not granted. The
// same again asks nothing new, and what is current is not proposed.
func TestPropose(t *testing.T) {
	d := &deployer{}
	w := newWorld(t, func(c *api.Config) { c.Deployer = d })
	d.w = w
	put := func(who, source string) answer {
		return w.ask(who, "PUT", api.Prefix+"/workflows/invoices/proposal", `{"file":"a.js","source":"`+source+`","note":"It pays.","tokens":7}`)
	}
	put("ann operator", "y").want(t, 403, "author")
	const waits = `"name":"invoices","version":"1.2","waiting":{"version":"2.0","proposal":"invoices@2.0","question":"esc_grant_invoices_2_0"}`
	put("ann author", "y").want(t, 202, waits)
	put("ann author", "y").want(t, 202, waits)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"1.2"`)
	w.ask("ann viewer", "GET", api.Prefix+"/escalations/esc_grant_invoices_2_0", "").want(t, 200, `"kind":"proposal"`, "call what it was not granted: bank.pay")
	const shown = `"id":"invoices@2.0","origin":"agent","workflow":"invoices","run":null,"base_version":"1.2","version":"2.0","state":"waiting","verdict":null`
	for _, query := range []string{"", "?workflow=invoices", "?origin=agent&status=waiting"} {
		w.ask("ann viewer", "GET", api.Prefix+"/proposals"+query, "").want(t, 200, shown, `"grants_added":["bank.pay"]`, `"note":"It pays."`, `"tokens":7`,
			`"proposed_by":"ann"`, `"question":"esc_grant_invoices_2_0"`, `"decided_by":null`)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?origin=repair", "").want(t, 200, `"items":[]`)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?status=active", "").want(t, 200, `"items":[]`)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?origin=x", "").want(t, 422)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals/invoices@2.0", "").want(t, 200, shown, `"source":"y"`, `"base_source":"x"`, `"- x"`, `"+ y"`)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals/invoices@9.0", "").want(t, 404, "no proposal")
	w.ask("ann author", "POST", api.Prefix+"/escalations/esc_grant_invoices_2_0/decision", `{"action":"approve"}`).want(t, 403, "admin")
	w.ask("eve admin", "POST", api.Prefix+"/escalations/esc_grant_invoices_2_0/decision", `{"action":"approve"}`).want(t, 200, `"id":"esc_grant_invoices_2_0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"2.0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals/invoices@2.0", "").want(t, 200, `"state":"active"`, `"question":null`, `"decided_by":"eve"`)
	put("ann author", "y").want(t, 200, `"version":"2.0"`)

	over := func(version string) answer {
		return w.ask("ann author", "PUT", api.Prefix+"/workflows/invoices/proposal", `{"file":"a.js","source":"z","over":"`+version+`"}`)
	}
	over("1.2").want(t, 409, "/stale", "is 2.0, not 1.2")
	over("").want(t, 409, "/stale", "is there already, in version 2.0")
	over("two").want(t, 400, "/bad-version")
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?status=waiting", "").want(t, 200, `"items":[]`)
	over("2.0").want(t, 202, `"proposal":"invoices@3.0"`)

	put("ann author", "z").want(t, 202, `"version":"2.0","waiting":{"version":"3.0","proposal":"invoices@3.0"`) // bank.pay is granted now
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"2.0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/proposals/invoices@3.0", "").want(t, 200, `"state":"waiting"`, `"grants_added":[]`)
	for i := range 99 {
		put("ann author", fmt.Sprint(i)).want(t, 202)
	}
	put("ann author", "more").want(t, 409, "/refused", "100 proposals of workflow invoices", "accept or reject the last one first")
}

// A script that calls more than is granted is stored, does not run, and asks an admin: the
// author's own token does not answer.
func TestDeployThatNeedsMore(t *testing.T) {
	d := &deployer{}
	w := newWorld(t, func(c *api.Config) { c.Deployer = d })
	d.w = w
	put := func(who, name string, more string, header ...string) answer {
		return w.ask(who, "PUT", api.Prefix+"/workflows/"+name, `{"file":"a.js","source":"calls"`+more+`}`, header...)
	}
	versions := func(name string) answer {
		return w.ask("ann viewer", "GET", api.Prefix+"/workflows/"+name+"/versions", "")
	}
	a := put("ann author", "invoices", `,"give":true`, "If-Match", "*") // an author gives nothing
	a.want(t, 202, `"name":"invoices","version":"1.2","waiting":{"version":"2.0","proposal":"invoices@2.0","question":"esc_grant_invoices_2_0"}`)
	if tag := a.Header.Get("ETag"); tag != `"1.2"` {
		t.Errorf("ETag = %s, want that of the version that continues", tag)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"1.2"`)
	versions("invoices").want(t, 200, `"version":"2.0","state":"waiting","question":"esc_grant_invoices_2_0"`, `"version":"1.2","state":"current"`)
	q := api.Prefix + "/escalations/esc_grant_invoices_2_0"
	w.ask("ann viewer", "GET", q, "").want(t, 200, `"kind":"grant"`, `"attempted":"+ bank.pay"`, `"action":"approve"`, `"action":"reject"`)
	for _, who := range []string{"ann author", "ann operator"} {
		w.ask(who, "POST", q+"/decision", `{"action":"approve"}`).want(t, 403, "admin")
	}
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"1.2"`)
	w.ask("ann admin", "POST", q+"/decision", `{"action":"approve"}`).want(t, 200)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"2.0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices/grant", "").want(t, 200, `"tool":"bank.pay"`, `"given_by":"ann"`)

	a = put("ann author", "fresh", "", "If-None-Match", "*")
	a.want(t, 202, `"name":"fresh","version":null,"waiting":{"version":"1.0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/fresh", "").want(t, 404)
	versions("fresh").want(t, 200, `"version":"1.0","state":"waiting"`)
	w.ask("ann admin", "POST", api.Prefix+"/escalations/esc_grant_fresh_1_0/decision", `{"action":"reject"}`).want(t, 200)
	versions("fresh").want(t, 200, `"version":"1.0","state":"rejected"`)
	put("ann admin", "fresh", `,"give":true`, "If-None-Match", "*").want(t, 200, `"version":"2.0"`)
	versions("none").want(t, 404)
}

// A deploy is answered with the version that it made, also if somebody else's follows at once: with the ETag of that one, which its author has
// not seen, it would be replaced.
func TestDeployThatIsFollowed(t *testing.T) {
	d := &deployer{}
	w := newWorld(t, func(c *api.Config) { c.Deployer = d })
	d.w = w
	put := func(source, tag string) answer {
		return w.ask("ann author", "PUT", api.Prefix+"/workflows/invoices", `{"file":"a.js","source":"`+source+`"}`, "If-Match", tag)
	}
	a := put("followed", `"1.2"`)
	a.want(t, 200, `"version":"2.0"`)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"3.0"`)
	put("mine", a.Header.Get("ETag")).want(t, 412, "3.0")
}

// Whoever deploys says what he replaces.
func TestDeploy(t *testing.T) {
	d := &deployer{}
	w := newWorld(t, func(c *api.Config) { c.Deployer = d })
	d.w = w
	put := func(name, source string, header ...string) answer {
		return w.ask("ann author", "PUT", api.Prefix+"/workflows/"+name, `{"file":"a.js","source":"`+source+`"}`, header...)
	}
	tag := w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").Header.Get("ETag")
	put("invoices", "x").want(t, 428, "If-Match")
	put("invoices", "x", "If-None-Match", "*").want(t, 412, "1.2")
	put("invoices", "x", "If-Match", `"1.1"`).want(t, 412, "1.2")
	put("none", "x", "If-Match", tag).want(t, 412)
	put("invoices", "broken", "If-Match", tag).want(t, 422, "a.js:1:2")
	a := put("invoices", "x", "If-Match", tag)
	a.want(t, 200, `"version":"2.0"`)
	if a.Header.Get("ETag") != `"2.0"` {
		t.Errorf("ETag = %s, want 2.0", a.Header.Get("ETag"))
	}
	put("invoices", "y", "If-Match", tag).want(t, 412, "2.0")
	put("invoices", "y", "If-Match", `W/"2.0"`).want(t, 412, "2.0")
	for _, unquoted := range []string{`2.0`, `"2.0`, `"1.0" "2.0"`, `"2.0", 1.0`, `,`} {
		put("invoices", "y", "If-Match", unquoted).want(t, 400, "bad-version", `a version is written in quotation marks, as in If-Match: \"1.0\"`)
	}
	put("invoices", "y", "If-Match", `"0.9", "1.2"`).want(t, 412, "2.0")
	put("invoices", "x", "If-Match", `"1.2" ,W/"2.0", "2.0"`).want(t, 200, `"version":"2.0"`)
	put("none", "x", "If-Match", "*").want(t, 412, "no such workflow")
	// The same again, as after a lost answer: it is done (RFC 9110, 13.1.1).
	for _, header := range [][]string{{"If-Match", tag}, {"If-None-Match", "*"}} {
		put("invoices", "x", header...).want(t, 200, `"version":"2.0"`)
	}
	put("invoices", "overtaken", "If-Match", `"2.0"`).want(t, 412, "is 3.0, not 2.0")
	put("invoices", "overtaken by all", "If-Match", "*").want(t, 200, `"version":"4.0"`)
	put("fresh", "x", "If-None-Match", "*").want(t, 200, `"name":"fresh"`)
	put("taken", "overtaken", "If-None-Match", "*").want(t, 412, "there already, in version 1.0")
}

// The document in the repository is the one that is served.
func TestDocument(t *testing.T) {
	w := newWorld(t, nil)
	got := w.ask("ann viewer", "GET", api.Prefix+"/openapi.json", "").Body
	if *update {
		if err := os.WriteFile("openapi.json", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("openapi.json (-committed +served; -update rewrites):\n%s", diff)
	}
}

// What a producer keeps in its checkpoint is for admins alone, also where it is what a run read.
func TestTraceHidesCheckpoints(t *testing.T) {
	w := newWorld(t, nil)
	seen := trace.NewRecorder(4000)
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "kv.get", Params: json.RawMessage(`"session"`), Result: json.RawMessage(`"kept for itself"`), At: noon})
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "crm.find", Result: json.RawMessage(`"Ada"`), At: noon})
	part, _ := seen.Part()
	w.commit(keep.AppendTrace{Part: keep.TracePart{Run: "run_1", At: noon, Data: part}})
	for _, path := range []string{"/runs/run_1", "/runs/run_1/trace"} {
		for _, role := range access.Roles()[1:] {
			a := w.ask("vera "+string(role), "GET", api.Prefix+path, "")
			if has := strings.Contains(a.Body, "kept for itself"); a.Status != http.StatusOK || has != (role == access.Admin) || !strings.Contains(a.Body, "session") || !strings.Contains(a.Body, "Ada") {
				t.Errorf("%s of %s: %d, with what the checkpoint has: %t\n%s", role, path, a.Status, has, a.Body)
			}
		}
	}
}
