package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/rehearsal/plan"
)

// What was executed a moment ago is not due, and is planned only with Due, at the time of the plan.
func TestDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hourly := *w.w
	hourly.Handlers = slices.Clone(w.w.Handlers)
	for i := range hourly.Handlers {
		if hourly.Handlers[i].Kind == keep.Producer {
			hourly.Handlers[i].Schedule.Interval = time.Hour
		}
	}
	w.w = &hourly
	w.live(t) // polled once
	w.shop.orders.Store([]string{"o1", "o2"})
	reads := w.shop.reads.Load()
	now := time.Now()
	p := w.plan(t, plan.Config{Base: w.db, Now: now})
	if len(p.Reads) != 0 || len(p.Mutations) != 0 || w.shop.reads.Load() != reads {
		t.Errorf("without Due: reads %v, calls %q; want none before the producer is due", p.Reads, calls(p))
	}
	if n := p.NotDue; len(n) != 1 || n[0].Planned || n[0].Handler != "poll" || n[0].NextAt.Sub(now) < 59*time.Minute {
		t.Errorf("without Due: not due %+v; want poll in an hour, which is not planned", n)
	}
	before := snapshot(t, w.db)
	for _, at := range []time.Time{now, {}} {
		p := w.plan(t, plan.Config{Base: w.db, Due: true, Now: at})
		if got, want := calls(p), []string{`shop.send{"id":"o2"}`, `shop.bill{"id":"o2","ref":"null"}?`}; !slices.Equal(got, want) || len(p.Reads) != 1 {
			t.Errorf("with Due: reads %v, calls %q; want one read and %q", p.Reads, got, want)
		}
		if got := w.shop.polls.Load(); got != "1" {
			t.Errorf("the checkpoint was %v, want 1 of the database", got)
		}
		if len(p.NotDue) != 0 {
			t.Errorf("with Due: not due %v, want nothing", p.NotDue)
		}
	}
	if after := snapshot(t, w.db); after != before {
		t.Errorf("the plan changed the database:\n%s\nwas\n%s", after, before)
	}
}

// A handler without a schedule is due at every start, and so in every plan, which says when a host
// that runs already comes to it.
func TestNotDue_without_a_schedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if p := w.plan(t, plan.Config{}); len(p.NotDue) != 0 {
		t.Errorf("before the first run: not due %v, want nothing", p.NotDue)
	}
	w.live(t) // polled once
	w.shop.orders.Store([]string{"o1", "o2"})
	p := w.plan(t, plan.Config{Base: w.db})
	if len(p.Reads) != 1 || len(p.Mutations) == 0 {
		t.Errorf("reads %v, calls %q; want those of a start", p.Reads, calls(p))
	}
	if n := p.NotDue; len(n) != 1 || !n[0].Planned || time.Until(n[0].NextAt) > policy.Default().DefaultInterval {
		t.Fatalf("not due %+v; want poll, which is planned all the same", n)
	}
	var page strings.Builder
	if err := p.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "poll of orders has no schedule") {
		t.Errorf("the page (%v) does not say that poll has no schedule:\n%s", err, page.String())
	}
	event := keep.Event{Topic: "order.new", MessageID: "o9", Payload: json.RawMessage(`{"id":"o9"}`)}
	if p := w.plan(t, plan.Config{Base: w.db, Event: &event}); len(p.NotDue) != 0 {
		t.Errorf("of an event: not due %v, want nothing", p.NotDue)
	}
}

// A script whose schedule is another than that in force is due as its deploy would have it.
func TestNotDue_of_a_changed_schedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	every := func(s keep.Schedule) {
		changed := *w.w
		changed.Handlers = slices.Clone(w.w.Handlers)
		i := slices.IndexFunc(changed.Handlers, func(h keep.Handler) bool { return h.Kind == keep.Producer })
		changed.Handlers[i].Schedule = s
		w.w = &changed
	}
	every(keep.Schedule{Interval: time.Hour})
	w.live(t) // polled once
	w.shop.orders.Store([]string{"o2"})
	every(keep.Schedule{Interval: 2 * time.Hour})
	if p := w.plan(t, plan.Config{Base: w.db}); len(p.Reads) != 1 || len(p.NotDue) != 0 {
		t.Errorf("another interval: reads %v, not due %v; want it planned, for a deploy makes it due", p.Reads, p.NotDue)
	}
	yearly := keep.Schedule{Cron: "0 0 1 1 *"}
	every(yearly)
	for _, base := range []rehearsal.Base{w.db, nil} {
		now := time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)
		p := w.plan(t, plan.Config{Base: base, Now: now})
		if want := now.AddDate(0, 8, 0); len(p.Reads) != 0 || len(p.NotDue) != 1 || !p.NotDue[0].NextAt.Equal(want) {
			t.Errorf("yearly: reads %v, not due %v; want nothing before %s", p.Reads, p.NotDue, want)
		}
		if p := w.plan(t, plan.Config{Base: base, Now: now, Due: true}); len(p.Reads) != 1 || len(p.NotDue) != 0 {
			t.Errorf("yearly, with Due: reads %v, not due %v; want it planned", p.Reads, p.NotDue)
		}
	}
}

