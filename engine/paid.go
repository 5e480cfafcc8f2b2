package engine

import (
	"context"
	"encoding/json"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
)

// A read that costs is bought once in a chain of runs: its answer is on disk, with the run,
// before the script sees it, and the same call of a later attempt gets it from there. A host
// that dies before that has no answer, and nobody has: the call is made again then. It
// changed nothing, so this is no doubt, but its price is paid again.
//
// The answers are kept as a checkpoint whose producer is the chain, and deleted when the chain
// is over.

// maxPaid is how many bytes the answer of a read that costs may have.
const maxPaid = 64<<10 - 1

// buy performs a read that costs, or returns what it was answered before.
func (h *scriptHost) buy(ctx context.Context, t *tool, c HostCall, params json.RawMessage) (json.RawMessage, error) {
	x := h.x
	text, err := canonical.JSON(params)
	if err != nil {
		return nil, c.logicf("bad-params", "%v", err)
	}
	key := string(t.name) + " " + ledger.Hash(text)
	place := keep.PaidAnswers(x.run.Chain)
	if known, err := x.e.store.KV(ctx, x.a.name, place, key); err != nil {
		return nil, &storeError{err}
	} else if known != nil {
		x.paid = true
		return known, nil
	}
	result, err := h.read(ctx, t, c, params)
	if err != nil {
		return nil, err
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	if err := x.fitsPaid(ctx, c, t, key, result); err != nil {
		return nil, err
	}
	x.trace(Bought)
	return result, x.onActor(func() error {
		x.run.UpdatedAt, x.paid = x.e.Now(), true
		if err := x.commit(x.within(x.a.hard), keep.SetKV{Producer: place, Key: key, Value: result}); err != nil {
			return &storeError{err}
		}
		return nil
	})
}

// fitsPaid refuses an answer that can't be kept.
func (x *execution) fitsPaid(ctx context.Context, c HostCall, t *tool, key string, result json.RawMessage) error {
	size, err := x.e.store.KVSize(ctx, x.a.name, keep.PaidAnswers(x.run.Chain))
	if err != nil {
		return &storeError{err}
	}
	if limit := x.e.policy.Limits.KVTotal; len(result) > maxPaid || size+len(key)+len(result) > limit {
		return c.logicf("answer-too-large", "%s: an answer of %d bytes can't be kept, at most %d, and %d in a run; ask for less", t.name, len(result), maxPaid, limit)
	}
	return nil
}

// forgetPaid returns the change that deletes the answers of a chain that is over.
func (x *execution) forgetPaid() []keep.Change {
	if !x.paid && x.before() == "" {
		return nil
	}
	return []keep.Change{keep.ResetKV{Producer: keep.PaidAnswers(x.run.Chain)}}
}

// A request is what a host call wants done by the goroutine that owns the execution.
type request struct {
	do   func() error
	done chan error
}

// onActor lets the goroutine that owns the execution do something during a phase, and waits.
func (x *execution) onActor(do func() error) error { return askActor(x.asks, x.callOver, do) }

// askActor is onActor for the phase that had these channels.
func askActor(asks chan<- request, over <-chan struct{}, do func() error) error {
	q := request{do, make(chan error, 1)}
	select {
	case asks <- q:
	case <-over:
		return errGone
	}
	select {
	case err := <-q.done:
		return err
	case <-over:
		return errGone
	}
}
