package host

import (
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/count"
)

// How often a host counts what workflows did. Where several share a database each does, and
// they write the same.
const (
	firstCount  = 2 * time.Second
	countEvery  = 15 * time.Second
	countShared = time.Minute
	countRest   = 5 * time.Millisecond // between two parts of a longer time
)

// counting keeps the counters of workflows up to date: see law/count. They cost runs nothing,
// since they are made of the records that there are.
type counting struct {
	h     *Host
	from  time.Time // what is to be counted begins here; zero: not known yet
	swept time.Time // the hour in which old ones were deleted last
}

// count counts again and again until ctx is done.
func (h *Host) count(ctx context.Context) {
	every := countEvery
	if h.peers != nil {
		every = countShared
	}
	c := counting{h: h}
	for wait := firstCount; pause.For(ctx, wait) == nil; wait = every {
		if err := c.upTo(ctx, h.Now()); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "count what workflows did; it is counted later", "err", err)
		}
	}
}

// Count counts what workflows did until now. Run does it by itself.
func (h *Host) Count(ctx context.Context) error {
	c := counting{h: h}
	return c.upTo(ctx, h.Now())
}

// upTo counts what is not counted yet. It may end at any moment, with ctx or with the process:
// what was written stays right, and the next one begins with the last of it.
func (c *counting) upTo(ctx context.Context, now time.Time) error {
	if c.from.IsZero() {
		last, err := c.last(ctx, now)
		if err != nil {
			return err
		}
		c.from = last
	}
	end := now.Truncate(time.Minute).Add(time.Minute)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for c.from.Before(end) {
		to := count.Part(c.from, end, now)
		if err := c.part(ctx, c.from, to, now, to.Equal(end)); err != nil {
			return err
		}
		c.from = to
		rest.Reset(countRest)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-rest.C:
		}
	}
	c.from = end.Add(-time.Minute - count.Again)
	return nil
}

// last returns where to begin: a little before the newest minute that was counted. Minutes that
// are deleted were counted for good.
func (c *counting) last(ctx context.Context, now time.Time) (time.Time, error) {
	from, to := now.Add(-count.First).Truncate(keep.Day.Length()), now.Add(keep.Day.Length())
	for i, step := range []keep.Step{keep.Day, keep.Hour, keep.Minute} {
		list, err := c.h.store.Counters(ctx, step, "", from, to)
		switch {
		case err != nil || i == 0 && len(list) == 0:
			return from, err
		case len(list) == 0:
			return to, nil
		}
		from = list[len(list)-1].At // the newest; what is shorter is in it
		to = from.Add(step.Length())
	}
	if now = now.Truncate(time.Minute); from.After(now) { // by a clock that was ahead
		from = now
	}
	return from.Add(-count.Again), nil
}

// part counts [from, to) of one day, and writes what changed.
func (c *counting) part(ctx context.Context, from, to, now time.Time, live bool) error {
	s := c.h.store
	ended, err := s.Ended(ctx, from, to)
	if err != nil {
		return err
	}
	var standing []keep.Counter
	if live {
		if standing, err = s.Standing(ctx); err != nil {
			return err
		}
	}
	known, err := c.known(ctx, from, to)
	if err != nil {
		return err
	}
	list := count.Counted(from, to, ended, standing, known)
	before := count.Before(now)
	list = slices.DeleteFunc(list, func(v keep.Counter) bool { return v.At.Before(before[v.Step]) })
	hour := now.Truncate(time.Hour)
	if !live || hour.Equal(c.swept) {
		before = nil // what is old is deleted once an hour, when all of it was counted
	}
	if len(list) == 0 && live && c.h.Refusal().Err != nil {
		list = count.Nothing(to) // nobody may commit while the host is not ready: this write tells that the store takes them again
	}
	if len(list) == 0 && before == nil {
		return nil
	}
	err = s.PutCounters(ctx, list, before)
	if err != nil || len(list) > 0 {
		c.h.refusals.note(err)
	}
	if err != nil {
		return err
	}
	if live {
		c.swept = hour
	}
	return nil
}

// known reads what is counted already of the day of a part.
func (c *counting) known(ctx context.Context, from, to time.Time) (k count.Known, err error) {
	hour, day := from.Truncate(time.Hour), from.Truncate(keep.Day.Length())
	s := c.h.store
	if k.Minutes, err = s.Counters(ctx, keep.Minute, "", hour, to.Add(time.Hour-1).Truncate(time.Hour)); err != nil {
		return k, err
	}
	if k.Hours, err = s.Counters(ctx, keep.Hour, "", day, day.Add(keep.Day.Length())); err != nil {
		return k, err
	}
	k.Days, err = s.Counters(ctx, keep.Day, "", day, day.Add(keep.Day.Length()))
	return k, err
}