// Of a workflow that is paused the plan says that nothing of it happens yet.
func TestMake_of_a_paused_workflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t)
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.conns, Runtime: w.rt})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Pause(t.Context(), "orders", keep.Decision{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if p := w.plan(t, plan.Config{Base: w.db}); !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.Contains(s, "keep resume orders") }) {
		t.Errorf("unknown %q, want a sentence about the pause", p.Unknown)
	}
}

// Reads that the grant does not allow are made for whoever may read everything, and fail with Bound.
func TestBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	grants := func(tools ...string) map[keep.WorkflowName]plan.Granted {
		g := plan.Granted{Whole: true}
		for _, tool := range tools {
			g.Tools = append(g.Tools, keep.GrantedTool{Tool: tool})
		}
		return map[keep.WorkflowName]plan.Granted{"orders": g}
	}
	if p := w.plan(t, plan.Config{Granted: grants("shop.send")}); len(p.Errors) != 0 || w.shop.reads.Load() != 1 {
		t.Errorf("not bound: %d reads, errors %v; want one read", w.shop.reads.Load(), p.Errors)
	}
	p := w.plan(t, plan.Config{Granted: grants("shop.send"), Bound: true})
	if w.shop.reads.Load() != 1 || len(p.Errors) != 1 || p.Errors[0].Handler != "poll" || !strings.Contains(p.Errors[0].Message, "this plan reads only what the workflow was granted") {
		t.Errorf("bound: %d reads in all, errors %v; want no read more, and an error of poll", w.shop.reads.Load(), p.Errors)
	}
	if p := w.plan(t, plan.Config{Granted: grants("shop.list"), Bound: true}); len(p.Errors) != 0 || w.shop.reads.Load() != 2 {
		t.Errorf("bound, and granted: %d reads in all, errors %v; want one more", w.shop.reads.Load(), p.Errors)
	}
}

// A part of a page has no frame and no style of its own, no more rows and bytes than it may, and
// says what it leaves out.
func TestWritePart(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Workflows: []keep.WorkflowName{"orders"}}
	for i := range 5 {
		payload, err := json.Marshal(map[string]string{"note": fmt.Sprintf("<b>%d", i) + strings.Repeat("ä", 200)})
		noError(t, err)
		p.Mutations = append(p.Mutations, plan.Mutation{Workflow: "orders", Handler: "send", Tool: keep.ToolName(fmt.Sprintf("shop.send%d", i)), Payload: payload})
	}
	var part, whole strings.Builder
	noError(t, p.WritePart(&part, 2, 64))
	noError(t, p.WriteHTML(&whole))
	for text, want := range map[string]bool{
		"<html": false, "<style": false, "shop.send1": true, "shop.send2": false, "And 3 more.": true, "<b>": false, strings.Repeat("ä", 10) + "…": true, strings.Repeat("ä", 40): false,
	} {
		if strings.Contains(part.String(), text) != want {
			t.Errorf("the part has %q: %t, want %t\n%s", text, !want, want, part.String())
		}
	}
	for bytes := 60; bytes < 64; bytes++ { // in the middle of a letter, too
		part.Reset()
		if noError(t, p.WritePart(&part, 2, bytes)); !utf8.ValidString(part.String()) || strings.Contains(part.String(), "\ufffd") {
			t.Errorf("a value of %d bytes ends in half a letter", bytes)
		}
	}
	if s := whole.String(); !strings.Contains(s, "<html") || !strings.Contains(s, "shop.send4") || strings.Contains(s, "more.") || !strings.Contains(s, strings.Repeat("ä", 200)) {
		t.Errorf("the page of its own is not whole:\n%s", s)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
