package repair

import (
	"context"
	"errors"
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
}

// Repair repairs a failure as far as its budget lasts, and returns what is known of it then. That
// an attempt begins is durable before the model is asked, and what it brought before the next one
// begins: an attempt whose host dies is used up, and so is one that ends by an error. A repair that
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
		if err := k.Repairer.current(ctx, failed); err != nil {
			return k.replaced(ctx, stored, rec, err)
		}
		tried, spent := rec.Tried(), rec.Spent()
		if rec, err = rec.Begin(k.Repairer.Limits, failed.ID, k.now()); err != nil {
			return rec, err
		}
		if stored, err = k.put(ctx, stored, rec); err != nil || rec.Stage != law.Trying {
			return rec, err
		}
		a, err := k.Repairer.Attempt(ctx, failed, spent, tried)
		if err == nil {
			err = k.Repairer.current(ctx, failed)
		}
		if err != nil {
			return k.broke(ctx, stored, rec, a, err)
		}
		if rec, err = rec.End(kept(a), k.now()); err != nil {
			return rec, err
		}
		if stored, err = k.put(ctx, stored, rec); err != nil {
			return rec, err
		}
	}
	return rec, nil
}

// endWithin is how long it may take to keep the end of an attempt whose host is ending.
const endWithin = 5 * time.Second

// broke keeps what an attempt cost that ended by err, and why it ended.
func (k *Keeper) broke(ctx context.Context, stored keep.Repair, rec law.Record, a Attempt, err error) (law.Record, error) {
	if _, ok := errors.AsType[*keep.VersionError](err); ok {
		n := len(rec.Attempts) - 1
		rec.Attempts[n].Tokens, rec.Attempts[n].Cost = a.Used.Tokens(), a.Used.Cost
		return k.replaced(ctx, stored, rec, err)
	}
	why := "it could not be tried: " + err.Error()
	if ctx.Err() != nil {
		why = law.HostEnded
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer stop()
	over, ended := rec.End(law.Attempt{Why: keep.CutTitle(why), Tokens: a.Used.Tokens(), Cost: a.Used.Cost}, k.now())
	if ended == nil {
		_, ended = k.put(ctx, stored, over)
	}
	if ended != nil {
		return rec, err // the attempt is used up all the same
	}
	return over, err
}

// replaced keeps that a repair is over, if err is that another version is current. Of a repair that never
// began nothing is kept.
func (k *Keeper) replaced(ctx context.Context, stored keep.Repair, rec law.Record, err error) (law.Record, error) {
	other, ok := errors.AsType[*keep.VersionError](err)
	if !ok {
		return rec, err
	}
	if rec = rec.Under(other.Current, k.now()); stored.Rev == 0 {
		return rec, nil
	}
	_, err = k.put(ctx, stored, rec)
	return rec, err
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
