package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// The newest decisions of many are above the buttons of a page and those before them are folded, oldest first; a note has the
// lines that were typed, and all of a long one can be read.
func TestHistoryOfManyDecisions(t *testing.T) {
	db := memory.New()
	now := keepNow()
	commit(t, db, "w", now, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "17", Title: "Order 17", Status: keep.ItemSkipped, Attempt: 1, CreatedAt: now, UpdatedAt: now}})
	long := strings.Repeat("long ", 200) + "the end"
	for i := range 30 {
		d := keep.Decided{About: keep.Subject{Workflow: "w", Kind: keep.AboutItem, ID: "17"},
			Decision: keep.Decision{Action: keep.Skip, By: "ada", From: "cli", Note: fmt.Sprintf("first of %d\nsecond %s", i+1, long), At: now.Add(time.Duration(i) * time.Second)}}
		commit(t, db, "w", d.Decision.At, keep.AppendDecision{Decided: d})
	}
	page := pagesWith(t, db)("GET", "/item?workflow=w&id=17", nil)
	page.want(t, http.StatusOK, "<summary>25 older decisions</summary>", `<bdi class="lines">first of 30`+"\n"+`second long`, "<summary>All of the note</summary>", "the end</bdi>")
	var last int
	for i, before := range []string{"first of 1\n", "first of 25\n", "</details><dl><dt>Skipped", "first of 26\n", "first of 30\n", "Undo the skip"} {
		at := strings.Index(page.body, before)
		if at < last {
			t.Errorf("%q, which is thing %d of the page, is at %d, and the one before at %d", before, i, at, last)
		}
		last = at
	}
}

// The page of a workflow says who paused it, when, from where and with which note, and how it was resumed; notes are text, whatever is in them.
func TestWhoPausedAWorkflow(t *testing.T) {
	db := memory.New()
	now := keepNow()
	h := keep.Handler{Name: "fetch", Kind: keep.Producer}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: keep.Definition{Name: "w", Handlers: []keep.Handler{h}}, CreatedAt: now}},
		keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: h.Name, Kind: h.Kind}})
	ask := pagesWith(t, db)
	const page = "/workflows/w"
	ask("POST", page+"/run", map[string][]string{"handler": {"fetch"}}).want(t, http.StatusSeeOther)
	ask("POST", page+"/pause", map[string][]string{"note": {"<b>it pays\n\u202etwice"}}).want(t, http.StatusSeeOther)
	shown := ask("GET", page, nil)
	shown.want(t, http.StatusOK, "Paused by <bdi>ada</bdi> (web), ", `: <bdi class="lines">&lt;b&gt;it pays`+"\n", "<dt>Run asked for</dt><dd>by <bdi>ada</bdi> (web)", "· fetch</dd>", "<dt>Paused</dt>")
	_, form, _ := strings.Cut(shown.body, `action="/workflows/w/resume"`)
	in := hiddenIn(t, form)
	in.Set("note", "it is mended")
	ask("POST", page+"/resume", in).want(t, http.StatusSeeOther)
	again := ask("GET", page, nil)
	again.want(t, http.StatusOK, "<dt>Resumed</dt><dd>by <bdi>ada</bdi> (web)", "it is mended", "<dt>Paused</dt>")
	if strings.Contains(again.body, "Paused by") {
		t.Error("the page says who paused a workflow that is not paused")
	}
}

// Who answered a question about an item is said on its page; and the skip of one with a call of which nobody knows is not offered to
// be undone, which would be refused.
func TestItemSaysWhoAnsweredAboutIt(t *testing.T) {
	db := memory.New()
	now := keepNow()
	v := keep.Version{Major: 1}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: v, Handler: "h", Kind: keep.Job, Phase: keep.Running, Status: keep.StatusReconciliation, Mutation: "mut_1",
		Error: keep.Failf(keep.ClassUnknown, "no-answer", "reset"), CreatedAt: now, UpdatedAt: now}
	m := keep.Mutation{Key: "mut_1", Workflow: "w", Run: run.ID, Item: "17", Attempt: 1, Tool: "shop.put", Target: "id=17", Level: keep.LevelNone, Token: "t", Identity: []byte(`{}`), Payload: []byte(`{}`),
		State: keep.Indeterminate, Doubted: true, Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now}
	q := keep.Escalation{ID: "esc_1", Kind: keep.AskUnknownOutcome, Workflow: "w", Run: run.ID, Mutation: m.Key, Item: "17", Question: "Did it happen?", CreatedAt: now,
		Choices: []keep.Choice{{Action: keep.Skip, Label: "Skip", Effect: "continues"}}}
	h := keep.Handler{Name: "h", Kind: keep.Job}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: v, Code: []byte("x"), Definition: keep.Definition{Name: "w", Handlers: []keep.Handler{h}}, CreatedAt: now}}, keep.PutRun{Run: run},
		keep.PutItem{Item: keep.Item{Workflow: "w", ID: "17", Title: "Order 17", Status: keep.ItemAttention, Attempt: 1, CreatedAt: now, UpdatedAt: now}},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: m.State}}}, keep.OpenEscalation{Escalation: q})
	ask := pagesWith(t, db)
	const item = "/item?workflow=w&id=17"
	if page := ask("GET", item, nil); strings.Contains(page.body, "decided “") {
		t.Error("the page says that an open question was answered")
	}
	ask("POST", "/inbox/esc_1", map[string][]string{"action": {"skip"}, "note": {"asked them\nby phone"}}).want(t, http.StatusSeeOther)
	ask("GET", item, nil).want(t, http.StatusOK, "<strong>ada</strong> decided “Skip”", "asked them\nby phone", `<a href="/inbox/esc_1">The question</a>`,
		`value="unskip" data-act="1" disabled`, "nobody knows whether its call mut_1 happened")
}

