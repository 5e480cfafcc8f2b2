package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// maxShown is how much of a call's params a question shows, in bytes.
const maxShown = 2000

// question returns what a person is asked about the run as it stands. moves are those
// of its call that are not stored yet.
func (x *execution) question(ctx context.Context, kind keep.EscalationKind, f *keep.Failure, now time.Time, moves []keep.Move) keep.Escalation {
	q := keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: kind, Workflow: x.a.name, Run: x.run.ID,
		Mutation: x.run.Mutation, Item: cmp.Or(x.mut.Item, x.item), Title: x.run.Title, Why: f.Error(), CreatedAt: now,
	}
	if x.mut.Key != "" {
		q.Attempted = fmt.Sprintf("%s on %s with %s", x.mut.Tool, x.mut.Target, cut(string(x.mut.Payload), maxShown))
		q.Title = cmp.Or(q.Title, x.mut.Title)
	} else {
		q.Attempted = x.attempted()
	}
	x.ask(ctx, &q, kind)
	if q.AboutDoubt() {
		// What a question states comes from what happened; what cannot be read now it
		// does not state.
		if before, err := x.e.store.History(ctx, x.mut.Key); err == nil {
			moves = append(before, moves...)
			if !ledger.ToolMissing(x.mut.Error) { // else the last asked nobody
				q.Why += asked(moves)
			}
		}
		q.VerifyByHand = x.verifyByHand(moves)
	}
	return q
}

// attempted names the run, with how far it came.
func (x *execution) attempted() string {
	return fmt.Sprintf("run %s of %s %s, version %s, phase %s", x.run.ID, x.run.Kind, x.run.Handler, x.run.Version, x.run.Phase)
}

// asked says how often the service was asked about a call.
func asked(moves []keep.Move) string {
	switch n := ledger.Lookups(moves); n {
	case 0:
		return "; the service was not asked what became of it"
	case 1:
		return "; the service was asked once what became of it"
	default:
		return fmt.Sprintf("; the service was asked %d times what became of it", n)
	}
}

// ask fills in the question and the choices of its kind.
func (x *execution) ask(ctx context.Context, q *keep.Escalation, kind keep.EscalationKind) {
	handler := fmt.Sprintf("%s of workflow %s", x.run.Handler, x.a.name)
	switch kind {
	case keep.AskPermission, keep.AskUnknownOutcome:
		if !lifecycle.Unknown(x.mut.State) {
			q.Question = fmt.Sprintf("%s was refused. %s, then retry %s.", x.what(), remedy(x.run.Error), handler)
			break
		}
		q.Question = fmt.Sprintf("Did %s on %s happen? Keep cannot tell, and does not send it again until you decide.", x.mut.Tool, x.mut.Target)
		if kind == keep.AskPermission {
			q.Question = fmt.Sprintf("Sending %s on %s again was refused, and whether the first call happened is not known. %s, then check again: its key is kept.",
				x.mut.Tool, x.mut.Target, remedy(x.mut.Error))
		}
		q.CanVerify = x.canBeAsked()
		if diff := x.e.tools.howItDiffers(x.mut); diff != "" {
			q.Why += "\n" + diff
		}
		if q.CanVerify {
			q.Choices = append(q.Choices, keep.Choice{Action: keep.CheckAgain, Label: "Check again", Effect: "asks the service again what happened; " + x.lookupEffect()})
		}
		q.Choices = append(q.Choices,
			keep.Choice{Action: keep.DidNotHappen, Label: "It didn't happen", Effect: x.didNotHappenEffect(ctx)},
			keep.Choice{Action: keep.Happened, Label: "It happened", Effect: x.happenedEffect(), Result: x.resultNeed()},
			keep.Choice{Action: keep.Skip, Label: "Skip", Effect: x.skipEffect()})
		return
	case keep.AskItem:
		q.Question = fmt.Sprintf("Item %q of %s was handled before with other content. What should become of it?", q.Item, handler)
		// What would be sent is whole: nothing is done again that a person cannot see all of.
		q.Attempted = fmt.Sprintf("%s on %s was applied at %s with %s\nnow it would be sent with %s", x.mut.Tool, x.mut.Target,
			x.mut.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC"), cut(string(x.mut.Payload), maxShown), x.wouldSend)
		q.Why = fmt.Sprintf("what was sent and what the %s now says differ, and nothing was sent again\n%s", writtenAs(x.v.Definition),
			differences(x.mut.Payload, x.wouldSend, "\n", 20))
		q.Choices = append(q.Choices,
			keep.Choice{Action: keep.Reprocess, Label: "Reprocess", Effect: "does the whole item again as a new attempt, sending what it now says"},
			keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "marks the item skipped; what was sent before stays as it is"})
		return
	case keep.AskPrecondition:
		if lifecycle.IsHandlerGone(x.run) {
			x.askForHandler(q)
			return
		}
		q.Question = fmt.Sprintf("Something that %s needs is missing. Provide it, then retry.", handler)
	case keep.AskRetries:
		q.Question = fmt.Sprintf("%s failed %d times in a row. Should it keep trying?", handler, x.run.Retries+1)
	case keep.AskLogic:
		q.Question = fmt.Sprintf("The %s of %s is wrong, or its data is. Deploy a corrected version, or decide what to do with this run.", writtenAs(x.v.Definition), handler)
	case keep.AskInternal:
		q.Question = fmt.Sprintf("Keep itself failed while it worked on %s. Please report it, then retry.", handler)
		if f := x.run.Error; f != nil && f.Code == codePanic {
			q.Question = fmt.Sprintf("The connector of %s panicked, or ended its goroutine, while %s called it. Fix it, or report it if it is one of Keep's, then retry.", f.Tool, handler)
		}
	default:
		q.Question = fmt.Sprintf("%s cannot continue by itself.", handler)
	}
	q.Choices = append(q.Choices, keep.Choice{Action: keep.Retry, Label: "Retry", Effect: x.retryEffect()})
	if x.run.Kind == keep.Consumer && !lifecycle.Settled(x.mut.State) && !lifecycle.Unknown(x.mut.State) {
		q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "ends this run without a call; its events are marked skipped"})
	}
	if q.Item != "" {
		q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "marks the item skipped; the job continues with the others"})
	}
}

