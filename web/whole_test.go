package web_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// Whatever a question asks a person to agree to, its page shows to the end, and no list offers to agree to what it shows the
// beginning of.
func TestNothingIsAgreedToUnseen(t *testing.T) {
	var tools []string
	for i := range 99 {
		tools = append(tools, fmt.Sprintf("+ crm.read%02d when params.of == %d", i, i))
	}
	tools = append(tools, "+ bank.THE-END")
	long := `{"note":"` + strings.Repeat("harmless ", 800) + `THE-END` + strings.Repeat(" harmless", 800) + `"}`
	agrees := []keep.Choice{{Action: keep.Approve, Label: "Approve"}, {Action: keep.Reject, Label: "Reject"}}
	for _, one := range []struct {
		name string
		q    keep.Escalation
		by   keep.Action
	}{
		{"a grant", keep.Escalation{Kind: keep.AskGrant, Attempted: strings.Join(tools, "\n"), Choices: agrees}, keep.Approve},
		{"a tool that changed", keep.Escalation{Kind: keep.AskToolChanged, Attempted: "description\n+ " + strings.Repeat("reads a file ", 300) + "THE-END", Choices: agrees}, keep.Approve},
		{"a call after a doubt", keep.Escalation{Kind: keep.AskApproval, Run: "run_1", Choices: agrees,
			Attempted: "an earlier call may have happened: bank.pay on bob with {}\nnow it would be sent with " + long[:1500] + "… (14000 bytes)",
			Approval:  &keep.Approval{Tool: "bank.pay", Target: "bob", Payload: []byte(long), Version: keep.Version{Major: 1}}}, keep.Approve},
		{"a call that another run made", keep.Escalation{Kind: keep.AskAlreadyDone, Run: "run_1", Attempted: "bank.pay on bob with " + long + "\nthe same before: mut_1",
			Choices: []keep.Choice{{Action: keep.TreatAsDone, Label: "Treat it as done"}, {Action: keep.DoAgain, Label: "Do it again"}}}, keep.DoAgain},
		{"an item that changed", keep.Escalation{Kind: keep.AskItem, Run: "run_1", Mutation: "mut_1", Attempted: strings.Repeat("was sent before ", 130) + "\nnow it would be sent with THE-END",
			Choices: []keep.Choice{{Action: keep.Reprocess, Label: "Reprocess"}}}, keep.Reprocess},
		{"a call that its budget has no room for", keep.Escalation{Kind: keep.AskBudget, Budget: "money", Run: "run_1", Attempted: "bank.pay on bob with " + long,
			Choices: []keep.Choice{{Action: keep.Allow, Label: "Allow this one"}, {Action: keep.Skip, Label: "Skip"}}}, keep.Allow},
		{"a call that is said to be done", keep.Escalation{Kind: keep.AskApproval, Run: "run_1", Attempted: "bank.pay on bob with " + long,
			Approval: &keep.Approval{Tool: "bank.pay", Target: "bob", Payload: []byte(long), Version: keep.Version{Major: 1}},
			Choices:  []keep.Choice{{Action: keep.Approve, Label: "Approve"}, {Action: keep.TreatAsDone, Label: "Treat it as done"}}}, keep.TreatAsDone},
	} {
		t.Run(one.name, func(t *testing.T) {
			db, now := memory.New(), time.Now()
			one.q.ID, one.q.Workflow, one.q.Question, one.q.CreatedAt = "esc_1", "w", "May it?", now
			run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
				Status: keep.StatusPerson, Error: keep.Failf(keep.ClassPermission, "waits", "waits"), CreatedAt: now, UpdatedAt: now}
			commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
				keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: one.q})
			m := keep.Mutation{Key: "mut_1", Workflow: "w", Run: run.ID, Tool: "bank.pay", Target: "bob", Level: keep.LevelKey, Token: "t", Identity: []byte(`{}`), Payload: []byte(`{}`),
				State: keep.Applied, ResolvedBy: "call", Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now}
			commit(t, db, "w", now, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.Applied}}})
			ask := pagesAs(t, db, access.Admin)
			list := ask("GET", "/inbox", nil)
			list.want(t, http.StatusOK, "See all of it")
			if strings.Contains(list.body, "THE-END") {
				t.Fatal("the list shows all of it: this test shows nothing")
			}
			last := ask("GET", "/inbox/esc_1", nil) // the page on which it is agreed to
			last.want(t, http.StatusOK, "THE-END")
			ask("GET", "/inbox/esc_1/attempted", nil).want(t, http.StatusOK, "THE-END")
			switch one.by {
			case keep.Approve, keep.Allow, keep.TreatAsDone:
				if button := fmt.Sprintf(`name="action" value="%s"`, one.by); strings.Contains(list.body, button) || !strings.Contains(last.body, button) {
					t.Error("the list offers to agree to what it hides part of, or no page does")
				}
				ask("POST", "/inbox/esc_1", url.Values{"action": {string(one.by)}, "from": {"inbox"}}).want(t, http.StatusBadRequest, "the list does not show")
				ask("POST", "/inbox/together", url.Values{"action": {string(one.by)}, "id": {"esc_1"}}).want(t, http.StatusBadRequest, "the list does not show")
			default:
				first := ask("POST", "/inbox/esc_1", url.Values{"action": {string(one.by)}, "from": {"inbox"}})
				first.want(t, http.StatusSeeOther)
				ask("GET", first.header.Get("Location"), nil).want(t, http.StatusOK, "THE-END")
			}
			if got, err := db.Escalation(t.Context(), "esc_1"); err != nil || got.Decision != nil {
				t.Errorf("it was decided: %+v, %v", got.Decision, err)
			}
		})
	}
}

