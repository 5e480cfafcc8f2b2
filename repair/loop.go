package repair

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/framed"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

// A Model answers; *llm.Client is one.
type Model interface {
	Ask(ctx context.Context, q llm.Request) (llm.Answer, llm.Usage, error)
}

// A Repairer asks a model for proposals and tries them.
type Repairer struct {
	Bench  *Bench
	Model  Model
	Name   string // of the model
	Limits law.Limits
}

// An Attempt is one conversation with the model, and what it brought.
type Attempt struct {
	N      int    // from 1
	Source string // that was proposed; empty: nothing was
	Note   string // of the model: its claim
	Tried  *Tried // nil: nothing was proposed
	Why    string // why it is not taken, a sentence without its end; empty: it is safe
	Turns  int
	Used   llm.Usage
}

// An Outcome is what a repair came to.
type Outcome struct {
	Attempts []Attempt // of this call
	Proposal *Attempt  // that is safe or waits for a person; nil: there is none
	Spent    law.Spent // with what was spent before
	Why      string    // why there is no proposal
}

// Repair asks until something is proposed that is not refused, or the limits are reached. Spent
// is what was used for the same signature before. done is called after each attempt, before the
// next one begins; if it fails, so does Repair. An error means that nobody knows what the
// attempt would have brought: the store or the sandbox failed, or ctx ended.
func (r *Repairer) Repair(ctx context.Context, failed keep.Run, spent law.Spent, done func(Attempt) error) (Outcome, error) {
	out := Outcome{Spent: spent}
	var tried []string
	for {
		if out.Why = r.Limits.Stop(out.Spent); out.Why != "" {
			return out, nil
		}
		a, err := r.Attempt(ctx, failed, out.Spent, tried)
		if err != nil {
			return out, err
		}
		out.Spent.Attempts, out.Spent.Tokens, out.Spent.Cost = a.N, out.Spent.Tokens+a.Used.Tokens(), out.Spent.Cost+a.Used.Cost
		out.Attempts = append(out.Attempts, a)
		if err := done(a); err != nil {
			return out, err
		}
		if a.Tried != nil && a.Tried.Verdict != law.Refused {
			out.Proposal = &a
			return out, nil
		}
		tried = append(tried, a.Why)
	}
}

// Attempt has one conversation about a run that failed. Spent is what was used before, and tried
// what came of it. What goes wrong with the model is in the attempt; an error is as in Repair.
func (r *Repairer) Attempt(ctx context.Context, failed keep.Run, spent law.Spent, tried []string) (Attempt, error) {
	base, err := r.Bench.Base(ctx, failed.Workflow, failed.Version)
	if err != nil {
		return Attempt{}, err
	}
	d, err := r.Bench.dossier(ctx, failed)
	if err != nil {
		return Attempt{}, err
	}
	d.Intent = base.Definition.Intent
	return r.attempt(ctx, base, failed, d, tried, spent)
}

// tools are what the model may call.
func tools() []llm.Tool {
	return []llm.Tool{
		{Name: "check", Description: "Says what is wrong with a script, if anything is. Changes nothing.",
			Params: json.RawMessage(`{"type":"object","required":["source"],"properties":{"source":{"type":"string","description":"the whole script"}}}`)},
		{Name: "propose", Description: "Proposes a script. It is tried, and taken or not; call this once.",
			Params: json.RawMessage(`{"type":"object","required":["source","note"],"properties":{"source":{"type":"string","description":"the whole script"},"note":{"type":"string","description":"what was wrong and what is changed, in a sentence"}}}`)},
	}
}

// attempt has one conversation. What goes wrong with the model is in the attempt.
func (r *Repairer) attempt(ctx context.Context, base Base, failed keep.Run, d dossier, tried []string, before law.Spent) (Attempt, error) {
	a := Attempt{N: before.Attempts + 1}
	if n := len(numbered(base.Source())); n > framed.MaxData { // the model hands over the whole text, and would leave the rest out
		a.Why = fmt.Sprintf("the script with the numbers of its lines has %d bytes, and a model is shown at most %d", n, framed.MaxData)
		return a, nil
	}
	text, err := prompt(base, d, tried)
	if err != nil {
		return a, err
	}
	q := llm.Request{Model: r.Name, System: instructions, Tools: tools(), Messages: []llm.Message{{Text: text}}}
	talk := llm.Conversation{Model: r.while(failed), Turns: law.Turns,
		Stop: func(used llm.Usage) string {
			return r.Limits.Stop(law.Spent{Attempts: before.Attempts, Tokens: before.Tokens + used.Tokens(), Cost: before.Cost + used.Cost})
		},
		Call: func(ctx context.Context, c llm.Call) (llm.Result, bool, error) {
			result, err := r.call(ctx, base, failed, c, &a)
			return result, a.Source != "", err
		},
	}
	end, err := talk.Run(ctx, q)
	a.Turns, a.Used = end.Turns, end.Used
	if a.Source == "" {
		a.Why = end.Why
	}
	return a, err
}

// current returns *keep.VersionError if the version that failed is not current any more.
func (r *Repairer) current(ctx context.Context, failed keep.Run) error {
	w, err := r.Bench.Store.Workflow(ctx, failed.Workflow)
	if err == nil && w.Version != failed.Version {
		err = &keep.VersionError{Workflow: failed.Workflow, Want: failed.Version, Current: w.Version}
	}
	return err
}

// A during is a model that is asked only while the version that failed is current.
type during struct {
	*Repairer
	failed keep.Run
}

func (r *Repairer) while(failed keep.Run) during { return during{r, failed} }

// Ask implements Model.
func (d during) Ask(ctx context.Context, q llm.Request) (llm.Answer, llm.Usage, error) {
	if err := d.current(ctx, d.failed); err != nil {
		return llm.Answer{}, llm.Usage{}, err
	}
	return d.Model.Ask(ctx, q)
}

// call does what the model asks for. A proposal is in the attempt afterwards.
func (r *Repairer) call(ctx context.Context, base Base, failed keep.Run, c llm.Call, a *Attempt) (llm.Result, error) {
	var in struct{ Source, Note string }
	if json.Unmarshal(c.Arguments, &in) != nil || in.Source == "" {
		return llm.Result{Text: "The call needs source, the text of the whole script.", Wrong: true}, nil
	}
	switch c.Name {
	case "check":
		_, why, err := r.Bench.Check(ctx, base, in.Source)
		if err != nil {
			return llm.Result{}, err
		}
		if len(why) == 0 {
			return llm.Result{Text: "Nothing is wrong with it."}, nil
		}
		text, _, err := framed.Encode(why)
		return llm.Result{Text: framed.Frame("It is what is wrong with the script.", text), Wrong: true}, err
	case "propose":
		t, err := r.Bench.Try(ctx, base, failed, in.Source)
		if err != nil {
			return llm.Result{}, err
		}
		a.Source, a.Note, a.Tried = in.Source, in.Note[:min(len(in.Note), keep.MaxNote)], &t
		if len(t.Reasons) > 0 {
			a.Why = fmt.Sprintf("%s: %s", t.Verdict, t.Reasons[0])
		}
		return llm.Result{}, nil
	}
	return llm.Result{Text: "There is no such tool: there are check and propose.", Wrong: true}, nil
}
