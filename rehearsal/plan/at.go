package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	seen "github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/rehearsal"
)

// An At is what a run saw, for a plan of it. Nothing in it is made up: a read that the run did
// not make, or whose answer is not kept, fails the handler.
type At struct {
	Workflow keep.WorkflowName
	Handler  keep.HandlerName // of the run

	checkpoint keep.HandlerName // under which that of the handler is kept

	mu   sync.Mutex // protects left
	left []seen.Entry
}

// NewAt returns what a run saw.
func NewAt(run keep.Run, t seen.Trace) *At {
	a := &At{Workflow: run.Workflow, Handler: run.Handler}
	for _, e := range t.Entries {
		if e.What == seen.Read {
			a.left = append(a.left, e)
		}
	}
	return a
}

// read answers a read as the run was answered: the first with these params as the first
// one was, and so on.
func (a *At) read(tool string, params json.RawMessage) (json.RawMessage, error) {
	e, ok := a.take(tool, params)
	switch {
	case !ok:
		return nil, keep.Failf(keep.ClassLogic, "not-recorded", "the run did not read %s %s, or it is not kept: what comes after it is not known", tool, params)
	case e.Error != nil:
		return nil, e.Error
	case e.Cut:
		return nil, keep.Failf(keep.ClassLogic, "not-recorded", "what %s %s answered the run was too large to be kept", tool, params)
	}
	return e.Result, nil
}

func (a *At) take(tool string, params json.RawMessage) (seen.Entry, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	want, err := canonical.Exact(params)
	for i, e := range a.left {
		if e.Tool != tool {
			continue
		}
		got, bad := canonical.Exact(e.Params)
		if bytes.Equal(e.Params, params) || err == nil && bad == nil && bytes.Equal(got, want) || tool != kvGet && e.Params == nil && string(params) == "{}" {
			a.left = append(a.left[:i:i], a.left[i+1:]...)
			return e, true
		}
	}
	return seen.Entry{}, false
}

const kvGet = "kv.get"

// over returns base with the checkpoint that the run saw.
func (a *At) over(base rehearsal.Base) rehearsal.Base {
	if base == nil {
		return nil
	}
	return seenBase{base, a}
}

// A seenBase is a database whose checkpoints are those that a run saw.
type seenBase struct {
	rehearsal.Base
	at *At
}

// KV implements store.Checkpoints.
func (b seenBase) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error) {
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	if e, ok := b.at.take(kvGet, name); ok && w == b.at.Workflow && producer == b.at.checkpoint && !e.Cut {
		if string(e.Result) == "null" {
			return nil, nil
		}
		return e.Result, nil
	}
	return b.Base.KV(ctx, w, producer, key)
}