// A form that is too large is refused, and nothing is said of what is left of it.
func TestScriptThatIsTooLargeIsNotLeftOut(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow()
	run := keep.Run{ID: "run_again", Chain: "run_again", Workflow: "counter", Version: w.version("counter").Version, Handler: "take", Kind: keep.Consumer,
		Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: run}}}))
	large, author := strings.Repeat("/", access.MaxBody), w.as("anna", access.Author)
	for _, path := range []string{"/runs/run_again/replay", "/workflows/counter/compare"} {
		author.post(path, "source", large, "from", "1.0", "version", "1.0").want(t, http.StatusBadRequest, fmt.Sprintf("the form has more than %d bytes", access.MaxBody))
	}
	if len(w.replays.asked)+len(w.replays.compared) > 0 {
		t.Errorf("gone through without the script: %+v, %+v", w.replays.asked, w.replays.compared)
	}
}

// What a form takes is as large as what its page offers to set: the result of a call, and a value beside thousands of others.
func TestFormTakesWhatItsPageOffers(t *testing.T) {
	db := memory.New()
	doubts(t, db, 1, nil)
	result := `"` + strings.Repeat("é", 100<<10) + `"`
	pagesAs(t, db, access.Operator)("POST", "/inbox/esc_0", url.Values{"action": {"happened"}, "result": {result}}).want(t, http.StatusSeeOther)
	if m, err := db.Mutation(t.Context(), "mut_0"); err != nil || len(m.Result) != len(result) {
		t.Errorf("the result has %d bytes, %v", len(m.Result), err)
	}

	d := newLinkDesk(t, memory.New())
	q, note := d.asked("1", nil), strings.Repeat("字", 4000)
	l := d.to(q, "webhook")
	at, _, _ := strings.Cut(l.URL, "?")
	d.ask("POST", at, url.Values{"code": {l.Code}, "action": {"reject"}, "note": {note}}).want(t, http.StatusSeeOther)
	if got := d.decision(q); got == nil || got.Note != note {
		t.Error("the note of a link's page is not recorded")
	}

	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	w.trigger("counter", "count")
	var changes []keep.Change
	for i := range 3000 {
		changes = append(changes, keep.SetKV{Producer: "count", Key: fmt.Sprintf("page-%04d", i), Value: []byte("1")})
	}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: keepNow(), Changes: changes}))
	const page = "/workflows/counter/checkpoint"
	root := w.as("root", access.Admin)
	form := append(formOf(t, root.get(page+"?handler=count").body), "key", "n", "verb", "set", "value", `"`+strings.Repeat("é", 30<<10)+`"`)
	root.post(page+"/values", form...).want(t, http.StatusOK, "The value is changed", "the beginning of 60.0 KiB")
}

// No page offers to go through the runs of a program in Go.
func TestRunsOfAProgramAreNotOffered(t *testing.T) {
	w := newWorld(t, "counter.js")
	now, one := keepNow(), keep.Version{Major: 1}
	def := keep.Definition{Name: "program", Go: true, Handlers: []keep.Handler{{Name: "pay", Kind: keep.Consumer}}}
	run := keep.Run{ID: "run_go", Chain: "run_go", Workflow: "program", Version: one, Handler: "pay", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "program", At: now, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: "program", Version: one, Hash: "h", Entry: "pay (Go)", Code: []byte("{}"), Definition: def, CreatedAt: now}}, keep.PutRun{Run: run}}}))
	author := w.as("anna", access.Author)
	for _, path := range []string{"/runs/run_go", "/workflows/program", "/workflows/program/versions/1.0"} {
		a := author.get(path)
		a.want(t, http.StatusOK)
		if strings.Contains(a.body, "Replay…") || strings.Contains(a.body, "What would have been otherwise…") {
			t.Errorf("%s offers it", path)
		}
	}
}

// A failure of Keep's own among several answers is in its log, and its text, which may have paths or addresses, on no page.
func TestSeveralAnswersThatFailAreLogged(t *testing.T) {
	db := memory.New()
	doubts(t, db, 3, nil)
	var log strings.Builder
	actor, err := operator.New(&failing{db, 2}, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t}
	w.serve(web.Config{Store: db, Actor: actor, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(w.site.Close)
	c := w.as("ada", access.Operator)
	a := c.read(c.http.PostForm(w.site.URL+"/inbox/together", url.Values{"action": {"happened"}, "id": {"esc_0", "esc_1", "esc_2"}}))
	a.want(t, http.StatusInternalServerError, "2 of 3 were answered", "esc_1: Something went wrong: Keep could not read or write what this page needs")
	if strings.Contains(a.body, "the disk is full") {
		t.Error("the page has the text of the failure")
	}
	if !strings.Contains(log.String(), "the disk is full") {
		t.Errorf("the log says %q", log.String())
	}
}

// pagesAs returns a way to ask the pages over a store as somebody called ada. It follows nothing.
func pagesAs(t *testing.T, db *memory.Store, role access.Role) func(method, path string, form url.Values) answer {
	t.Helper()
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := web.New(web.Config{Store: db, Actor: actor})
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path string, form url.Values) answer {
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.Identity{Name: "ada", Role: role}), method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		pages.ServeHTTP(rec, r)
		return answer{rec.Code, rec.Header(), path, rec.Body.String()}
	}
}
