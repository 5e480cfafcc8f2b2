package approval_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
)

func linked() keep.Escalation {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	return keep.Escalation{ID: "esc_1", Kind: keep.AskApproval, Workflow: "w", Run: "run_1", PayloadHash: "c0ffee", CreatedAt: at, ExpiresAt: at.Add(time.Hour),
		Approval: &keep.Approval{Version: keep.Version{Major: 1}}, Choices: []keep.Choice{{Action: keep.Approve}, {Action: keep.Reject}}}
}

// A code is for one question as it was asked, one sink and one store.
func TestLinkCode(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	code := approval.LinkCode(key, linked(), "webhook")
	if len(code) != 32 || code != approval.LinkCode(key, linked(), "webhook") {
		t.Errorf("code %q, want 32 characters, the same again", code)
	}
	seen := map[string]string{code: "itself"}
	for name, change := range map[string]func(*keep.Escalation){
		"id":       func(q *keep.Escalation) { q.ID = "esc_2" },
		"payload":  func(q *keep.Escalation) { q.PayloadHash = "c0ffef" },
		"version":  func(q *keep.Escalation) { q.Approval = &keep.Approval{Version: keep.Version{Major: 2}} },
		"end":      func(q *keep.Escalation) { q.ExpiresAt = q.ExpiresAt.Add(time.Second) },
		"asked at": func(q *keep.Escalation) { q.CreatedAt = q.CreatedAt.Add(time.Second) },
		"run":      func(q *keep.Escalation) { q.Run = "run_2" },
		"shifted":  func(q *keep.Escalation) { q.Workflow, q.Run = "wr", "un_1" },
	} {
		q := linked()
		change(&q)
		got := approval.LinkCode(key, q, "webhook")
		if other := seen[got]; other != "" {
			t.Errorf("another %s has the code of %s", name, other)
		}
		seen[got] = name
	}
	if seen[approval.LinkCode(key, linked(), "on_escalation")] != "" || seen[approval.LinkCode(append(key[:31:31], 'x'), linked(), "webhook")] != "" {
		t.Error("another sink, or another key, has the same code")
	}
}

// What a link decides is what an operator may, with one press, and never a second call.
func TestNotByLink(t *testing.T) {
	q := linked()
	q.Choices = nil
	for _, a := range keep.Actions() {
		q.Choices = append(q.Choices, keep.Choice{Action: a})
	}
	var got []string
	for _, a := range keep.Actions() {
		if approval.NotByLink(q, a, q.CreatedAt) == "" {
			got = append(got, string(a))
		}
	}
	if want := "check-again skip approve reject retry treat-as-done"; strings.Join(got, " ") != want {
		t.Errorf("a link decides %v, want %s", got, want)
	}
	if why := approval.NotByLink(q, keep.Approve, q.ExpiresAt); !strings.Contains(why, "the link ended at 2026-11-23 11:00:00 UTC") {
		t.Errorf("at its end: %q", why)
	}
	q.ExpiresAt = time.Time{}
	if end := approval.LinkEnds(q); !end.Equal(q.CreatedAt.Add(approval.LinkLife)) {
		t.Errorf("a question without an end: its link ends at %s", end)
	}
	q.Run = ""
	if choices := approval.ByLink(q); len(choices) != 0 {
		t.Errorf("a question about no run: a link offers %+v", choices)
	}
}
