package plan

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	seen "github.com/keep-run/keep/law/trace"
)

// An At is what a run saw, for a plan of it. Nothing in it is made up: a read that the run did
// not make, or whose answer is not kept, fails the handler.
type At struct {
	Workflow keep.WorkflowName
	Handler  keep.HandlerName // of the run

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

// readCheckpoint answers a read of a checkpoint. What the database has now is never taken for what the run saw: the run itself
// may have written it.
func (a *At) readCheckpoint(_ keep.HandlerName, key string) ([]byte, error) {
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	value, err := a.read(kvGet, name)
	if err != nil || string(value) == "null" {
		return nil, err
	}
	return value, nil
}
