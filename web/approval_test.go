package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store/memory"
)

// Nothing is approved from a list that hides part of it; the question's page shows up
// to 64 KiB, and all of it is a download.
func TestApprovalIsSeenWhole(t *testing.T) {
	db := memory.New()
	now := time.Now()
	attempted := "bank.pay on to=ada with " + strings.Repeat("x", 70<<10) + " the end"
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusApproval, Error: keep.Failf(keep.ClassPermission, "approval-needed", "waits"), CreatedAt: now, UpdatedAt: now}
	q := keep.Escalation{ID: "esc_1", Kind: keep.AskApproval, Workflow: "w", Run: run.ID, Question: "May pay call bank.pay?", Attempted: attempted,
		PayloadHash: "c0ffee", Choices: []keep.Choice{{Action: keep.Approve, Label: "Approve"}, {Action: keep.Reject, Label: "Reject"}}, CreatedAt: now}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
		keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
	ask := pagesWith(t, db)
	list := ask("GET", "/inbox", nil)
	list.want(t, http.StatusOK, "See all of it to approve it", `value="reject"`, "c0ffee")
	if strings.Contains(list.body, `value="approve"`) {
		t.Error("the list offers to approve what it hides part of")
	}
	ask("POST", "/inbox/esc_1", url.Values{"action": {"approve"}, "from": {"inbox"}}).want(t, http.StatusBadRequest, "does not show all of what")
	ask("GET", "/inbox/esc_1", nil).want(t, http.StatusOK, `value="approve"`, "this is its beginning", "/inbox/esc_1/attempted")
	if file := ask("GET", "/inbox/esc_1/attempted", nil); file.body != attempted {
		t.Errorf("the download has %d bytes, want all %d", len(file.body), len(attempted))
	}
	ask("POST", "/inbox/esc_1", url.Values{"action": {"approve"}, "from": {"question"}}).want(t, http.StatusSeeOther)
}

// pagesWith returns a way to ask the pages over a store, as an operator called ada. It
// follows nothing.
func pagesWith(t *testing.T, db *memory.Store) func(method, path string, form url.Values) answer {
	t.Helper()
	return pagesAs(t, db, access.Operator)
}

