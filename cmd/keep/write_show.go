package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/draft"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// An authoredDraft is a draft that is shown, stored and decided about.
type authoredDraft struct {
	*author
	draft.Draft
	report *authored
	intent string
	file   string
	change *editing // nil: the workflow is new
}

// finish stores the draft as a version that waits, writes the files, shows both and asks. In
// this order: what a crash leaves is a version that waits, and files that are whole; a host that
// finds the script leaves it waiting.
func (d *authoredDraft) finish(ctx context.Context) error {
	r, w := d.report, d.Checked.Workflow
	r.Workflow, r.Note, r.State = &w.Name, d.Note, "waiting"
	if r.Plan = any(d.Plan); d.Plan == nil {
		r.Plan, r.NoPlan = nil, &d.NoPlan
	}
	for _, t := range d.Tools() {
		r.Grants = append(r.Grants, string(t))
	}
	// Their names are known only now, and a model takes minutes.
	if err := d.added(); err != nil {
		return err
	}
	if err := d.propose(ctx); err != nil {
		return err
	}
	if d.html != "" && d.Plan != nil {
		if err := writePlan(d.html, d.Plan); err != nil {
			return err
		}
	}
	root, files, err := d.files()
	if err != nil {
		return err
	}
	if d.change == nil {
		err = d.store(root, files, func() error { return nil })
	} else {
		err = d.change.compare(ctx, d)
	}
	if err != nil {
		return err
	}
	if !d.JSON {
		if err := d.show(); err != nil {
			return err
		}
	}
	agreed, err := d.agree(ctx)
	if err != nil {
		return err
	}
	if err := d.decide(ctx, root, files, agreed); err != nil {
		return err
	}
	return d.end(agreed)
}

// decide does what the person answered. A change that replaces files is not written before it is agreed
// to: until then the files are those of the version that works.
func (d *authoredDraft) decide(ctx context.Context, root string, files []project.File, agreed bool) error {
	accept := func() error { return nil }
	if agreed {
		accept = func() error { return d.accept(ctx) }
	}
	replaces := slices.ContainsFunc(files, func(f project.File) bool { return f.Was != "" })
	if d.change == nil || replaces && !agreed && !d.force {
		return accept()
	}
	return d.store(root, files, accept)
}

// script returns the draft as a host takes it. Its file is named relative to the project, as a deploy
// of that file would name it: then the version and the file are the same script.
func (d *authoredDraft) script() (api.Script, error) {
	_, name, err := d.where(d.file)
	intent := d.intent
	if d.change != nil {
		intent = d.change.intent(d.intent)
	}
	return api.Script{File: name, Source: d.Source, Imports: d.Files, Intent: intent}, err
}

// origin says who wrote the draft.
func (d *authoredDraft) origin() keep.Origin {
	if d.change != nil {
		return keep.OriginEdit
	}
	return keep.OriginWrite
}

// propose stores the draft as a version that waits for the person. The API makes no proposal
// current by itself, whatever the workflow was granted. A change is proposed over the version that it
// was made from, and no other.
func (d *authoredDraft) propose(ctx context.Context) error {
	s, err := d.script()
	if err != nil {
		return err
	}
	nothing := exit.Failedf("the model changed nothing: this script is current already")
	var over *string
	if d.change != nil {
		if d.change.Source == d.Source && maps.Equal(d.change.Files, d.Files) {
			return nothing // only the words that asked for it are new
		}
		over = &d.change.Version
	}
	return d.agent.deploying(ctx, func(c *api.Client) error {
		p, err := c.Propose(ctx, d.Checked.Workflow.Name, api.NewProposal{Script: s, Origin: d.origin(), Over: over, Note: d.Note,
			Attempts: d.report.Attempts, Tokens: d.report.Tokens, Cost: d.report.Cost})
		if errors.Is(err, keep.ErrStale) {
			return exit.Failedf("somebody deployed meanwhile, and the change was made from version %s: %w; give the same command again", *over, err)
		}
		if err != nil {
			return fmt.Errorf("store the script: %w", err)
		}
		// It is what the current version has: there is nothing to decide.
		if p.Waiting == nil {
			return nothing
		}
		d.report.Version, d.report.Question, d.report.Proposal = &p.Waiting.Version, &p.Waiting.Question, &p.Waiting.Proposal
		return nil
	})
}

// store writes the files once accept has made their version current, if it does: a host that finds
// files before leaves them waiting. If the version cannot become current any more, or a file was saved
// meanwhile, none is written. They are if it is not known what became of the version: it may be current.
func (d *authoredDraft) store(root string, files []project.File, accept func() error) error {
	var unsure error
	err := project.WriteTogether(root, files, func() error {
		err := accept()
		if _, certain := errors.AsType[*notDeployedError](err); certain {
			return err
		}
		unsure = err
		return nil
	})
	if err != nil {
		return err
	}
	if d.report.Draft != nil {
		if err := os.RemoveAll(*d.report.Draft); err != nil {
			return fmt.Errorf("remove the draft: %w", err)
		}
	}
	tests, grants := besides(d.file)
	d.report.File, d.report.Tests, d.report.GrantFile, d.report.Draft = &d.file, &tests, &grants, nil
	if unsure != nil {
		return fmt.Errorf("%w. The files are written, since the version may be current", unsure)
	}
	return nil
}

