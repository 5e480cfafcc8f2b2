package grant_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// A question about a version says how to see its script, and that calls are granted if there are any.
func TestQuestionSaysWhatApprovingDoes(t *testing.T) {
	p := keep.Proposal{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 2}, Entry: "w.js"}, By: "bot", From: string(keep.OriginAgent)}
	for _, tools := range [][]keep.GrantedTool{nil, {{Tool: "bank.pay"}}} {
		p.Tools = tools
		q := grant.Question(p, "")
		effect := q.Choices[0].Effect
		if !strings.Contains(effect, "makes version 2.0 current") || strings.Contains(effect, "grants these calls") != (tools != nil) {
			t.Errorf("with %v: %q, %q", tools, q.Question, effect)
		}
		if !strings.Contains(q.Why, "keep proposals show w@2.0") {
			t.Errorf("with %v: %q", tools, q.Why)
		}
	}
}
