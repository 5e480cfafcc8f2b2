package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
)

// A CheckpointError is returned when a value of a checkpoint cannot be set. Nothing was changed.
type CheckpointError struct{ Key, Why string }

// Error names the key and the reason.
func (e *CheckpointError) Error() string { return fmt.Sprintf("checkpoint value %q: %s", e.Key, e.Why) }

// A CheckpointChange is what becomes of one value of a checkpoint.
type CheckpointChange struct {
	Was, Now  json.RawMessage  // nil: not set
	Publishes []keep.TopicName // where the producer may publish what it then reads
}

// SetCheckpoint sets one value of a producer's checkpoint, or deletes it if value is nil. With preview it
// only says what that would change. Events and inputs that the producer made before stay; what it publishes again
// under the same id is no new event, and what it does not read any more is not missed by anybody. Who did it, by
// which surface and why is recorded, without the value. While the producer runs it is refused as ResetCheckpoint is.
func (o *Operator) SetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, key string, value json.RawMessage, d keep.Decision, preview bool) (CheckpointChange, error) {
	return o.setCheckpoint(ctx, w, h, key, nil, value, d, preview)
}

// SetShownCheckpoint is SetCheckpoint of a value that is still the one that was shown, nil if it was not set, else keep.ErrStale.
func (o *Operator) SetShownCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, key string, shown, value json.RawMessage, d keep.Decision) error {
	_, err := o.setCheckpoint(ctx, w, h, key, &keep.IfKV{Key: key, Value: shown}, value, d, false)
	return err
}

func (o *Operator) setCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, key string, over *keep.IfKV, value json.RawMessage, d keep.Decision, preview bool) (CheckpointChange, error) {
	def, err := o.producer(ctx, w, h)
	if err != nil {
		return CheckpointChange{}, err
	}
	all, err := o.store.KVs(ctx, w, checkpointOf(def))
	if err != nil {
		return CheckpointChange{}, err
	}
	change := CheckpointChange{Now: value, Publishes: def.Publishes}
	total := len(key) + len(value)
	for _, kv := range all {
		if kv.Key == key {
			change.Was = kv.Value
		} else {
			total += len(kv.Key) + len(kv.Value)
		}
	}
	limits := o.policy.Limits
	refused := func(format string, args ...any) (CheckpointChange, error) {
		return CheckpointChange{}, &CheckpointError{key, fmt.Sprintf(format, args...)}
	}
	switch {
	case key == "" || len(key) > keep.MaxMessageID:
		return refused("a key has 1 to %d bytes", keep.MaxMessageID)
	case value == nil && change.Was == nil:
		return refused("it is not set")
	case value != nil && !json.Valid(value):
		return refused("the value is no JSON")
	case canonical.Unambiguous(value) != nil:
		return refused("the value: %v", canonical.Unambiguous(value))
	case len(value) > limits.KVValue:
		return refused("%d bytes: at most %d", len(value), limits.KVValue)
	case value != nil && total > limits.KVTotal:
		return refused("the checkpoint would hold %d bytes: at most %d", total, limits.KVTotal)
	case preview:
		return change, nil
	}
	what, set := "set", []keep.Change{}
	if value == nil {
		what = "deleted"
	}
	if over != nil {
		over.Producer = checkpointOf(def)
		set = append(set, *over)
	}
	set = append(set, keep.SetKV{Producer: checkpointOf(def), Key: key, Value: value})
	d.Action, d.Note = keep.SetCheckpoint, strings.TrimSuffix(fmt.Sprintf("value %q %s; %s", key, what, d.Note), "; ")
	return change, o.writeCheckpoint(ctx, w, def, d, set...)
}

// ResetCheckpoint makes a producer begin where it began at first: its ctx.kv is empty
// at its next run. Nobody sees what was in it. Events and inputs that it made before
// stay; what it publishes again under the same id is no new event. While the producer
// runs it is refused with ErrRunOpen, as far as this host knows; a run of which it does not
// know, as on another host, stores nothing, and begins anew. Who did it is recorded.
func (o *Operator) ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, d keep.Decision) error {
	def, err := o.producer(ctx, w, h)
	if err != nil {
		return err
	}
	d.Action = keep.ResetCheckpoint
	return o.writeCheckpoint(ctx, w, def, d, keep.ResetKV{Producer: checkpointOf(def)})
}

// checkpointOf returns the name under which the checkpoint of a producer is kept.
func checkpointOf(h keep.Handler) keep.HandlerName { return keep.HandlerName(h.ItemsOf()) }

// producer returns a producer of the current version, with the topics to which it may publish.
func (o *Operator) producer(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) (keep.Handler, error) {
	of, err := o.definition(ctx, w)
	if err != nil {
		return keep.Handler{}, err
	}
	def, ok := of.Handler(h)
	if !ok || def.Kind != keep.Producer {
		return keep.Handler{}, &keep.NotFoundError{What: "producer", ID: string(w) + "/" + string(h)}
	}
	def.Publishes = of.MayPublish(def)
	return def, nil
}

// writeCheckpoint commits what a person changes in a checkpoint, with the record of it.
func (o *Operator) writeCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.Handler, d keep.Decision, changes ...keep.Change) error {
	runs, err := o.store.OpenRuns(ctx, w)
	if err != nil {
		return err
	}
	busy := slices.ContainsFunc(runs, func(r keep.Run) bool { return r.Status == keep.StatusActive && r.Handler == h.Name })
	if o.cfg.Executor.Executing(w) || busy {
		return fmt.Errorf("change the checkpoint of %s of %s: %w", h.Name, w, keep.ErrRunOpen)
	}
	now := o.now()
	if err := o.decided(ctx, w, now, append(changes, decidedAbout(h.Subject(w), d.Action, d, now))...); err != nil {
		return err
	}
	o.log.InfoContext(ctx, "checkpoint changed", "workflow", w, "handler", h.Name, "action", d.Action, "by", d.By)
	return nil
}
