package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// A Giver says who gives or takes a grant, and by which way.
type Giver struct {
	By   string
	From string // such as cli, keep.toml or api
}

// SetGrant gives a workflow a grant of these tools, in the place of the one that it has. If
// over is not nil, that one must be the one of its number, 0 if there is none, or the error
// is keep.ErrStale. A grant that says the same is not given again.
func (o *Operator) SetGrant(ctx context.Context, w keep.WorkflowName, tools []keep.GrantedTool, by Giver, over *int) (keep.Grant, error) {
	if _, err := grant.Compile(tools); err != nil {
		return keep.Grant{}, &GrantError{w, err}
	}
	return o.putGrant(ctx, w, over, func(now keep.Grant, at time.Time) (keep.Grant, bool) {
		next := keep.Grant{Tools: slices.Clone(tools), GivenBy: by.By, From: by.From, GivenAt: at}
		return next, now.N > 0 && !now.IsTaken() && slices.Equal(now.Tools, tools)
	})
}

// TakeGrant takes from a workflow all that it may do. over is as in SetGrant.
func (o *Operator) TakeGrant(ctx context.Context, w keep.WorkflowName, by Giver, over *int) (keep.Grant, error) {
	return o.putGrant(ctx, w, over, func(now keep.Grant, at time.Time) (keep.Grant, bool) {
		next := keep.Grant{GivenBy: now.GivenBy, From: by.From, GivenAt: now.GivenAt, TakenBy: by.By, TakenAt: at}
		if now.N == 0 {
			next.GivenAt = at
		}
		return next, now.IsTaken()
	})
}

// A GrantError says why a grant is refused.
type GrantError struct {
	Workflow keep.WorkflowName
	Err      error
}

// Error names the workflow and why.
func (e *GrantError) Error() string { return fmt.Sprintf("grant of %s: %v", e.Workflow, e.Err) }

// Unwrap returns why.
func (e *GrantError) Unwrap() error { return e.Err }

// putGrant commits the grant that make returns for the one that holds, unless make says
// that it holds already.
func (o *Operator) putGrant(ctx context.Context, w keep.WorkflowName, over *int, make func(now keep.Grant, at time.Time) (next keep.Grant, same bool)) (keep.Grant, error) {
	for {
		wf, err := o.store.Workflow(ctx, w)
		if err != nil {
			return keep.Grant{}, err
		}
		if over != nil && *over != wf.Granted {
			return keep.Grant{}, fmt.Errorf("the grant of %s is %d by now, not %d: %w", w, wf.Granted, *over, keep.ErrStale)
		}
		now, err := o.currentGrant(ctx, wf)
		if err != nil {
			return keep.Grant{}, err
		}
		at := o.now()
		next, same := make(now, at)
		if same {
			return now, nil
		}
		next.Workflow, next.N, next.Version = w, wf.Granted+1, wf.Version
		if err := next.Validate(); err != nil {
			return keep.Grant{}, &GrantError{w, err}
		}
		err = o.decided(ctx, w, at, keep.PutGrant{Grant: next})
		if err == nil || over != nil || !errors.Is(err, keep.ErrStale) {
			return next, err
		}
	}
}

// currentGrant returns the grant of a workflow that holds, the zero Grant if none was ever
// given.
func (o *Operator) currentGrant(ctx context.Context, w keep.Workflow) (keep.Grant, error) {
	if w.Granted == 0 {
		return keep.Grant{}, nil
	}
	return o.store.Grant(ctx, w.Name)
}

// A Consent says what may be granted together with a deploy.
type Consent struct {
	Giver

	// Calls are the tools that the script calls, as far as that can be read.
	Calls []keep.ToolName

	// Was are the names that tools had before, by those of today: what was taken under one of them stays taken. Host.DeployGranted
	// adds them.
	Was map[keep.ToolName][]keep.ToolName

	// Whole, if it is not nil, is all that the workflow may do, whatever it calls.
	Whole []keep.GrantedTool

	// Give says that who deploys may give what is lacking.
	Give bool

	// Ask says that a person must agree to the version, whatever is granted.
	Ask bool

	// Await says that nobody looked at the script for this deploy, as when a host finds a file:
	// one that waits for a person's answer keeps waiting.
	Await bool

	// Repair says that the version mends the one before: it has the next minor number, and the
	// grant stays as it is, whatever it calls.
	Repair bool

	// Why says in a question about the version what speaks against it.
	Why string
}

