package web_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// A form that cannot be read is its sender's to correct, and no failure of Keep's: it says nothing of what is in it, and is in no log.
func TestFormThatCannotBeRead(t *testing.T) {
	db := memory.New()
	doubts(t, db, 1, nil)
	now := keepNow()
	def := keep.Definition{Name: "w", Handlers: []keep.Handler{{Name: "read", Kind: keep.Producer}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: def, CreatedAt: now}})
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	pages, err := web.New(web.Config{Store: db, Actor: actor, Access: db, Replayer: new(replayer), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/inbox/esc_0", "/inbox/together", "/workflows/w/pause", "/workflows/w/resume", "/workflows/w/run", "/workflows/w/checkpoint",
		"/workflows/w/checkpoint/values?handler=read", "/skip-inputs", "/runs/run_0", "/runs/run_0/replay", "/workflows/w/compare", "/settings/tokens", "/redo?workflow=w&topic=t&id=m"} {
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.Identity{Name: "root", Role: access.Admin}), http.MethodPost, path, strings.NewReader("note=secretive%zz"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		pages.ServeHTTP(rec, r)
		if body := rec.Body.String(); rec.Code != http.StatusBadRequest || !strings.Contains(body, "the form cannot be read") || strings.Contains(body, "%zz") {
			t.Errorf("%s: %d %s", path, rec.Code, cutTo(body, 400))
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log has %s", log.String())
	}
}

func cutTo(s string, n int) string { return s[:min(len(s), n)] }

// A script that is pasted to be gone through may be as large as one that is deployed on a page.
func TestPastedScriptIsAsLargeAsADeploy(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	author := w.as("anna", access.Author)
	script := "export default Keep.workflow({}) //" + strings.Repeat("x", 200<<10)
	author.post("/workflows/counter/compare", "source", script, "from", "1.0").want(t, http.StatusOK)
	author.post("/runs/"+string(w.ran("counter", "count"))+"/replay", "source", script).want(t, http.StatusOK)
	if asked := w.replays.asked; len(asked) != 1 || asked[0].Script == nil || asked[0].Script.Source != script {
		t.Errorf("%d replays were asked for, or with another script", len(asked))
	}
	if asked := w.replays.compared; len(asked) != 1 || asked[0].Script == nil || asked[0].Script.Source != script {
		t.Errorf("%d comparisons were asked for, or with another script", len(asked))
	}
	author.post("/workflows/counter/compare", "source", strings.Repeat("x", access.MaxBody)).want(t, http.StatusBadRequest, "the form has more than")
}

// A value of a checkpoint whose key has characters that no page shows is set and deleted as any other.
func TestCheckpointKeyWithHiddenCharacters(t *testing.T) {
	db := memory.New()
	now := keepNow()
	def := keep.Definition{Name: "w", Handlers: []keep.Handler{{Name: "read", Kind: keep.Producer}}}
	const name = "since\u200b\u202efeed"
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: def, CreatedAt: now}},
		keep.SetKV{Producer: "read", Key: name, Value: []byte("1")})
	ask := pagesAs(t, db, access.Admin)
	page := ask("GET", "/workflows/w/checkpoint?handler=read", nil)
	page.want(t, http.StatusOK, "since⟨U+200B⟩")
	form := hiddenIn(t, page.body, "key", name, "value", "2", "verb", "set")
	ask("POST", "/workflows/w/checkpoint/values", form).want(t, http.StatusSeeOther)
	if v, err := db.KV(t.Context(), "w", "read", name); err != nil || string(v) != "2" {
		t.Errorf("the value is %s, %v", v, err)
	}
	ask("POST", "/workflows/w/checkpoint/values", form).want(t, http.StatusConflict, "not what was shown")
}

// The body of an answer that a person types is kept with the ends of lines that he typed, and not with those that browsers send.
func TestTypedAnswerHasTheLinesThatWereTyped(t *testing.T) {
	w := newWorld(t)
	now := keepNow()
	id := key.NewID("h", "caller", "order-7")
	var r key.Record
	for _, f := range []key.Fact{
		{Evidence: key.Begun, Claim: key.Claim{ID: id, Key: "order-7", Method: "POST", Path: "/orders", TTL: 48 * time.Hour}, Lease: time.Minute, Fence: 5, By: "owner"},
		{Evidence: key.Unsure, Fence: 5, By: "owner"},
	} {
		var err error
		r, err = w.keys.Read(t.Context(), id)
		w.must(err)
		r, err = key.Apply(r, f, now)
		w.must(err)
		w.must(w.keys.Write(t.Context(), r))
	}
	c := w.as("ada", access.Operator)
	path := "/keys/" + id.String()
	c.post(path, append(formOf(t, c.get(path).body), "action", "happened", "status", "201", "body", "{\r\n  \"id\": 7\r\n}")...).want(t, http.StatusOK)
	v, err := idempotency.NewKeys(w.keys).Show(t.Context(), id.String())
	if err != nil || v.Body == nil || *v.Body != "{\n  \"id\": 7\n}" {
		t.Errorf("a retry gets %q, %v", *v.Body, err)
	}
}

// A link does not have somebody say that a call was done of which its page does not show all: it would not be made any more.
func TestLinkVouchesForNothingThatItHides(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	q := d.asked("1", func(q *keep.Escalation) {
		q.Attempted = strings.Repeat("x", 70<<10)
		q.Choices = append(q.Choices, keep.Choice{Action: keep.TreatAsDone, Label: "Treat it as done", Effect: "sends nothing"})
	})
	l := d.to(q, "webhook")
	a := d.ask("GET", l.URL, nil)
	a.want(t, http.StatusOK, `value="reject"`, "The other answers need a login")
	if strings.Contains(a.body, `value="treat-as-done"`) {
		t.Error("the link offers to treat as done what it hides part of")
	}
	d.press(l, keep.TreatAsDone).want(t, http.StatusBadRequest, "does not show all of what would be sent")
	if got := d.decision(q); got != nil {
		t.Errorf("it was decided: %+v", got)
	}
}

// What an account fails by is told to the admin who asked, since it says what was done and what not, and is in the log of Keep, too.
func TestAccountThatFailsIsLogged(t *testing.T) {
	var log strings.Builder
	db := memory.New()
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t}
	w.serve(web.Config{Store: db, Actor: actor, Accounts: shelved(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.as("root", access.Admin).post("/accounts/crm/test").want(t, http.StatusBadRequest, "&lt;b&gt;401")
	w.site.Close()
	if got := log.String(); !strings.Contains(got, "the service answered") || !strings.Contains(got, "account=crm") {
		t.Errorf("the log says %q", got)
	}
}
