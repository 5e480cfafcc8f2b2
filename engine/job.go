package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/policy"
)

// An itemScope is the item that a job is at work on.
type itemScope struct {
	item  keep.Item
	scope int  // number of the ctx that its handler got
	done  bool // done or skipped: no new side effects
	dirty bool // the item as it stands is not stored

	fresh    bool              // no earlier run had it: it has no records
	said     []keep.Escalation // what persons said of calls of it that were done already
	saidRead bool              // said was read

	read    bool                      // former was read
	former  []keep.Mutation           // records of this attempt that were made under another configuration
	claimed map[keep.MutationKey]bool // of former and said: a call of this run is theirs
}

// claim notes that a call of this run is that of a record or an approval of former or said.
func (s *itemScope) claim(key keep.MutationKey) {
	if s.claimed == nil {
		s.claimed = make(map[keep.MutationKey]bool)
	}
	s.claimed[key] = true
}

// work runs a job. Unlike in a consumer, the calls are made while the script
// waits, so the records are written by its host calls, one after another.
func (x *execution) work(ctx context.Context) error {
	host := x.host(policy.InJob)
	_, err := x.call(ctx, "", nil, host, 0, nil)
	if err != nil {
		return x.failItem(ctx, host, err)
	}
	if err := x.transition(keep.Committed); err != nil {
		return x.fail(ctx, err)
	}
	state := x.state(x.run.UpdatedAt)
	if err := x.commit(ctx, append(host.takeItems(), keep.PutHandler{State: state, Served: x.served()})...); err != nil {
		return err
	}
	x.remember(&state)
	x.trace(AfterCommit)
	return nil
}

// paused returns errPaused if a person paused the workflow since the run began.
// A job may have many calls before it: only the one under way is finished.
func (h *scriptHost) paused(ctx context.Context) error {
	x := h.x
	if !x.poked() {
		return nil
	}
	h.items.forget()
	w, err := x.e.store.Workflow(ctx, x.a.name)
	switch {
	case err != nil:
		return &storeError{err}
	case w.Paused:
		return errPaused
	}
	return nil
}

// poked reports whether somebody else may have changed the store since it was
// last asked.
func (x *execution) poked() bool {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	before := x.pokes
	x.pokes = x.a.pokes
	return x.pokes != before
}

// failItem stops the run. If the store refuses that, or the record of the call, because a person changed
// the item under way meanwhile, the run is left as if the script had not come to the call.
func (x *execution) failItem(ctx context.Context, h *scriptHost, err error) error {
	run := x.run
	err = x.stopInItem(ctx, h, err)
	if errors.Is(err, keep.ErrStale) && h.item != nil && !h.item.done && errors.Is(h.itemUnchanged(ctx), errItemChanged) {
		x.run, x.extra = run, nil
		return x.fail(ctx, errItemChanged)
	}
	return err
}

// stopInItem stops the run; the item under way is failed until its handler
// completes in a later run. Mutations that were applied stay applied.
func (x *execution) stopInItem(ctx context.Context, h *scriptHost, err error) error {
	if h.item != nil && !h.item.done && !errors.Is(err, errStopping) {
		if h.item.item.Status == keep.ItemProcessing {
			h.item.item.Status = keep.ItemFailed
		}
		h.item.dirty = true
		x.item = h.item.item.ID
	}
	attention := h.item != nil && h.item.item.Status == keep.ItemAttention
	x.extra = append(x.extra, h.takeItems()...)
	if attention {
		return x.stop(ctx, x.inWords(asFailure(err)), lifecycle.Consequence{Status: keep.StatusPerson, Escalate: keep.AskItem}, time.Time{})
	}
	return x.fail(ctx, err)
}

