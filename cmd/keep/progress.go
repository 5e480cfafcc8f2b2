package main

import (
	"fmt"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/lifecycle"
)

// A progress counts what a host commits, and shows it while it continues.
type progress struct {
	t *terminal.Terminal

	mu     sync.Mutex // protects the fields below
	counts map[keep.WorkflowName]*runCount
	work   map[keep.RunID]*work // by each of its attempts
}

// A work is what one attempt after the other was to do. What became of it is what became of the last.
type work struct {
	last  keep.RunID
	state *int // where it counts; nil: nowhere
}

// newProgress returns a progress without counts.
func newProgress(t *terminal.Terminal) *progress {
	return &progress{t: t, counts: make(map[keep.WorkflowName]*runCount), work: make(map[keep.RunID]*work)}
}

// commit takes note of a durable commit.
func (p *progress) commit(c keep.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.counts[c.Workflow]
	if n == nil {
		n = &runCount{Name: c.Workflow}
		p.counts[c.Workflow] = n
	}
	for _, change := range c.Changes {
		switch v := change.(type) {
		case keep.PutRun:
			p.run(n, v.Run)
		case keep.AppendLogs:
			for _, l := range v.Lines {
				p.t.LogLine(c.Workflow, l)
			}
		}
	}
}

// run counts work once, however many attempts and commits it takes: when this command begins
// it, or takes up what an earlier one left. An attempt that another took up says nothing any more.
func (p *progress) run(n *runCount, r keep.Run) {
	w := p.work[r.ID]
	switch before := p.work[lifecycle.Before(r)]; {
	case w != nil && w.last != r.ID:
		return
	case w != nil:
	case isLeft(r):
		return // whoever takes it up is counted
	case before != nil:
		w = before
		n.Retries++
	default:
		w = &work{}
		n.Runs++
		if lifecycle.Before(r) != "" {
			n.Retries++
		}
	}
	p.work[r.ID], w.last = w, r.ID
	if w.state != nil {
		*w.state--
	}
	if w.state = n.stateOf(r); w.state != nil {
		*w.state++
	}
}

// isLeft reports whether r is as an earlier command left it, or as another attempt closes it.
func isLeft(r keep.Run) bool {
	return lifecycle.BeginsAnew(r) || lifecycle.Interrupted(r) || r.Status == keep.StatusCrashed || r.Closed && r.Status != keep.StatusCommitted
}

// stateOf returns the count that r is part of. One in doubt has not failed, nor has one that is
// tried again by itself.
func (n *runCount) stateOf(r keep.Run) *int {
	switch r.Status {
	case keep.StatusCommitted:
		return &n.Committed
	case keep.StatusPerson, keep.StatusLogic, keep.StatusInternal:
		if !lifecycle.WaitsForTime(r) {
			return &n.Failed
		}
	}
	if r.Closed {
		return nil
	}
	return &n.Waiting
}

// count returns what a workflow did.
func (p *progress) count(name keep.WorkflowName) runCount {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.counts[name]; known != nil {
		return *known
	}
	return runCount{Name: name}
}

// start shows a line of progress on a terminal until the returned function is
// called. Elsewhere it shows nothing.
func (p *progress) start() (stop func()) { return p.t.Animate(p.line) }

// line says what was done so far.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var committed, failed, waiting int
	for _, n := range p.counts {
		committed += n.Committed
		failed += n.Failed
		waiting += n.Waiting
	}
	return fmt.Sprintf("%s committed, %d failed, %d open", terminal.Plural(committed, "run"), failed, waiting)
}
