package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/law/schedule"
)

// Deploy makes a version current. If the script is the current one, nothing
// happens. A run that failed by logic is tried again with the new version; an
// unknown outcome stays as it is.
func (o *Operator) Deploy(ctx context.Context, d keep.Deployment) (keep.Version, error) {
	return o.deployOver(ctx, d, nil)
}

// Replace is Deploy for whoever knows which version he replaces; the zero Version
// means that the workflow is new. If another one is current when it is committed,
// here or on another host, nothing is changed and the error is *keep.VersionError; none if
// that one has the script already.
func (o *Operator) Replace(ctx context.Context, d keep.Deployment, over keep.Version) (keep.Version, error) {
	return o.deployOver(ctx, d, &over)
}

// deployOver deploys. Stores refuse a version that is not later than the current one,
// so what was read is still so when it is committed.
func (o *Operator) deployOver(ctx context.Context, d keep.Deployment, over *keep.Version) (keep.Version, error) {
	for {
		out, err := o.deploy(ctx, d, over, nil)
		if !errors.Is(err, keep.ErrStale) {
			return out.Version, err
		}
		// The workflow moved while we decided; look again.
	}
}

// deploy deploys once. The consent is nil if nothing is granted by this deploy.
func (o *Operator) deploy(ctx context.Context, d keep.Deployment, over *keep.Version, c *Consent) (Deployed, error) {
	now := o.now()
	b, err := o.before(ctx, d.Workflow)
	if err != nil {
		return Deployed{}, err
	}
	same, awaited := b.has(d, c), b.awaits(d, c)
	if over != nil && *over != b.workflow.Version {
		return o.deployedBefore(ctx, d, b, c, &keep.VersionError{Workflow: d.Workflow, Want: *over, Current: b.workflow.Version})
	}
	if c != nil && c.Await && awaited {
		return Deployed{Version: b.workflow.Version, Waiting: b.waiting}, nil
	}
	granted, err := o.consent(ctx, b.workflow, c, now)
	if err != nil {
		return Deployed{}, err
	}
	repairs := c != nil && c.Repair
	if p := b.waiting; repairs && p != nil && p.By != c.By {
		return Deployed{}, &WaitsError{*p}
	}
	d.Version, d.CreatedAt, d.Definition.Intent = b.next(repairs), now, b.intentOf(d)
	d.Definition = rename.Remember(d.Definition, b.current.Definition)
	if granted.asked && (!same || len(granted.lacking) > 0) {
		if p := b.waiting; awaited && slices.Equal(p.Tools, granted.lacking) {
			return Deployed{Version: b.workflow.Version, Waiting: p}, nil // it is not asked about again
		}
		return o.propose(ctx, d, b, granted.lacking, *c)
	}
	if repairs && b.waiting != nil { // another host proposed it meanwhile, and that waits for a person
		return Deployed{Version: b.workflow.Version, Waiting: b.waiting}, nil
	}
	var changes []keep.Change
	if same {
		d.Version = b.current.Version
	} else {
		if changes, err = o.newVersion(ctx, d, b.current, now); err != nil {
			return Deployed{}, err
		}
		changes = append(b.replaced(), changes...)
		if c != nil {
			changes = append(changes, deployedBy(d, keep.Decision{By: c.By, From: c.From}, now))
		}
	}
	if repairs && !same {
		changes = append(accepted(d, b, *c), changes...)
	}
	if granted.next != nil {
		granted.next.Version = d.Version
		changes = append(changes, keep.PutGrant{Grant: *granted.next})
	}
	if len(changes) > 0 {
		err = o.decided(ctx, d.Workflow, now, changes...)
	}
	if err != nil {
		return Deployed{}, err
	}
	return Deployed{Version: d.Version, Given: granted.given}, nil
}

// deployedBy returns the change that records who had a version become current.
func deployedBy(v keep.Deployment, d keep.Decision, now time.Time) keep.Change {
	d.Note = strings.TrimSuffix(fmt.Sprintf("version %s; %s", v.Version, d.Note), "; ")
	return decidedAbout(v.Workflow.Subject(), keep.Deployed, d, now)
}

// deployedBefore returns the current version if it has the script already and nothing remains to be granted, as
// when the answer to the same deploy was lost; or else stale. A repair is of the version that failed, and of no other.
func (o *Operator) deployedBefore(ctx context.Context, d keep.Deployment, b beforeDeploy, c *Consent, stale error) (Deployed, error) {
	if !b.has(d, c) || c != nil && c.Repair {
		return Deployed{}, stale
	}
	granted, err := o.consent(ctx, b.workflow, c, o.now())
	if err != nil {
		return Deployed{}, err
	}
	if granted.next != nil || len(granted.lacking) > 0 {
		return Deployed{}, stale
	}
	return Deployed{Version: b.current.Version}, nil
}

// beforeDeploy is what a deploy finds.
type beforeDeploy struct {
	workflow keep.Workflow   // only named if it is new
	current  keep.Deployment // zero: the workflow is new
	proposed []keep.Proposal // every one, without its code
	waiting  *keep.Proposal  // the one of them that waits, whole; nil: there is none
}

// before reads what a deploy finds.
func (o *Operator) before(ctx context.Context, name keep.WorkflowName) (b beforeDeploy, err error) {
	b.workflow, err = o.store.Workflow(ctx, name)
	switch {
	case err == nil:
		if b.current, err = o.store.Deployment(ctx, name, b.workflow.Version); err != nil {
			return b, err
		}
	case !isNotFound(err):
		return b, err
	}
	b.workflow.Name = name
	b.proposed, err = o.store.Proposals(ctx, name)
	if err != nil {
		return b, err
	}
	if i := slices.IndexFunc(b.proposed, func(p keep.Proposal) bool { return p.State == keep.ProposalWaiting }); i >= 0 {
		var p keep.Proposal
		p, err = o.store.Proposal(ctx, name, b.proposed[i].Version)
		b.waiting = &p
	}
	return b, err
}