// A skip on a page, and what undoes it, takes a note, whatever it is of.
func TestSkipsTakeANote(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.lose["/replies"] = true; d.mails = mails(3) })
	w.trigger("mails", "poll")
	w.question("mails") // holds the first
	c := w.as("ada", "operator")
	ins, _, err := w.db.Inputs(t.Context(), keep.InputFilter{Text: "1002"}, keep.Page{})
	w.must(err)
	const field, event = `<textarea id="note" name="note"`, "?workflow=mails&topic=mail.received&id=m2"
	input := "/inputs/" + string(ins[0].ID)
	for _, verb := range []string{"skip", "unskip"} {
		c.get(input).want(t, 200, field)
		c.post(input+"/"+verb, "redone", "0", "note", "input: "+verb+"\nof it").want(t, 200, "input: "+verb+"\nof it")
		c.get("/event"+event).want(t, 200, field)
		c.post("/event/"+verb+event, "attempt", "1", "note", "event: "+verb).want(t, 200, "event: "+verb)
	}
	c.get("/skip-inputs").want(t, 200, field) // TestHalfASkipIsSaid fills it in
}

// A title of one word, as long as it may be, pushes no other column of a list out of sight.
func TestLongWordLeavesTheOtherColumns(t *testing.T) {
	db := memory.New()
	now := keepNow()
	commit(t, db, "w", now, keep.PutItem{Item: keep.Item{Workflow: "w", ID: strings.Repeat("i", 250), Title: strings.Repeat("t", 250), Status: keep.ItemDone, Attempt: 1, CreatedAt: now, UpdatedAt: now}})
	b := shown(t, db).tab("ada")
	b.open("/items")
	if wide := eval[bool](b, `(e => e.scrollWidth > e.clientWidth)(document.querySelector(".wide"))`); wide {
		t.Error("the list is wider than the page")
	}
	b.size(390, 800)
	if hidden := eval[bool](b, `(e => document.querySelector("td .pill").getBoundingClientRect().right > e.getBoundingClientRect().right)(document.querySelector(".wide"))`); hidden {
		t.Error("the status is out of sight on a phone")
	}
}

// So does a call in the first cell of a row that is its heading.
func TestLongCallLeavesTheOtherColumns(t *testing.T) {
	r, err := budget.New(budget.Rule{Name: "calls", Tools: []string{"*"}, Limit: 70 * keep.AmountUnit, Per: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := newBoundedWorld(t, []budget.Rule{r}, keep.Breaker{}, "reminders.js")
	w.began("reminders", "remind")
	w.desk.set(func(d *desk) {
		d.orders = []order{{ID: strings.Repeat("x", 200), Who: strings.Repeat("w", 200), Amount: 1}}
	})
	w.trigger("reminders", "remind")
	b := w.tab("ada")
	for _, width := range []int64{1200, 390} {
		b.size(width, 800)
		b.open("/budgets")
		b.says("desk.remind")
		if wide := eval[bool](b, `(e => e.scrollWidth > e.clientWidth)(document.querySelector(".wide"))`); wide {
			t.Errorf("the list of calls is wider than its place at %d pixels", width)
		}
	}
}

// The page of budgets counts by the clock of the database, as the API does, and says how many calls it does not show.
func TestBudgetsCountByTheClockOfTheDatabase(t *testing.T) {
	r, err := budget.New(budget.Rule{Name: "calls", Tools: []string{"*"}, Limit: 70 * keep.AmountUnit, Per: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := newBoundedWorld(t, []budget.Rule{r}, keep.Breaker{}, "reminders.js")
	w.began("reminders", "remind")
	w.desk.set(func(d *desk) {
		for i := range 23 {
			d.orders = append(d.orders, order{ID: fmt.Sprint(i), Who: "bob", Amount: 1})
		}
	})
	w.trigger("reminders", "remind")
	w.as("ada", access.Viewer).get("/budgets").want(t, http.StatusOK, "<strong>23</strong> spent", "And 3 older calls")
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Budgets: w.host.Budgets, Clock: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	w.as("ada", access.Viewer).get("/budgets").want(t, http.StatusOK, "<strong>0</strong> spent")
}
