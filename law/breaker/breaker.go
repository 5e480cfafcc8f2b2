// Package breaker decides when calls of a tool fail so often that no more are made, in any
// workflow, until a person says so.
//
// It counts failures of one cause, which is a class and a code, within a time that slides. What succeeds
// in between changes nothing: a service that refuses every second call of a kind is no better. Failures
// that go away by themselves, and doubts, are a matter of retries, lookups and outages; when these are used
// up, and a person is asked, that counts.
package breaker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// A State is what the users of a tool share. Its zero value lets all calls through.
type State struct {
	Failed map[string][]time.Time `json:"failed,omitempty"` // by cause, newest last
	Open   *Open                  `json:"open,omitempty"`   // nil: calls are made
	Asked  int                    `json:"asked,omitempty"`  // questions that were asked about it
}

// Open is why no calls are made.
type Open struct {
	Since time.Time `json:"since"`
	Cause string    `json:"cause"` // such as "logic http-422"
	N     int       `json:"n"`     // failures
	Why   string    `json:"why"`   // the message of the last failure
}

// CauseOf names what failures are counted by.
func CauseOf(f *keep.Failure) string { return string(f.Class) + " " + f.Code }

// ownRefusals are codes of calls that Keep refuses for a reason of their script, their workflow, their account or their
// connection. They say nothing about the tool.
var ownRefusals = []string{keep.CodeBreaker, keep.CodeBudget, keep.CodeBudgetAmount, keep.CodeLimit, keep.CodeNotGranted, keep.CodeReconnect, keep.CodeSameUser, keep.CodeAnotherUser, keep.CodeToolChanged, keep.CodeToolStopped,
	keep.CodeSetSince, keep.CodeSentAgain, "call-unmatched", "item-done", "not-a-read", "other-tool", "params-too-large", "two-mutations"}

// Counts reports whether a failure of a call counts. asks says that a person is asked because of it.
func Counts(f *keep.Failure, asks bool) bool {
	if slices.Contains(ownRefusals, f.Code) {
		return false
	}
	return asks || f.Class != keep.ClassTransient && f.Class != keep.ClassUnknown
}

// maxCauses bounds the causes that are counted beside each other (law: bounded).
const maxCauses = 20

// Report returns s after a failure at now. The causes of which none is recent any more are forgotten.
func Report(s State, b keep.Breaker, f *keep.Failure, now time.Time) State {
	if b.Failures <= 0 || s.Open != nil {
		return s
	}
	cause := CauseOf(f)
	failed := map[string][]time.Time{cause: recent(s.Failed[cause], b, now)}
	for _, other := range newestFirst(s.Failed) {
		if times := recent(s.Failed[other], b, now); len(times) > 0 && other != cause && len(failed) < maxCauses {
			failed[other] = times
		}
	}
	failed[cause] = append(failed[cause], now)
	s.Failed = failed
	if n := len(failed[cause]); n >= b.Failures {
		s.Failed, s.Open = nil, &Open{Since: now, Cause: cause, N: n, Why: f.Message}
		s.Asked++
	}
	return s
}

// recent returns the times that still count.
func recent(times []time.Time, b keep.Breaker, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return !at.After(now.Add(-b.Within)) })
}

// newestFirst returns the causes, those that failed last first.
func newestFirst(failed map[string][]time.Time) []string {
	causes := make([]string, 0, len(failed))
	for cause, times := range failed {
		if len(times) > 0 {
			causes = append(causes, cause)
		}
	}
	slices.SortFunc(causes, func(a, b string) int {
		ta, tb := failed[a], failed[b]
		if c := tb[len(tb)-1].Compare(ta[len(ta)-1]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return causes
}

// Close returns s as a person leaves it who lets calls through: failures are counted anew.
func Close(s State) State { return State{Asked: s.Asked} }

// questionPrefix begins the ids of questions about tools.
const questionPrefix = "esc_breaker_"

// QuestionID returns the id of the one question about a tool whose calls are stopped.
func QuestionID(t keep.ToolName, s State) keep.EscalationID {
	return keep.EscalationID(fmt.Sprintf("%s%s_%d", questionPrefix, t, s.Asked))
}

// Question returns what a person is asked about a tool whose calls are stopped: the run of w failed, or waits.
func Question(t keep.ToolName, s State, w keep.WorkflowName, run keep.RunID, now time.Time) keep.Escalation {
	calls := "1 call"
	if s.Open.N != 1 {
		calls = fmt.Sprintf("%d calls", s.Open.N)
	}
	return keep.Escalation{
		ID: QuestionID(t, s), Kind: keep.AskBreaker, Workflow: w, Run: run, CreatedAt: now,
		Question:  fmt.Sprintf("%s of %s failed alike, and no more are made in any workflow. Let calls through again?", calls, t),
		Attempted: fmt.Sprintf("calls of %s (%s)", t, s.Open.Cause),
		Why:       s.Open.Sentence(t) + ". Outcomes that are in doubt are still looked up; the questions about the calls that failed stay.",
		Choices: []keep.Choice{{Action: keep.Retry, Label: "Let calls through",
			Effect: "what waits for it continues, and failures are counted anew"}},
	}
}

// ToolOf returns the tool that a question is about.
func ToolOf(id keep.EscalationID) keep.ToolName {
	name := strings.TrimPrefix(string(id), questionPrefix)
	return keep.ToolName(name[:max(strings.LastIndexByte(name, '_'), 0)])
}

// Sentence says why no calls are made.
func (o *Open) Sentence(t keep.ToolName) string {
	return fmt.Sprintf("calls of %s are stopped in all workflows, since %d of them failed alike (%s): %s",
		t, o.N, o.Cause, strings.TrimRight(o.Why, "."))
}
