package engine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/ledger"
	"github.com/keep-run/keep/lifecycle"
)

// maxShown is how much of a call's params a question shows, in bytes.
const maxShown = 2000

// question returns what a person is asked about the run as it stands.
func (x *execution) question(kind keep.EscalationKind, f *keep.Failure, now time.Time) keep.Escalation {
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: kind, Workflow: x.a.name, Run: x.run.ID,
		Mutation: x.run.Mutation, Item: cmp.Or(x.mut.Item, x.item), Title: x.run.Title, Why: f.Error(), CreatedAt: now,
	}
	if x.mut.Key != "" {
		q.Attempted = fmt.Sprintf("%s on %s with %s", x.mut.Tool, x.mut.Target, cut(string(x.mut.Payload), maxShown))
		if q.Title == "" {
			q.Title = x.mut.Title
		}
	} else {
		q.Attempted = fmt.Sprintf("run %s of %s %s, version %s, phase %s", x.run.ID, x.run.Kind, x.run.Handler, x.run.Version, x.run.Phase)
	}
	x.ask(&q, kind)
	return q
}

// ask fills in the question and the choices of its kind.
func (x *execution) ask(q *keep.Escalation, kind keep.EscalationKind) {
	handler := fmt.Sprintf("%s of workflow %s", x.run.Handler, x.a.name)
	switch kind {
	case keep.AskUnknownOutcome:
		q.Question = fmt.Sprintf("Did %s on %s happen? Keep cannot tell, and sends nothing until you decide.", x.mut.Tool, x.mut.Target)
		q.CanVerify = x.mut.CanReconcile && x.canBeAsked()
		q.VerifyByHand = x.verifyByHand()
		if q.CanVerify {
			q.Choices = append(q.Choices, keep.Choice{Action: keep.CheckAgain, Label: "Check again",
				Effect: "asks the service again what happened; sends nothing"})
		}
		q.Choices = append(q.Choices,
			keep.Choice{Action: keep.DidNotHappen, Label: "It didn't happen",
				Effect: "sends the call again, with the same data and the same key"},
			keep.Choice{Action: keep.Skip, Label: "Skip", Effect: x.skipEffect()})
		return
	case keep.AskItem:
		q.Question = fmt.Sprintf("Item %q of %s was handled before with other content. What should become of it?", q.Item, handler)
		q.Attempted = fmt.Sprintf("%s on %s was applied at %s with %s\nnow it would be sent with %s", x.mut.Tool, x.mut.Target,
			x.mut.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC"), cut(string(x.mut.Payload), maxShown), cut(string(x.wouldSend), maxShown))
		q.Why = fmt.Sprintf("what was sent and what the script now says differ, and nothing was sent again\n%s",
			differences(x.mut.Payload, x.wouldSend, "\n", 20))
		q.Choices = append(q.Choices,
			keep.Choice{Action: keep.Reprocess, Label: "Reprocess", Effect: "does the whole item again as a new attempt, sending what it now says"},
			keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "marks the item skipped; what was sent before stays as it is"})
		return
	case keep.AskPermission:
		q.Question = fmt.Sprintf("%s was refused. Mend the permission or the secret, then let %s try again.", x.what(), handler)
	case keep.AskPrecondition:
		q.Question = fmt.Sprintf("Something that %s needs is not there. Put it right, then let it try again.", handler)
	case keep.AskRetries:
		q.Question = fmt.Sprintf("%s failed %d times in a row. Should it go on trying?", handler, x.run.Retries+1)
	case keep.AskLogic:
		q.Question = fmt.Sprintf("The script of %s is wrong, or its data is. Deploy a corrected version, or decide what to do with this run.", handler)
	case keep.AskInternal:
		q.Question = fmt.Sprintf("Keep itself failed while it worked on %s. Please report it; then let it try again.", handler)
	default:
		q.Question = fmt.Sprintf("%s cannot go on by itself.", handler)
	}
	q.Choices = append(q.Choices, keep.Choice{Action: keep.Retry, Label: "Retry", Effect: x.retryEffect()})
	if x.run.Kind == keep.Consumer && !lifecycle.Settled(x.mut.State) && !lifecycle.Unknown(x.mut.State) {
		q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "ends this run without a call; its events are marked skipped"})
	}
	if q.Item != "" {
		q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "marks the item skipped; the job goes on with the others"})
	}
}

// canBeAsked reports whether the tool of the call still has its lookups: an
// upgrade may have taken them away.
func (x *execution) canBeAsked() bool {
	t := x.e.tools.byName[x.mut.Tool]
	return t != nil && t.canReconcile()
}

// what names the thing that failed.
func (x *execution) what() string {
	if x.run.Error != nil && x.run.Error.Tool != "" {
		return string(x.run.Error.Tool)
	}
	return string(x.run.Handler)
}

func (x *execution) verifyByHand() string {
	if t := x.e.tools.byName[x.mut.Tool]; t != nil && t.spec.VerifyByHand != "" {
		return t.spec.VerifyByHand
	}
	return fmt.Sprintf("Look in the service behind %s for %s; the call carried the key %s, at %s.",
		x.mut.Tool, x.mut.Target, x.mut.Token, x.mut.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func (x *execution) retryEffect() string {
	switch start, fresh := lifecycle.StartOf(x.run, x.mut.State); {
	case start == lifecycle.FromNext:
		return "runs next again with the stored result; nothing is sent"
	case start == lifecycle.FromMutate:
		return "makes the call again with the same data and the same key"
	case fresh:
		return "starts again from prepare with what the topics then hold"
	default:
		return "starts the handler again"
	}
}

func (x *execution) skipEffect() string {
	if x.run.Kind == keep.Consumer {
		return "goes on without knowing: next is told that the call was skipped, and its events are marked skipped"
	}
	return "goes on without knowing: the item is marked skipped"
}

// differences says where two payloads differ.
func differences(old, now []byte, between string, limit int) string {
	edits, all := ledger.Edits(old, now, limit)
	lines := make([]string, 0, len(edits)+1)
	for _, e := range edits {
		lines = append(lines, e.String())
	}
	if all > len(edits) {
		lines = append(lines, fmt.Sprintf("and %d more", all-len(edits)))
	}
	return strings.Join(lines, between)
}

// cut returns s, or its beginning and how much is missing.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", keep.CutTitle(s[:n]), len(s))
}