// takeItems returns the changes that store what is known of items and is not
// stored yet. An item that is done is stored with the next commit: a crash
// before it runs the handler again, which gets the stored results.
func (h *scriptHost) takeItems() []keep.Change {
	cs := h.finished
	h.finished = nil
	if h.item != nil && h.item.dirty {
		h.item.item.UpdatedAt = h.x.e.Now()
		cs = append(cs, keep.PutItem{Item: h.item.item})
		h.item.item.Rev++
		h.item.dirty = false
	}
	return cs
}

// itemView is ctx.item as scripts see it.
type itemView struct {
	ID      string          `json:"id"`
	Title   string          `json:"title"`
	Attempt int             `json:"attempt"`
	Status  keep.ItemStatus `json:"status"`
	IsDone  bool            `json:"isDone"`

	// IsBlocked: the handler is not to be run, since it is not known whether a
	// call of the item happened.
	IsBlocked bool `json:"isBlocked,omitempty"`
}

func (h *scriptHost) itemBegin(ctx context.Context, c HostCall) (json.RawMessage, error) {
	var title string
	id, err := nameText(c.arg(0))
	if err != nil {
		return nil, c.logicf("bad-item", "ctx.withItem(id, title, handler): id: %v", err)
	}
	if err := json.Unmarshal(c.arg(1), &title); err != nil {
		return nil, c.logicf("bad-item", "ctx.withItem(%q, title, handler): title: want a text, got %s", id, given.Show(c.arg(1)))
	}
	if h.item != nil {
		return nil, c.logicf("nested-item", "ctx.withItem(%q) inside the item %q: items do not nest", id, h.item.item.ID)
	}
	said := id
	if id, err = h.storedID(ctx, said, c); err != nil {
		return nil, err
	}
	item, err := h.knownItem(ctx, id)
	switch {
	case isNotFound(err):
		item = keep.Item{Workflow: h.x.a.name, ID: id, Title: keep.CutTitle(title), Status: keep.ItemProcessing, Attempt: 1, CreatedAt: h.now}
	case err != nil:
		return nil, &storeError{err}
	case item.Status == keep.ItemAttention:
		f := keep.Failf(keep.ClassPrecondition, "item-blocked", "item %q waits for a person; see keep inbox", id)
		f.At = c.At
		return nil, f
	}
	h.scopes++
	if m, yes := h.x.a.blocked(id, item.Attempt); yes {
		h.x.phaseLog.add("warn", fmt.Sprintf("item %q is passed over: it is not known whether %s on %s happened", id, m.Tool, m.Target), c.At)
		return marshal(itemView{said, item.Title, item.Attempt, item.Status, false, true}), nil
	}
	s := &itemScope{item: item, scope: h.scopes, done: lifecycle.ItemOver(item)}
	s.dirty, s.fresh = item.Rev == 0, item.Rev == 0
	h.item = s
	return marshal(itemView{said, item.Title, item.Attempt, item.Status, s.done, false}), nil
}

// knownItem returns the item as this run left it, or as it is stored.
func (h *scriptHost) knownItem(ctx context.Context, id string) (keep.Item, error) {
	for _, c := range slices.Backward(h.finished) {
		if put, ok := c.(keep.PutItem); ok && put.Item.ID == id {
			it := put.Item
			it.Rev++ // as the next commit stores it
			return it, nil
		}
	}
	if it, ok := h.items.take(id); ok {
		return it, nil
	}
	it, err := h.x.e.store.Item(ctx, h.x.a.name, id)
	if err != nil || !lifecycle.ItemOver(it) {
		return it, err
	}
	after, err := h.items.more(func(n int) ([]keep.Item, error) { return h.x.e.store.ItemsAfter(ctx, h.x.a.name, id, n) })
	for _, it := range after {
		// Only these are believed without another look: at worst an item that a
		// person has reprocessed since waits for the next run.
		if lifecycle.ItemOver(it) {
			h.items.found[it.ID] = it
		}
	}
	return it, err
}

