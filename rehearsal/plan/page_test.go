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
	if p := w.plan(t, plan.Config{Base: w.db, Now: now}); len(p.Reads) != 0 || len(p.Mutations) != 0 || w.shop.reads.Load() != reads {
		t.Errorf("without Due: reads %v, calls %q; want none before the producer is due", p.Reads, calls(p))
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
	}
	if after := snapshot(t, w.db); after != before {
		t.Errorf("the plan changed the database:\n%s\nwas\n%s", after, before)
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
