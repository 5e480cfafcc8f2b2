package engine

import (
	"time"

	"github.com/keep-run/keep"
)

// A Measure is how long one thing took, by the clock of this machine.
type Measure struct {
	What     Measured
	Workflow keep.WorkflowName
	Handler  keep.HandlerName // of a run and of a queue
	Tool     keep.ToolName    // of a call, a lookup and a read
	Took     time.Duration
	Status   keep.RunStatus // that a run came to
	Class    keep.Class     // of what went wrong; empty: nothing did
}

// Measured is a kind of thing that takes time.
type Measured string

// What is measured. A read includes the time for which it waited for the limits of its connection;
// a call does not.
const (
	MeasuredRun    Measured = "run"    // from its start in this process until it ends or stops
	MeasuredQueue  Measured = "queue"  // from the commit of an event until a run begins with it
	MeasuredCall   Measured = "call"   // of a mutate tool
	MeasuredLookup Measured = "lookup" // what became of a call
	MeasuredRead   Measured = "read"   // a call of a list or get tool
)

// measure reports m, which began then, to who wants to know.
func (e *Engine) measure(m Measure, began time.Time) {
	if e.cfg.Measured != nil {
		m.Took = time.Since(began)
		e.cfg.Measured(m)
	}
}

// measureQueue reports how long the event waited with which a first attempt begins.
func (x *execution) measureQueue() {
	oldest := &x.backlog.Oldest
	if x.e.cfg.Measured == nil || oldest.Seq == 0 || x.closes != nil {
		return
	}
	x.e.cfg.Measured(Measure{What: MeasuredQueue, Workflow: x.a.name, Handler: x.run.Handler, Took: max(x.e.Now().Sub(oldest.CreatedAt), 0)})
}

// classOf returns the class of f; empty: there is none.
func classOf(f *keep.Failure) keep.Class {
	if f == nil {
		return ""
	}
	return f.Class
}