// A call that another run made already: the question shows both, its safe answer is the
// one that sends nothing, and to send again wants a second press.
func TestAlreadyDone(t *testing.T) {
	for _, action := range []keep.Action{keep.TreatAsDone, keep.DoAgain, keep.Skip} {
		t.Run(string(action), func(t *testing.T) {
			db := memory.New()
			now := time.Now()
			first := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "first", Version: keep.Version{Major: 1}, Handler: "add", Kind: keep.Consumer,
				Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
			m := keep.Mutation{Key: "mut_1", Workflow: "first", Run: first.ID, Tool: "crm.add", Target: "id=c1", Level: keep.LevelKey, Token: "t",
				Identity: []byte(`{"id":"c1"}`), Payload: []byte(`{"id":"c1","name":"Ada"}`), State: keep.Applied, ResolvedBy: "call", Attempts: 1,
				CallDeadline: now, CreatedAt: now, UpdatedAt: now}
			commit(t, db, "first", now, keep.PutRun{Run: first}, keep.PutMutation{Mutation: m, Moves: []keep.Move{
				{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.Applied}}})
			run := keep.Run{ID: "run_2", Chain: "run_2", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "add", Kind: keep.Consumer, Phase: keep.Prepared,
				Status: keep.StatusPerson, Error: keep.Failf(keep.ClassPrecondition, "already-done", "waits"), CreatedAt: now, UpdatedAt: now}
			q := keep.Escalation{ID: "esc_1", Kind: keep.AskAlreadyDone, Workflow: "w", Run: run.ID, Mutation: m.Key, PayloadHash: "c0ffee", CreatedAt: now,
				Question:  "crm.add on id=c1 was already done, by run run_1 of workflow first. Should add do it again, or treat it as done?",
				Attempted: `crm.add on id=c1 with {"id":"c1","name":"Eve"}` + "\nthe same before: mut_1", Choices: []keep.Choice{
					{Action: keep.TreatAsDone, Label: "Treat it as done", Effect: "sends nothing"},
					{Action: keep.DoAgain, Label: "Do it again", Effect: "makes this very call"}, {Action: keep.Skip, Label: "Skip", Effect: "gives up"}}}
			commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
				keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
			ask := pagesWith(t, db)
			for _, path := range []string{"/inbox", "/inbox/esc_1"} {
				a := ask("GET", path, nil)
				a.want(t, http.StatusOK, ">Already done</", "by run run_1 of workflow first", "Eve", `value="treat-as-done"`, "Treat it as done",
					`value="do-again"`, "Do it again…", "asks you once more", `value="skip"`)
				if again := regexp.MustCompile(`<button[^>]*value="do-again"[^>]*>`).FindString(a.body); strings.Contains(again, "primary") || strings.Contains(again, "data-act") {
					t.Errorf("%s: what sends again is the default, or one key away: %s", path, again)
				}
			}
			ask("GET", "/inbox/esc_1", nil).want(t, http.StatusOK, "What was sent before, by another run")
			answered := ask("POST", "/inbox/esc_1", url.Values{"action": {string(action)}, "from": {"question"}})
			answered.want(t, http.StatusSeeOther)
			if action == keep.DoAgain {
				if got, err := db.Escalation(t.Context(), q.ID); err != nil || got.Decision != nil {
					t.Fatalf("one press decided %+v, %v", got.Decision, err)
				}
				second := ask("GET", answered.header.Get("Location"), nil)
				second.want(t, http.StatusOK, "send it again?", "crm.add on id=c1", "Eve", "Ada", "Back, send nothing")
				ask("POST", "/inbox/esc_1", url.Values{"action": {"do-again"}, "confirm": {"1"}, "from": {"question"}}).want(t, http.StatusSeeOther)
			}
			if got, err := db.Escalation(t.Context(), q.ID); err != nil || got.Decision == nil || got.Decision.Action != action || got.Decision.By != "ada" {
				t.Errorf("the decision is %+v, %v, want %s by ada", got.Decision, err, action)
			}
		})
	}
}

// The page of a question shows the call as what it is, its script's claim apart from it, and
// nothing of it as HTML, or with characters that change how it is read.
func TestApprovalReadsLikeWhatIsSent(t *testing.T) {
	db := memory.New()
	now := time.Now()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusApproval, Error: keep.Failf(keep.ClassPermission, "approval-needed", "waits"), CreatedAt: now, UpdatedAt: now}
	payload := []byte(`{"to":"bob@p\u0430ypal.com\u202e","text":"<script>alert(1)</script>` + strings.Repeat(`\n`, 10_000) + `the end","html":"<a href=\"https://evil.example\">bank.example</a><img src=x>","x-mailer":"a\u200bb"}`)
	q := keep.Escalation{ID: "esc_1", Kind: keep.AskApproval, Workflow: "w", Run: run.ID, Question: "May pay call mail.send?", Attempted: "mail.send on bob",
		PayloadHash: "c0ffee", Choices: []keep.Choice{{Action: keep.Approve, Label: "Approve"}, {Action: keep.Reject, Label: "Reject"}}, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		Approval: &keep.Approval{Tool: "mail.send", Target: "bob", Payload: payload, Version: keep.Version{Major: 1}, Claim: []byte(`{"title":"<i>harmless\u202e</i>","fields":{"To":"ann@example.com"}}`),
			View: keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "from", Text: "me@example.com"}, {Role: "to", Param: "to"}, {Role: "text", Param: "text"}, {Role: "html", Param: "html"}}}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
		keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
	ask := pagesWith(t, db)
	for _, path := range []string{"/inbox", "/inbox/esc_1"} {
		page := ask("GET", path, nil)
		page.body = strings.ReplaceAll(page.body, "&#43;", "+")
		page.want(t, http.StatusOK, "What will be sent", "me@example.com", "⟨U+202E⟩", "&lt;script&gt;", "of 10001 lines are between", "the end", "[link to: https://evil.example] bank.example",
			"Also sent: x-mailer", "a⟨U+200B⟩b", "<strong>look-alike</strong>", "<strong>bidi</strong>", "<strong>invisible</strong>", "<strong>long</strong>", "<strong>html</strong>",
			"a claim; Keep did not check it", "&lt;i&gt;harmless", "then the run asks again")
		for _, never := range []string{"\u202e", "\u200b", "<script>alert", "<img src=x", "<i>harmless", `href="https://evil`} {
			if strings.Contains(page.body, never) {
				t.Errorf("%s has %q", path, never)
			}
		}
		if will, claim := strings.Index(page.body, "What will be sent"), strings.Index(page.body, "The script says of it"); claim < will {
			t.Errorf("%s shows the claim before what is sent", path)
		}
	}
}