// knownMutation returns the record of a call that was made before, if more of it is
// needed than its result, which then is among h.results.
func (h *scriptHost) knownMutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	m, err := h.x.e.store.Mutation(ctx, key)
	if err != nil || m.State != keep.Applied {
		return m, err
	}
	after, err := h.results.more(func(n int) ([]keep.StoredResult, error) {
		return h.x.e.store.ResultsAfter(ctx, h.x.a.name, key, n, maxResultAhead)
	})
	for _, r := range after {
		h.results.found[r.Key] = r
	}
	return m, err
}

func (h *scriptHost) itemEnd(ctx context.Context, _ HostCall) (json.RawMessage, error) {
	if s := h.item; s != nil && !s.done {
		s.item.Status, s.dirty = keep.ItemDone, true
		h.finished = h.takeItems()
	}
	h.item = nil
	if len(h.finished) < maxFinished {
		return nil, nil
	}
	h.x.run.UpdatedAt = h.x.e.Now()
	if err := h.x.commit(ctx, h.takeItems()...); err != nil {
		return nil, &storeError{err}
	}
	return nil, nil
}

// maxFinished is how many finished items wait for the next commit at most: it
// bounds memory, and what a crash makes a job do again.
const maxFinished = 100

// itemFail ends the run because the handler of an item threw.
func (h *scriptHost) itemFail(_ context.Context, c HostCall) (json.RawMessage, error) {
	var thrown struct{ Name, Message, Stack, At string }
	if err := json.Unmarshal(c.arg(0), &thrown); err != nil {
		thrown.Message = string(c.arg(0))
	}
	item := "that had ended"
	if h.item != nil {
		item = strconv.Quote(h.item.item.ID)
	}
	threw := "threw " + thrown.Name + ": "
	if w, ok := h.x.v.script.(Wording); ok {
		threw = w.InWords(threw)
	}
	f := c.logicf("script-error", "the handler of item %s %s%s", item, threw, thrown.Message)
	if thrown.At != "" {
		f.At = thrown.At
	}
	return nil, f
}

// mutateInItem makes a call, or answers it from the ledger.
func (h *scriptHost) mutateInItem(ctx context.Context, call *takenCall, c HostCall) (json.RawMessage, error) {
	s := h.item
	switch {
	case s == nil || c.Scope != s.scope:
		return nil, c.logicf("call-after-item", "ctx.%s was called after its item had ended: each item has a ctx of its own", c.Name)
	case s.done:
		f := c.logicf("item-done", "ctx.%s in item %q, which is %s: begin the handler with `if (ctx.item.isDone) return`", c.Name, s.item.ID, s.item.Status)
		f.Tool = call.tool.name
		return nil, f
	}
	x := h.x
	key := ledger.ItemKey(ledger.ItemCall{
		Workflow: x.a.name, Item: s.item.ID, Attempt: s.item.Attempt,
		Tool: call.tool.name, Target: call.target, Identity: call.identity, Subkey: call.subkey,
	})
	hash := ledger.Hash(call.payload)
	if r, ok := h.results.take(key); ok && r.PayloadHash == hash {
		return orNull(r.Result), nil
	}
	x.callAt = c.At
	known, err := h.recordOf(ctx, call, key)
	if err != nil {
		return nil, err
	}
	switch {
	case known.Key == "": // the first call
	case known.State == keep.Applied:
		return h.replay(call, known, hash, c)
	case known.State != keep.Failed:
		f := keep.Failf(keep.ClassUnknown, "item-blocked", "it is not known whether this call happened before (%s)", known.State)
		f.Tool, f.At = call.tool.name, c.At
		x.mut, x.run.Mutation = known, known.Key
		return nil, f
	}
	lc := call.ledgerCall(x, key, hash)
	if known.Key != "" { // it may have been made under another name
		lc.Key, lc.Tool = known.Key, known.Tool
	}
	lc.Item, lc.ItemAttempt, lc.Title = s.item.ID, s.item.Attempt, s.item.Title
	if call.said, err = h.saidDone(ctx, call, key, known.Key); err != nil {
		return nil, err
	}
	return h.callInItem(ctx, call, lc, known, c)
}

