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
	seen   map[keep.RunID]bool // executions that were counted; true: as failed
	open   int                 // of them, those that are not closed
}

// newProgress returns a progress without counts.
func newProgress(t *terminal.Terminal) *progress {
	return &progress{t: t, counts: make(map[keep.WorkflowName]*runCount), seen: make(map[keep.RunID]bool)}
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

// run counts an execution once, however many commits it takes: when this command
// begins it or carries on what an earlier one left. That a failed run is closed, as its
// retry begins, says nothing new; nor does a crash or a stop, since the work is taken up by an
// execution of its own.
func (p *progress) run(n *runCount, r keep.Run) {
	failed, seen := p.seen[r.ID]
	switch {
	case lifecycle.BeginsAnew(r): // what an earlier command left
		return
	case r.Status == keep.StatusCrashed || r.Status == keep.StatusAborted || lifecycle.Interrupted(r),
		r.Closed && r.Status != keep.StatusCommitted:
		if seen && r.Closed {
			p.open--
		}
		return
	case !seen:
		n.Runs++
		p.open++
	}
	fails := isFailed(r.Status)
	switch {
	case fails && !failed:
		n.Failed++
	case failed && r.Status == keep.StatusCommitted: // a person answered, and it went well
		n.Failed--
	}
	p.seen[r.ID] = failed || fails
	if r.Status == keep.StatusCommitted {
		n.Committed++
		p.open--
	}
}

// isFailed reports whether an execution stopped since something failed. One in doubt
// has not failed.
func isFailed(s keep.RunStatus) bool {
	switch s {
	case keep.StatusTransient, keep.StatusPerson, keep.StatusLogic, keep.StatusInternal:
		return true
	}
	return false
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
	var committed, failed int
	for _, n := range p.counts {
		committed += n.Committed
		failed += n.Failed
	}
	return fmt.Sprintf("%s committed, %d failed, %d open", terminal.Plural(committed, "run"), failed, p.open)
}
