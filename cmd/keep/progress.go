package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

// A progress counts what a host commits, and shows it while it goes on.
type progress struct {
	a *app

	mu     sync.Mutex // protects the fields below
	counts map[keep.WorkflowName]*runCount
	open   map[keep.RunID]keep.Run // runs that were at work here and are not closed
}

// newProgress returns a progress without counts.
func newProgress(a *app) *progress {
	return &progress{a: a, counts: make(map[keep.WorkflowName]*runCount), open: make(map[keep.RunID]keep.Run)}
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
				p.a.logLine(c.Workflow, l)
			}
		}
	}
}

// run counts a run when it begins here, and when it is over. A run that an
// earlier process began is counted when it is over. An attempt that a crash ended
// did not fail: what it began is carried on by the attempt after it, and counted
// there.
func (p *progress) run(n *runCount, r keep.Run) {
	if _, known := p.open[r.ID]; !known && (r.Rev == 0 || r.Closed && r.Status != keep.StatusCrashed) {
		n.Runs++
	}
	if !r.Closed {
		p.open[r.ID] = r
		return
	}
	delete(p.open, r.ID)
	switch {
	case r.Status == keep.StatusCommitted:
		n.Committed++
	case r.Status != keep.StatusAborted && r.Status != keep.StatusCrashed:
		n.Failed++
	}
}

// count returns what a workflow did. A run that failed and waits for a person, or
// to be tried again, counts as failed; one in doubt does not.
func (p *progress) count(name keep.WorkflowName) runCount {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := runCount{Name: name}
	if known := p.counts[name]; known != nil {
		n = *known
	}
	for _, r := range p.open {
		switch r.Status {
		case keep.StatusTransient, keep.StatusPerson, keep.StatusLogic, keep.StatusInternal:
			if r.Workflow == name {
				n.Failed++
			}
		}
	}
	return n
}

// quiet is how long a command works before it says so.
const quiet = time.Second

// start shows a line of progress on a terminal until the returned function is
// called. Elsewhere it shows nothing.
func (p *progress) start() (stop func()) { return p.a.animate(p.line) }

// line says what was done so far.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var committed, failed int
	for _, n := range p.counts {
		committed += n.Committed
		failed += n.Failed
	}
	return fmt.Sprintf("%s committed, %d failed, %d open", plural(committed, "run"), failed, len(p.open))
}

// animate shows a line on a terminal, once a second, until the returned function is
// called. Elsewhere it shows nothing.
func (a *app) animate(line func() string) (stop func()) {
	if !a.tty || a.json {
		return func() {}
	}
	done := make(chan struct{})
	a.err.animate(true)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(quiet)
		defer tick.Stop()
		for {
			select {
			case <-done:
				fmt.Fprint(a.err, "") // takes the line away
				a.err.animate(false)
				return
			case <-tick.C:
				fmt.Fprint(a.err, a.ink.dim(line()))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// logLine shows a line that a script wrote.
func (a *app) logLine(w keep.WorkflowName, l keep.LogLine) {
	level := ""
	switch l.Level {
	case "warn":
		level = a.ink.yellow("warn") + " "
	case "error":
		level = a.ink.red("error") + " "
	case "debug":
		level = "debug "
	}
	where := ""
	if l.Where != "" {
		where = a.ink.dim(" (" + clean(l.Where) + ")")
	}
	fmt.Fprintf(a.err, "[%s] %s%s%s\n", w, level, cleanText(l.Text), where)
}
