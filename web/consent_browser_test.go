package web_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
)

// The pages of grants and approvals have nothing that axe-core finds fault with, and fit on a
// wide screen and on a phone.
func TestConsentPagesFit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	w := newWorld(t, "refunds.js")
	asked := w.question("refunds").ID
	ann := operator.Giver{By: "ann", From: "cli"}
	_, err := w.host.SetGrant(t.Context(), "refunds", []keep.GrantedTool{{Tool: "desk.get"},
		{Tool: "desk.send", When: "params.amount <= 5000 && params.to.endsWith('@northwind.test')", Approve: "always"}}, ann, nil)
	w.must(err)
	v, err := w.host.Load(t.Context(), "testdata", "refunds_more.js")
	w.must(err)
	more := operator.Consent{Giver: operator.Giver{By: "agent", From: "api"}, Calls: []keep.ToolName{"desk.send", "desk.refund", "desk.add"}}
	out, err := w.host.DeployGranted(t.Context(), v, nil, more)
	w.must(err)
	if out.Waiting == nil {
		t.Fatal("the version does not wait for a person")
	}
	w.fit("ada", map[string]string{
		"consent-workflow": "/workflows/refunds", "consent-question": "/inbox/" + string(out.Waiting.Question), "consent-version": "/workflows/refunds/versions/2.0",
		"consent-inbox": "/inbox", "consent-approval": "/inbox/" + string(asked), "consent-together": "/inbox/together",
	})
}

// fit looks at pages on a wide screen and on a phone.
func (w *world) fit(who string, pages map[string]string) {
	w.Helper()
	tab := w.tab(who)
	for name, path := range pages {
		tab.size(1280, 900)
		tab.open(path)
		tab.accessible(name)
		tab.shot(name + "-1280")
		tab.fits(name)
		tab.size(390, 844, chromedp.EmulateMobile)
		tab.accessible(name + " on a phone")
		tab.shot(name + "-390")
		tab.fits(name + " on a phone")
	}
}

// A budget that is spent has a full gauge and a question with a form to raise it, and a tool whose
// calls are stopped has a question: both are answered on the pages, and what waits continues.
func TestBoundsOnThePages(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	r, err := budget.New(budget.Rule{Name: "reminders", Tools: []string{"desk.remind"}, Sum: "params.amount", Limit: 70 * keep.AmountUnit, Per: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := newBoundedWorld(t, []budget.Rule{r}, keep.Breaker{Failures: 1, Within: time.Hour})
	w.desk.set(func(d *desk) {
		d.orders = []order{{"17", "lee@northwind.test", 40}, {"18", "sam@fabrikam.test", 25}, {"19", "kim@example.com", 30}}
		d.mails = []mail{{"m1", "lee@northwind.test", "Where is it?", "I ordered on Monday."}, {"m2", "sam@fabrikam.test", "Thanks", "It came."}}
		d.refuse["/replies"] = true
	})
	w.deploy("reminders.js")
	w.deploy("mails.js")
	over := w.questionOf(keep.AskBudget)
	stopped := w.questionOf(keep.AskBreaker)
	w.fit("ada", map[string]string{
		"bounds-budgets": "/budgets", "bounds-raise": "/inbox/" + string(over.ID), "bounds-stopped": "/inbox/" + string(stopped.ID), "bounds-inbox": "/inbox",
		"bounds-run": "/runs/" + string(over.Run),
	})
	ada := w.tab("ada")
	ada.open("/budgets")
	ada.says("65 spent")
	ada.sees(`document.querySelector("meter").value == 92 && document.querySelector("meter").getBoundingClientRect().width > 50`)
	ada.click(`a[href="/inbox/` + string(over.ID) + `"]`)
	ada.lands(`document.querySelector("button[value=allow]") && !document.querySelector("input[name=limit]")`)
	ada.says("“Raise the limit” needs the role admin.")
	w.as("ada", access.Operator).post("/inbox/"+string(over.ID), "action", "raise", "limit", "100").want(t, http.StatusForbidden, "this needs the role admin")
	ada.open("/connections")
	ada.sees(`document.querySelector('a.pill[href="/inbox/` + string(stopped.ID) + `"]')`)
	ada.open("/inbox/" + string(over.ID))
	raise := func(limit string) {
		ada.click(`input[name=limit]`)
		ada.keys(limit)
		ada.click(`button[value=raise]`)
	}
	call(ada, network.SetCookie, network.SetCookieParams{Name: "role", Value: string(access.Admin), URL: w.site.URL})
	ada.open("/inbox/" + string(over.ID))
	raise("70")
	ada.says("the limit of the budget reminders is 70, and 70 is not more; nothing was changed")
	ada.open("/inbox/" + string(over.ID))
	raise("100")
	ada.says("Your decision is recorded.")
	w.until("the third reminder is sent", func() bool { return w.desk.done("/reminders") == 3 })
	ada.open("/budgets")
	ada.says("95 spent")
	ada.says("raised by ada")

	w.desk.set(func(d *desk) { d.refuse["/replies"] = false })
	ada.open("/inbox/" + string(stopped.ID))
	ada.says("desk.reply")
	ada.click(`button[value=retry]`)
	w.until("nothing is asked about the tool", func() bool { _, asked := w.askedOf(keep.AskBreaker); return !asked })
}

// questionOf waits for an open question of a kind.
func (w *world) questionOf(kind keep.EscalationKind) (q keep.Escalation) {
	w.Helper()
	w.until("a question of kind "+string(kind)+" is open", func() (asked bool) { q, asked = w.askedOf(kind); return asked })
	return q
}

// askedOf returns the open question of a kind, if there is one.
func (w *world) askedOf(kind keep.EscalationKind) (keep.Escalation, bool) {
	w.Helper()
	for _, q := range w.questions() {
		if q.Kind == kind {
			return q, true
		}
	}
	return keep.Escalation{}, false
}
