package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/pin"
	"github.com/keep-run/keep/store/memory"
)

// What was typed into a form that is refused is on the page that says why: a browser may have forgotten it when it goes back.
func TestRefusedFormShowsWhatWasTyped(t *testing.T) {
	db := memory.New()
	doubts(t, db, 1, nil)
	const note = "I looked <b>in</b> the sent folder\nand found nothing"
	ask := pagesAs(t, db, access.Operator)
	for path, form := range map[string]url.Values{
		"/inbox/esc_0":       {"note": {note}, "action": {"approve"}},
		"/inbox/together":    {"note": {note}, "action": {"happened"}},
		"/inputs/in_x/skip":  {"note": {note}},
		"/item?workflow=w0":  {"note": {note}, "action": {"skip"}},
		"/inbox/esc_missing": {"note": {note}, "action": {"happened"}, "result": {`{"id": 17}`}},
	} {
		a := ask("POST", path, form)
		if a.status < 400 {
			t.Fatalf("%s: status %d, want a refusal", path, a.status)
		}
		a.want(t, a.status, "What you wrote, which was not recorded", "I looked &lt;b&gt;in&lt;/b&gt; the sent folder\nand found nothing")
		if form.Has("result") {
			a.want(t, a.status, "{&#34;id&#34;: 17}")
		}
	}
	secret := ask("POST", "/secrets", url.Values{"name": {"bank"}, "value": {"a secret"}})
	if strings.Contains(secret.body, "a secret") {
		t.Error("a secret is shown")
	}
	d := newLinkDesk(t, memory.New())
	l := d.to(d.asked("1", nil), "webhook")
	at, _, _ := strings.Cut(l.URL, "?")
	d.ask("POST", at, url.Values{"code": {l.Code}, "note": {note}}).want(t, http.StatusBadRequest, "no action was chosen", `maxlength="4000">I looked &lt;b&gt;in&lt;/b&gt; the sent folder`)
}

// Who raises a limit and types what is no number reads that, and what a number is.
func TestRaiseSaysWhatIsNoNumber(t *testing.T) {
	ask := pagesAs(t, memory.New(), access.Admin)
	for _, tt := range []struct{ limit, hours, says string }{
		{"", "", "needs the limit that the budget gets"},
		{"5,000", "", "must be a number that is more than 0, such as 5000 or 99.5, and &#34;5,000&#34; is none"},
		{"5000", "two", "must be a number that is more than 0 and at most 8784, such as 24 or 1.5, and &#34;two&#34; is none"},
	} {
		ask("POST", "/inbox/esc_1", url.Values{"action": {"raise"}, "limit": {tt.limit}, "hours": {tt.hours}}).want(t, http.StatusBadRequest, tt.says)
	}
}

// A question about a tool that its server changed speaks of the tool: no script says anything of it, no run waits for it, and what is
// approved is no call.
func TestQuestionAboutAToolSpeaksOfTheTool(t *testing.T) {
	db, now := memory.New(), keepNow()
	var changes []keep.Change
	for _, name := range []string{"create_issue", "delete_issue"} {
		agreed, listed := pin.Of([]byte(`{"name":"x","description":"Does it."}`), now), pin.Of([]byte(`{"name":"x","description":"Does it. And more."}`), now)
		q := pin.Question(keep.EscalationID("esc_"+name), "gateway", keep.ToolName("tracker."+name), &agreed, &listed, now)
		changes = append(changes, keep.OpenEscalation{Escalation: q})
	}
	commit(t, db, "gateway", now, append([]keep.Change{keep.Deploy{Deployment: keep.Deployment{Workflow: "gateway", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}}}, changes...)...)
	ask := pagesAs(t, db, access.Operator)
	for _, path := range []string{"/", "/inbox", "/inbox?show=each", "/inbox/esc_create_issue", "/inbox/together?cause=tool_changed++"} {
		a := ask("GET", path, nil)
		a.want(t, http.StatusOK)
		for _, wrong := range []string{"cript says", "0 runs", "of the call", ">Attempted<", "with the same cause", "with one cause"} {
			if strings.Contains(a.body, wrong) {
				t.Errorf("%s says %q", path, wrong)
			}
		}
		if path != "/" {
			a.want(t, http.StatusOK, "Does it. And more.")
		}
	}
	ask("GET", "/inbox/esc_create_issue", nil).want(t, http.StatusOK, "What changed", "of the tool as it is now; approving is of this one only")
}

// The page of the workflow that has the calls of agents offers and says nothing of a script, which it does not have.
func TestWorkflowOfAgents(t *testing.T) {
	w := newWorld(t, "counter.js")
	now := keepNow()
	def := keep.Definition{Name: "gateway", Handlers: []keep.Handler{{Name: "call", Kind: keep.Consumer, HasMutate: true}}}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "gateway", At: now, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: "gateway", Version: keep.Version{Major: 1}, Hash: "h", Entry: "gateway.js", Code: []byte("//"), Definition: def, CreatedAt: now}}}}))
	author := w.as("anna", access.Author)
	a := author.get("/workflows/gateway")
	a.want(t, http.StatusOK, "calls of agents", "when an agent calls", "What agents may call is said by")
	for _, wrong := range []string{"may call every tool", "Deploy a version", "/workflows/gateway/plan", "What would have been otherwise", "when an event comes"} {
		if strings.Contains(a.body, wrong) {
			t.Errorf("it says %q", wrong)
		}
	}
	author.get("/workflows/counter").want(t, http.StatusOK, "Deploy a version", "/workflows/counter/plan")
}

// What an action did stays on the page, also when that is read again since something changed, as after most actions.
func TestNoticeStays(t *testing.T) {
	d := newLinkDesk(t, memory.New())
	b := d.sit()
	b.opens("/inbox?did=decided")
	b.sees("document.querySelector('#live-state').textContent == 'live'")
	q := d.asked("a", nil)
	d.feed.Publish(feed.Change{Kinds: []feed.Kind{feed.Escalation}})
	b.sees("!!document.querySelector('#q-" + string(q.ID) + "')")
	if got := eval[string](b, `(document.querySelector("main [role=status]") || {}).textContent || ""`); got != "Your decision is recorded." {
		t.Errorf("after the page was read again it says %q", got)
	}
}