// writtenAs names what has the handlers of a version.
func writtenAs(d keep.Definition) string {
	if d.Go {
		return "program"
	}
	return "script"
}

// remedy says what a person can do about a refusal.
func remedy(f *keep.Failure) string {
	if f != nil {
		switch f.Code {
		case keep.CodeUnauthenticated:
			return "Renew the credential"
		case keep.CodeNotGranted:
			return "Give the call to the workflow if it may make it (keep grants give)"
		case keep.CodeForbidden:
			return "Give the credential the right to do this"
		case keep.CodeToolStopped:
			return "Accept the tool as it is now if it may be called (keep gateway tools accept)"
		case keep.CodeBudgetAmount:
			return "Correct the workflow or the budget"
		}
	}
	return "Fix the permission or the credential"
}

// canBeAsked reports whether the outcome of the call can be asked for, now or when a
// connection that is missing is back.
func (x *execution) canBeAsked() bool {
	t, fact := x.e.tools.asker(x.mut)
	return t != nil || fact.Evidence == ledger.Unsure
}

// what names the thing that failed.
func (x *execution) what() string {
	if x.run.Error != nil && x.run.Error.Tool != "" {
		return string(x.run.Error.Tool)
	}
	return string(x.run.Handler)
}

// verifyByHand says where a person finds out what became of a call with that history.
func (x *execution) verifyByHand(moves []keep.Move) string {
	switch t, then := x.e.tools.known(x.mut.Tool), x.mut.SentAs().Verify; {
	case (t == nil || t.moved(x.mut)) && then != "": // where it was sent, and not where the tool sends now
		return then
	case t != nil && !t.moved(x.mut) && t.spec.VerifyByHand != "":
		return t.spec.VerifyByHand
	}
	sent, carried := "It was sent", "the call carried the key "
	if !ledger.Sent(moves) { // the host died, perhaps before it sent anything
		sent, carried = "If it was sent, then", "the call would carry the key "
	}
	text := fmt.Sprintf("Look in the service behind %s for %s", x.mut.Tool, x.mut.Target)
	if x.e.tools.carriedToken(x.mut) {
		text += "; " + carried + x.mut.Token
	}
	return fmt.Sprintf("%s. %s at %s or later.", text, sent, x.mut.CreatedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func (x *execution) retryEffect() string {
	switch start, fresh := lifecycle.StartOf(x.run, x.mut); {
	case start == lifecycle.FromNext:
		return "runs next again with the stored result; nothing is sent"
	case start == lifecycle.FromMutate:
		return "makes the call again with " + x.sameData()
	case fresh:
		return "starts again from prepare with what the topics then hold"
	default:
		return "starts the handler again"
	}
}

// notUndone says what asking about a call does that would undo a later one.
const notUndone = "sends nothing while a later call may have set something else; else "

// lookupEffect says what asking about the call sends. A place that is not configured any more is asked by no call.
func (x *execution) lookupEffect() string {
	if t := x.e.tools.known(x.mut.Tool); t != nil && t.moved(x.mut) {
		return "sends nothing"
	}
	if ledger.SetSince(x.mut.Error) {
		return notUndone + lifecycle.LookupEffect(x.mut)
	}
	return lifecycle.LookupEffect(x.mut)
}

func (x *execution) didNotHappenEffect(ctx context.Context) string {
	twice, t := "", x.e.tools.known(x.mut.Tool)
	if t != nil && t.moved(x.mut) {
		return x.movedEffect()
	}
	if ledger.SetSince(x.mut.Error) {
		if x.direct {
			return "sends nothing now; if the agent makes the call again, asks you once more before it is sent over the later one"
		}
		return "asks you once more before the call is sent over the later one"
	}
	switch {
	case x.mut.Level == keep.LevelClaim && !ledger.OfAnotherUser(x.mut.Error):
	case !x.sameKey():
		twice = "; if it did happen, it happens twice"
	case t.spec.Level == keep.LevelKey && t.spec.KeyLasts > 0:
		twice = fmt.Sprintf("; the service knows the key for %s: if it did happen longer ago than that, it happens twice", t.spec.KeyLasts)
	}
	if asked, _ := x.e.tools.asker(x.mut); asked != nil && asked.spec.Level != keep.LevelKey {
		shows := "shows the call"
		if !asked.spec.Marked && x.besideAnother(ctx) {
			shows = "answers for the call by its key"
		}
		twice += ". The service is asked once more before that: if it " + shows + ", that counts, and nothing is sent"
	}
	if x.direct {
		return "sends nothing now; if the agent makes the call again, it is sent with " + x.sameData() + twice
	}
	return "sends the call again, with " + x.sameData() + twice
}

// besideAnother reports whether a person wanted the call made again beside an equal one, or whether that is not known now.
func (x *execution) besideAnother(ctx context.Context) bool {
	answers, err := x.answers(ctx, keep.AskAlreadyDone)
	hash := uniqueHash(ledger.Call{Key: x.mut.Key, PayloadHash: x.mut.PayloadHash})
	return err != nil || slices.ContainsFunc(answers, func(q keep.Escalation) bool {
		return q.PayloadHash == hash && q.Decision.Action == keep.DoAgain
	})
}

// movedEffect is didNotHappenEffect for a tool that sends in another way than the call was sent.
func (x *execution) movedEffect() string {
	text := "asks you once more, since the call would be sent another way"
	if x.mut.Level == keep.LevelKey || x.e.tools.carriedToken(x.mut) {
		text += ", where its key may not be known"
	}
	if text += "; if it did happen, it happens twice"; x.direct {
		text = "sends nothing now; if the agent makes the call again, " + text
	}
	return text
}

// sameData says what the call has in common with the one before when it is made again.
func (x *execution) sameData() string {
	if x.sameKey() {
		return "the same data and the same key"
	}
	return "the same data"
}

// sameKey reports whether the call had the host's key with it, and has it again, as the same user's.
func (x *execution) sameKey() bool {
	if ledger.OfAnotherUser(x.mut.Error) {
		return false
	}
	t := x.e.tools.known(x.mut.Tool)
	keyed := t != nil && x.mut.Level == keep.LevelKey && t.spec.Level == keep.LevelKey && !t.spec.Sets
	return t != nil && (keyed || t.spec.CarriesToken && x.e.tools.carriedToken(x.mut))
}

func (x *execution) happenedEffect() string {
	if x.direct {
		return "the agent gets the result when it makes the call again or asks for it; sends nothing"
	}
	if x.run.Kind == keep.Consumer {
		return "continues as if the answer had come: next is told that the call was applied; sends nothing"
	}
	return "continues as if the answer had come: the item's handler gets the result; sends nothing"
}

func (x *execution) skipEffect() string {
	if x.direct {
		return "closes the question without an answer; the agent is told so, and nothing is sent"
	}
	if x.run.Kind == keep.Consumer {
		return "continues without knowing: next is told that the call was skipped, and its events are marked skipped"
	}
	return "continues without knowing: the item is marked skipped"
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