// Approvals that are alike are answered together: those that the form names, each for itself,
// and none that the list hides part of.
func TestApproveSeveral(t *testing.T) {
	db := memory.New()
	now := time.Now()
	for i, text := range []string{"one", "two", "three", strings.Repeat("long\n", 5000)} {
		id := string(rune('1' + i))
		w := keep.WorkflowName("w" + id)
		payload, err := json.Marshal(map[string]any{"to": "bob", "text": text})
		if err != nil {
			t.Fatal(err)
		}
		run := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Workflow: w, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
			Status: keep.StatusApproval, Error: keep.Failf(keep.ClassPermission, "approval-needed", "waits"), CreatedAt: now, UpdatedAt: now}
		q := keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: keep.AskApproval, Workflow: w, Run: run.ID, Question: "May pay call mail.send?", Attempted: "mail.send on bob with " + string(payload),
			PayloadHash: "c0ffee", Choices: []keep.Choice{{Action: keep.Approve, Label: "Approve"}, {Action: keep.Reject, Label: "Reject"}}, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
			Approval: &keep.Approval{Tool: "mail.send", Payload: payload, Version: keep.Version{Major: 1}}}
		commit(t, db, w, now, keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
			keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q})
	}
	ask := pagesWith(t, db)
	ask("GET", "/inbox", nil).want(t, http.StatusOK, "/inbox/together")
	list := ask("GET", "/inbox/together?tool=mail.send", nil)
	list.want(t, http.StatusOK, `value="esc_1" checked`, `value="esc_2" checked`, `value="esc_3" checked`, "too long for a list", "See all of it to approve it", "two")
	if strings.Contains(list.body, `value="esc_4"`) {
		t.Error("the list offers to approve what it hides part of")
	}
	ask("GET", "/inbox/together?tool=bank.pay", nil).want(t, http.StatusOK, "No call waits for an approval")
	for _, form := range []url.Values{{"action": {"approve"}}, {"action": {"skip"}, "id": {"esc_1"}}, {"action": {"approve"}, "id": {"esc_4"}}, {"action": {"approve"}, "id": {"esc_9"}}} {
		ask("POST", "/inbox/together", form).want(t, http.StatusBadRequest)
	}
	ask("POST", "/inbox/together", url.Values{"action": {"approve"}, "id": {"esc_1"}, "note": {"seen"}}).want(t, http.StatusSeeOther)
	again := ask("POST", "/inbox/together", url.Values{"action": {"approve"}, "id": {"esc_1", "esc_2", "esc_4"}})
	again.want(t, http.StatusBadRequest, "1 of 3 were answered", "esc_1: ", "already decided: ada decided approve", "esc_4: ", "does not show all")
	for id, decided := range map[keep.EscalationID]bool{"esc_1": true, "esc_2": true, "esc_3": false, "esc_4": false} {
		if q, err := db.Escalation(t.Context(), id); err != nil || (q.Decision != nil) != decided || decided && q.Decision.By != "ada" {
			t.Errorf("%s is decided: %+v, %v; want %t", id, q.Decision, err, decided)
		}
	}
}