// A Deployed says what became of a deploy.
type Deployed struct {
	Version keep.Version       // that is current; zero: the workflow is new, and its version waits
	Given   []keep.GrantedTool // given together with it
	Waiting *keep.Proposal     // what waits for a person instead; nil: the version is current
}

// DeployGranted is Deploy, or Replace if over is not nil, for a workflow that may do only
// what it was granted. What the script calls and its grant lacks is given in the same
// commit, if the consent says so; or else the version is stored, the one before continues,
// and a person is asked. What somebody took away is not given again: it was decided.
func (o *Operator) DeployGranted(ctx context.Context, d keep.Deployment, over *keep.Version, c Consent) (Deployed, error) {
	if _, err := grant.Compile(c.Whole); err != nil {
		return Deployed{}, &GrantError{d.Workflow, err}
	}
	for {
		out, err := o.deploy(ctx, d, over, &c)
		if !errors.Is(err, keep.ErrStale) {
			return out, err
		}
	}
}

// A consented deploy is what is granted beside it.
type consented struct {
	next    *keep.Grant        // nil: what holds stays
	given   []keep.GrantedTool // by next
	lacking []keep.GrantedTool // what a person must agree to first
	asked   bool               // a person must agree
}

// consent returns what is granted beside a deploy.
func (o *Operator) consent(ctx context.Context, w keep.Workflow, c *Consent, at time.Time) (out consented, err error) {
	if c == nil || c.Repair {
		out.asked = c != nil && c.Ask
		return out, nil
	}
	now, err := o.currentGrant(ctx, w)
	if err != nil {
		return out, err
	}
	next := keep.Grant{Workflow: w.Name, N: w.Granted + 1, GivenBy: c.By, From: c.From, GivenAt: at}
	if c.Whole != nil {
		if next.Tools = slices.Clone(c.Whole); c.Ask {
			return consented{lacking: fresh(now, next), asked: true}, nil
		}
		if now.N > 0 && !now.IsTaken() && slices.Equal(now.Tools, next.Tools) {
			return out, nil
		}
		return consented{next: &next, given: fresh(now, next)}, nil
	}
	lacking := grant.Lacking(now, c.Calls)
	switch {
	case c.Ask:
		return consented{lacking: granting(lacking), asked: true}, nil
	case c.Give:
	case len(lacking) > 0:
		return consented{lacking: granting(lacking), asked: true}, nil
	case now.N == 0: // what it calls by names that it computes is not granted, either
		return consented{next: &next}, nil
	default:
		return out, nil
	}
	if lacking, err = o.neverTaken(ctx, w, now, lacking, c.Was); err != nil || len(lacking) == 0 && now.N > 0 {
		return out, err
	}
	next.Tools = append(slices.Clone(now.Tools), granting(lacking)...)
	return consented{next: &next, given: fresh(now, next)}, nil
}

// granting returns the tools without conditions.
func granting(tools []keep.ToolName) []keep.GrantedTool {
	out := make([]keep.GrantedTool, len(tools))
	for i, t := range tools {
		out[i].Tool = string(t)
	}
	return out
}

// neverTaken returns those of the tools, which the grant that holds lacks, that no grant of the workflow ever allowed: the
// others were taken away. What was allowed under a name that a tool had before was taken with it, unless the grant still has one.
func (o *Operator) neverTaken(ctx context.Context, w keep.Workflow, now keep.Grant, tools []keep.ToolName, was map[keep.ToolName][]keep.ToolName) ([]keep.ToolName, error) {
	if w.Granted == 0 || len(tools) == 0 {
		return tools, nil
	}
	all, err := o.store.GrantsBefore(ctx, w.Name)
	ever := func(t keep.ToolName) bool {
		return slices.ContainsFunc(all, func(g keep.Grant) bool { return g.Covers(t) })
	}
	return slices.DeleteFunc(slices.Clone(tools), func(t keep.ToolName) bool {
		return ever(t) || slices.ContainsFunc(was[t], ever) && !slices.ContainsFunc(was[t], now.Covers)
	}), err
}

// fresh returns the entries of next that the grant before does not have.
func fresh(now, next keep.Grant) (list []keep.GrantedTool) {
	for _, t := range next.Tools {
		if !slices.Contains(now.Tools, t) {
			list = append(list, t)
		}
	}
	return list
}