// has reports whether the script of d is current, with what was said of it.
func (b beforeDeploy) has(d keep.Deployment, c *Consent) bool {
	return !b.workflow.Version.IsZero() && c.records(d, b.current)
}

// records reports whether a version that is there records what is deployed as d. What somebody sends is recorded as it
// was sent, comments and intent too. A file that a host finds, and a repair, have nothing new to say in the same code.
func (c *Consent) records(d, there keep.Deployment) bool {
	if there.Hash != d.Hash || there.Entry != d.Entry {
		return false
	}
	if c == nil || c.Await || c.Repair {
		return true
	}
	intent := d.Definition.Intent
	return (intent == "" || intent == there.Definition.Intent) && maps.Equal(there.Sources(), d.Sources())
}

// intentOf returns what a version is for: what it says, or else what the script was proposed
// for, or what the version before is for.
func (b beforeDeploy) intentOf(d keep.Deployment) string {
	intent := d.Definition.Intent
	if i := slices.IndexFunc(b.proposed, func(p keep.Proposal) bool { return p.Hash == d.Hash && p.Entry == d.Entry }); intent == "" && i >= 0 {
		intent = b.proposed[i].Definition.Intent
	}
	return cmp.Or(intent, b.current.Definition.Intent)
}

// awaits reports whether a person is asked about this very script.
func (b beforeDeploy) awaits(d keep.Deployment, c *Consent) bool {
	p := b.waiting
	return p != nil && p.Over == b.workflow.Version && c.records(d, p.Deployment)
}

// next returns the number of the next version: the next major one, or the next minor one of a
// repair, which mends the current one whatever else was proposed. One that was proposed is not
// given again.
func (b beforeDeploy) next(repair bool) keep.Version {
	last := b.current.Version
	for _, p := range b.proposed {
		if p.Version.After(last) && (!repair || p.Version.Major == last.Major) {
			last = p.Version
		}
	}
	if repair {
		return keep.Version{Major: last.Major, Minor: last.Minor + 1}
	}
	return keep.Version{Major: last.Major + 1}
}

// A WaitsError says that a repair is not proposed beside another version, which a person must
// decide about first.
type WaitsError struct{ Proposal keep.Proposal }

// Error names the version and its question.
func (e *WaitsError) Error() string {
	return fmt.Sprintf("version %s of %s waits for a person (question %s)", e.Proposal.Version, e.Proposal.Workflow, e.Proposal.Question)
}

// replaced returns the changes that end the wait of a proposal for a later version.
func (b beforeDeploy) replaced() []keep.Change {
	if b.waiting == nil {
		return nil
	}
	return []keep.Change{
		keep.EndProposal{Version: b.waiting.Version, State: keep.ProposalReplaced},
		keep.CloseEscalation{ID: b.waiting.Question},
	}
}

// accepted returns the changes that record a repair which becomes current at once: like one to
// which a person agrees, and nobody is asked.
func accepted(d keep.Deployment, b beforeDeploy, c Consent) []keep.Change {
	p := keep.Proposal{Deployment: d, Over: b.workflow.Version, By: c.By, From: c.From, State: keep.ProposalWaiting}
	p.Question = grant.QuestionID(p)
	return []keep.Change{keep.PutProposal{Proposal: p}, keep.EndProposal{Version: p.Version, State: keep.ProposalApproved}}
}

// newVersion returns the changes that make d current, after the version before.
func (o *Operator) newVersion(ctx context.Context, d, before keep.Deployment, now time.Time) ([]keep.Change, error) {
	changes := []keep.Change{keep.Deploy{Deployment: d}}
	states, err := o.store.Handlers(ctx, d.Workflow)
	if err != nil {
		return nil, err
	}
	for _, h := range d.Definition.Handlers {
		s, err := schedule.Deployed(h, states, before, o.policy.DefaultInterval, now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		s.Workflow = d.Workflow
		var over keep.HandlerState // a run may commit meanwhile
		if i := slices.IndexFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name && s.Kind == h.Kind }); i >= 0 {
			over = states[i]
		}
		changes = append(changes, keep.PutHandler{State: s, Over: &over})
	}
	unblock, err := o.unblock(ctx, d.Workflow, now)
	return append(changes, unblock...), err
}

// unblock returns the changes that let runs continue that failed by logic, or wait for an
// approval, which ends with the version that asked for it.
func (o *Operator) unblock(ctx context.Context, w keep.WorkflowName, now time.Time) ([]keep.Change, error) {
	runs, err := o.store.OpenRuns(ctx, w)
	if err != nil {
		return nil, err
	}
	var changes []keep.Change
	for _, run := range runs {
		next, yes := lifecycle.Deployed(run, now)
		if !yes {
			continue
		}
		changes = append(changes, keep.PutRun{Run: next})
		if !lifecycle.AwaitsApproval(run) {
			continue
		}
		asked, _, err := o.store.Escalations(ctx, keep.EscalationFilter{Workflow: w, Run: run.ID, Open: true}, keep.Page{})
		if err != nil {
			return nil, err
		}
		for _, q := range asked {
			if q.Kind == keep.AskApproval {
				changes = append(changes, keep.CloseEscalation{ID: q.ID})
			}
		}
	}
	return changes, nil
}
