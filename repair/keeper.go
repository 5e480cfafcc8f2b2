package repair

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/store"
)

// A Keeper repairs failures, and keeps what was tried: failures that are alike share one repair,
// one budget and one end, across restarts and hosts.
type Keeper struct {
	Repairer *Repairer
	Store    store.Repairs
	Clock    func() time.Time

	mu        sync.Mutex
	unwritten map[string]law.Attempt // that are over, by their repair, until the store has taken that
}

// Repair repairs a failure as far as its budget lasts, and returns what is known of it then. That
// an attempt begins is durable before the model is asked, and what it brought before the next one
// begins: an attempt whose host dies is used up, and so is one that ends by an error. What the store does
// not take is written by the next call, before anything else is tried. A repair that
// is over is returned as it is, and nobody is asked. It ends when another version is current: the
// model is not asked again, and what it answers then is not kept. The error is keep.ErrStale if another host repairs the same at this moment.
func (k *Keeper) Repair(ctx context.Context, failed keep.Run) (law.Record, error) {
	s, ok := law.SignatureOf(failed)
	if !ok {
		return law.Record{}, errors.New("run " + string(failed.ID) + " did not fail by logic")
	}
	stored, rec, err := k.load(ctx, s)
	if err != nil {
		return rec, err
	}
	for rec.Stage == law.Trying {
		a, over := k.overOf(rec)
		if err := k.Repairer.current(ctx, failed); err != nil {
			return k.replaced(ctx, stored, rec, a, err)
		}
		var broke error
		if !over {
			tried, spent := rec.Learned(), rec.Spent()
			if rec, err = rec.Begin(k.Repairer.Limits, failed.ID, k.now()); err != nil {
				return rec, err
			}
			if stored, err = k.put(ctx, stored, rec); err != nil || rec.Stage != law.Trying {
				return rec, err
			}
			if a, broke = k.attempt(ctx, failed, spent, tried); isReplaced(broke) {
				return k.replaced(ctx, stored, rec, a, broke)
			}
		}
		if stored, rec, err = k.end(ctx, stored, rec, a); err != nil || broke != nil {
			return rec, errors.Join(broke, err)
		}
	}
	return rec, nil
}

// attempt makes an attempt, and returns it as it is kept, also one that ends by an error.
func (k *Keeper) attempt(ctx context.Context, failed keep.Run, spent law.Spent, tried []string) (law.Attempt, error) {
	made, err := k.Repairer.Attempt(ctx, failed, spent, tried)
	if err == nil {
		err = k.Repairer.current(ctx, failed)
	}
	a := kept(made)
	if err == nil {
		return a, nil
	}
	a = law.Attempt{Broke: true, Why: keep.CutTitle("it could not be tried: " + err.Error()), Tokens: a.Tokens, Cost: a.Cost}
	if ctx.Err() != nil {
		a.Why = law.HostEnded
	}
	return a, err
}

// endWithin is how long it may take to keep the end of an attempt, also if its host is ending.
const endWithin = 5 * time.Second

// end keeps what came of the attempt under way.
func (k *Keeper) end(ctx context.Context, stored keep.Repair, rec law.Record, a law.Attempt) (keep.Repair, law.Record, error) {
	over, err := rec.End(a, k.now())
	if err != nil {
		return stored, rec, err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	if stored, err = k.write(ctx, stored, over, a); err != nil {
		return stored, rec, err
	}
	return stored, over, nil
}

// isReplaced reports whether err is that another version is current.
func isReplaced(err error) bool {
	_, ok := errors.AsType[*keep.VersionError](err)
	return ok
}

// replaced keeps that a repair is over, if err is that another version is current, and what the attempt under way
// cost. Of a repair that never began nothing is kept.
func (k *Keeper) replaced(ctx context.Context, stored keep.Repair, rec law.Record, a law.Attempt, err error) (law.Record, error) {
	other, ok := errors.AsType[*keep.VersionError](err)
	if !ok {
		return rec, err
	}
	if rec = rec.Costs(a).Under(other.Current, k.now()); stored.Rev == 0 {
		return rec, nil
	}
	_, err = k.write(ctx, stored, rec, a)
	return rec, err
}

// write writes a record after its attempt a, which is known here until the store has it.
func (k *Keeper) write(ctx context.Context, stored keep.Repair, rec law.Record, a law.Attempt) (keep.Repair, error) {
	if n := len(rec.Attempts); n > 0 {
		a.BeganAt = rec.Attempts[n-1].BeganAt
	}
	k.mu.Lock()
	if k.unwritten == nil {
		k.unwritten = make(map[string]law.Attempt)
	}
	k.unwritten[stored.ID] = a
	k.mu.Unlock()
	stored, err := k.put(ctx, stored, rec)
	if err == nil || errors.Is(err, keep.ErrStale) { // another host has the repair now, or an earlier write was taken
		k.mu.Lock()
		delete(k.unwritten, stored.ID)
		k.mu.Unlock()
	}
	return stored, err
}

// overOf returns the attempt under way if it is over, and the store did not take that.
func (k *Keeper) overOf(rec law.Record) (law.Attempt, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.unwritten[rec.Signature.ID()]
	if !ok || !rec.IsUnderWay(a.BeganAt) {
		return law.Attempt{}, false
	}
	return a, true
}

// Proposed returns the script of a proposal for a failure, or why it may not be one any more, in
// sentences.
func (k *Keeper) Proposed(ctx context.Context, failed keep.Run, source string) (*host.Workflow, []string, error) {
	base, err := k.Repairer.Bench.Base(ctx, failed.Workflow, failed.Version)
	if err != nil {
		return nil, nil, err
	}
	return k.Repairer.Bench.Check(ctx, base, source)
}

func (k *Keeper) now() time.Time { return k.Clock().UTC().Truncate(time.Millisecond) }

// kept returns an attempt as it is kept.
func kept(a Attempt) law.Attempt {
	out := law.Attempt{Source: a.Source, Note: a.Note, Why: a.Why, Tokens: a.Used.Tokens(), Cost: a.Used.Cost}
	if a.Tried != nil {
		out.Verdict, out.Reasons = a.Tried.Verdict, a.Tried.Reasons
		out.Replay = a.Tried.Evidence.Compared.Counts
	}
	return out
}

// load returns the record of a signature: a new one if there is none yet, which is over at once if
// the workflow had all the repairs of a day.
func (k *Keeper) load(ctx context.Context, s law.Signature) (keep.Repair, law.Record, error) {
	stored, err := k.Store.Repair(ctx, s.ID())
	if err == nil {
		rec, err := law.ReadRecord(stored)
		return stored, rec, err
	}
	if !errors.Is(err, keep.ErrNotFound) {
		return stored, law.Record{}, err
	}
	stored, rec := keep.Repair{ID: s.ID(), Workflow: s.Workflow, CreatedAt: k.now()}, law.Begun(s)
	today, err := k.Store.Repairs(ctx, s.Workflow, stored.CreatedAt.Add(-24*time.Hour))
	if err != nil {
		return stored, rec, err
	}
	if why := k.Repairer.Limits.Begin(len(today)); why != "" {
		rec = rec.Refuse(why) // it is not kept: it may begin another day
	}
	return stored, rec, nil
}

// put writes a record over the one that was read.
func (k *Keeper) put(ctx context.Context, stored keep.Repair, rec law.Record) (keep.Repair, error) {
	state, err := rec.Encode()
	if err != nil {
		return stored, err
	}
	stored.State = state
	if err := k.Store.PutRepair(ctx, stored); err != nil {
		return stored, err
	}
	stored.Rev++
	return stored, nil
}