// show shows a person what was written and what it would do. All of it is from a model, and is
// cleaned as what strangers write.
func (d *authoredDraft) show() error {
	w, r := d.Out, d.report
	fmt.Fprintf(w, "%s: %s\n", d.OutInk.Bold(string(*r.Workflow)), terminal.Clean(d.Note))
	for _, q := range r.Questions {
		fmt.Fprintf(w, "asked: %s\n  you: %s\n", terminal.Clean(q.Question), terminal.Clean(q.Answer))
	}
	if d.change == nil {
		// No line of it can look like one of this command.
		fmt.Fprintf(w, "\n  %s\n\n", strings.ReplaceAll(strings.TrimRight(terminal.CleanText(d.Source), "\n"), "\n", "\n  "))
	} else if err := d.change.show(d); err != nil {
		return err
	}
	fmt.Fprintf(w, "It may call: %s\n", strings.Join(append(r.Grants, none(r.Grants)...), ", "))
	for _, t := range d.Checked.Effects.Findings {
		fmt.Fprintf(w, "%s %s\n", d.OutInk.Yellow("warning:"), terminal.Clean(t.Text()))
	}
	d.PrintProblems(d.Checked.Problems)
	if d.Plan == nil {
		fmt.Fprintf(w, "%s no plan could be made: %s\n", d.OutInk.Red("plan:"), terminal.Clean(d.NoPlan))
		return nil
	}
	fmt.Fprintln(w, "\nWhat it would do now:")
	(&planner{app: d.app}).text(w, d.Plan)
	return nil
}

// none is what is printed of an empty list.
func none(list []string) []string {
	if len(list) > 0 {
		return nil
	}
	return []string{"nothing"}
}

// agree asks the person whether the version may become current. Where nobody is there, or there
// is no plan to look at, it waits.
func (d *authoredDraft) agree(ctx context.Context) (bool, error) {
	if d.in == nil || d.Plan == nil {
		return false, nil
	}
	fmt.Fprintf(d.Err, "\nDeploy version %s of %s, and let it call this? Write yes: ", *d.report.Version, *d.report.Workflow)
	answer, err := d.line(ctx)
	if err != nil && !errors.Is(err, draft.ErrUnanswered) {
		return false, err
	}
	return answer == "yes", nil
}

// A notDeployedError says that the host refused to make a version current, and that it is not. After any other
// error of accept it may be.
type notDeployedError struct {
	workflow keep.WorkflowName
	version  string
	why      string
}

// Error says why, and what to do.
func (e *notDeployedError) Error() string {
	return fmt.Sprintf("version %s of %s was not deployed: %s. See keep workflows versions %s, and give the same command again", e.version, e.workflow, e.why, e.workflow)
}

// accept makes the version current. It answers the question as the person, not as the agent that
// proposed. Whoever was faster may have said the same.
func (d *authoredDraft) accept(ctx context.Context) error {
	return d.client().Call(ctx, d.cfg, d.opening(database.ToDecide), func(c *api.Client) error {
		_, err := c.Decide(ctx, *d.report.Question, api.DecisionRequest{Action: keep.Approve})
		refusal, ok := errors.AsType[*api.Problem](err)
		if !ok || refusal.Status >= http.StatusInternalServerError {
			return err
		}
		p, err := c.Proposal(ctx, *d.report.Proposal)
		if err != nil || p.State == api.ProposalActive {
			return err
		}
		why := fmt.Sprintf("it is %s by now", p.State)
		if p.State == api.ProposalWaiting {
			why = refusal.Error()
		}
		return &notDeployedError{p.Workflow, *d.report.Version, why}
	})
}

// end says how it ended, and returns the error that ends the command: status 4 if it waits.
func (d *authoredDraft) end(agreed bool) error {
	r := d.report
	if agreed {
		r.State = "current"
	}
	if d.JSON {
		if err := d.PrintJSON(r); err != nil {
			return err
		}
	} else {
		d.sayEnd(agreed)
	}
	if agreed {
		return nil
	}
	return exit.With(exit.NeedsPerson)
}

// sayEnd says what it took, where the texts are, and how to decide later.
func (d *authoredDraft) sayEnd(agreed bool) {
	r := d.report
	fmt.Fprintf(d.Err, "Written in %s, %d tokens", terminal.Plural(r.Attempts, "conversation"), r.Tokens)
	if r.Cost > 0 {
		fmt.Fprintf(d.Err, ", cost %.4g", r.Cost)
	}
	fmt.Fprintln(d.Err, ".")
	if r.File != nil {
		fmt.Fprintf(d.Err, "The files are %s, %s and %s.\n", *r.File, *r.Tests, *r.GrantFile)
	} else if r.Draft != nil {
		fmt.Fprintf(d.Err, "%s is as it was. The new texts are in %s: once you agree, put them in place before you run or deploy the file (--force does it at once).\n", d.file, *r.Draft)
	}
	if agreed {
		fmt.Fprintf(d.Err, "Version %s of %s is current.\n", *r.Version, *r.Workflow)
		return
	}
	fmt.Fprintf(d.Err, "Version %s of %s waits for you, and does nothing before: keep proposals show %s, and keep proposals accept %s\n",
		*r.Version, *r.Workflow, *r.Proposal, *r.Proposal)
}