// recordOf returns the record of a call: that of its key, if it may have happened, or one that
// was made for it under another configuration, or else the one that failed. Zero: there is
// none.
func (h *scriptHost) recordOf(ctx context.Context, call *takenCall, key keep.MutationKey) (keep.Mutation, error) {
	known, err := h.knownMutation(ctx, key)
	switch {
	case err != nil && !isNotFound(err):
		return keep.Mutation{}, &storeError{err}
	case err == nil && known.State != keep.Failed:
		return known, nil
	}
	other, failed := h.former(ctx, call, key)
	if other.Key != "" || failed != nil {
		return other, failed
	}
	return known, nil
}

// itemUnchanged returns errItemChanged if a person skipped the item since its handler
// began, or wants it done again.
func (h *scriptHost) itemUnchanged(ctx context.Context) error {
	it := h.item.item
	stored, err := h.x.e.store.Item(ctx, h.x.a.name, it.ID)
	switch {
	case isNotFound(err):
		return nil // it is stored with the first call
	case err != nil:
		return &storeError{err}
	case lifecycle.ItemOver(stored) || stored.Attempt != it.Attempt:
		return errItemChanged
	}
	return nil
}

// replay answers a call from an applied record, if what it would send is close
// enough to what was sent.
func (h *scriptHost) replay(call *takenCall, m keep.Mutation, hash string, c HostCall) (json.RawMessage, error) {
	if hash != m.PayloadHash && call.difference(m.Payload) == connector.Significant {
		h.item.item.Status = keep.ItemAttention
		h.x.mut, h.x.run.Mutation = m, m.Key
		h.x.wouldSend = call.payload
		f := keep.Failf(keep.ClassPrecondition, "payload-mismatch",
			"item %q: ctx.%s was applied before with other content; nothing was sent. %s", h.item.item.ID, c.Name, differences(m.Payload, call.payload, "; ", 3))
		f.Tool, f.At = call.tool.name, c.At
		return nil, f
	}
	return orNull(m.Result), nil
}

// orNull returns what a script gets for the result of a call.
func orNull(result json.RawMessage) json.RawMessage {
	if result == nil {
		return json.RawMessage("null")
	}
	return result
}

// difference asks the connector how far apart two payloads are. One that cannot
// tell, or does not return, leaves it to a person.
func (c *takenCall) difference(old []byte) (d connector.Difference) {
	if cmp, ok := c.tool.impl.(connector.Comparer); ok {
		guarded(func() { d = cmp.ComparePayload(old, c.payload) }, func(string) {})
	}
	if d != connector.Equivalent && d != connector.Minor {
		d = connector.Significant
	}
	return d
}

// callInItem makes the call of the script, records the outcome, and answers the script only if the
// effect is known to have happened.
func (h *scriptHost) callInItem(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, of HostCall) (json.RawMessage, error) {
	x := h.x
	items := func() ([]keep.Change, error) {
		h.item.dirty = true // its revision decides between this call and a person who skips the item
		return h.takeItems(), nil
	}
	err := x.makeCall(ctx, call, c, before, items)
	if done, ok := errors.AsType[*treatedError](err); ok {
		return orNull(done.result), nil
	}
	if err != nil {
		return nil, err
	}
	if x.mut.State != keep.Applied {
		return nil, x.callFailure()
	}
	x.run.UpdatedAt = x.e.Now()
	if err := x.commit(ctx); err != nil {
		return nil, &storeError{err}
	}
	x.trace(OutcomeWritten)
	m := x.mut
	x.mut, x.run.Mutation = keep.Mutation{}, ""
	return h.replay(call, m, c.PayloadHash, of) // the service may have shown the call before, with what that sent
}
