package prove

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pause"
)

// unsent looks for a call that was never made: finding it would be finding anything.
func (t *prover) unsent(ctx context.Context) {
	tr := t.begin(ctx, "never sent", nil)
	seen, _, err := t.seen(ctx, tr)
	switch {
	case tr.err != nil:
		t.faultf("what comes before a call was refused: %v", tr.err)
		t.fatal = true
	case err == nil && seen > 0:
		t.blind = true
		t.faultf("the lookup found a call that was never made")
	}
}

// once makes one call and waits until its effect shows.
func (t *prover) once(ctx context.Context) {
	for range maxRefusals {
		if !t.spend(1) {
			return
		}
		tr := t.begin(ctx, "one call", nil)
		start := time.Now()
		t.first(ctx, tr)
		t.took = time.Since(start)
		if !Refused(tr.err) {
			t.await(ctx, tr)
			return
		}
	}
	last := t.trials[len(t.trials)-1].err
	t.fatal, t.blind = true, true
	t.faultf("the service refused the call %d times: %v", maxRefusals, last)
}

// again repeats the first call under the same key, and then makes it under another one. A
// service that honours keys answers the repeat as it answered the call, and the other not.
func (t *prover) again(ctx context.Context) {
	t.one = t.trials[len(t.trials)-1]
	if t.one.err != nil || !t.spend(2) {
		t.unsure = true
		return
	}
	t.one.m.Attempts++
	repeat, err := t.send(ctx, t.one)
	other := t.begin(ctx, "the same under another key", t.one)
	t.first(ctx, other)
	if !Refused(other.err) {
		t.await(ctx, other)
	}
	same := bytes.Equal(canonical(repeat), canonical(t.one.result))
	counts := t.canCount(ctx, t.one)
	switch {
	case passes(err) || err != nil && !Refused(err) && t.spec.Level != keep.LevelClaim: // it may not have got there
		t.repeat, t.unsure = fmt.Sprintf("not dealt with: %v", err), true
		if t.spec.Level == keep.LevelClaim {
			t.faultf("nothing shows what a repeat does: it was %s", t.repeat)
		}
	case err != nil:
		t.repeat = fmt.Sprintf("refused: %v", err)
		t.keyed = t.spec.Level == keep.LevelClaim // what it used up is gone; the end counts
		t.one.decides = t.keyed
	case !same:
		t.repeat = "answered with another result: " + cut(repeat)
		t.keyed, t.one.decides = counts, counts // then the end decides
	case t.spec.Sets:
		t.repeat, t.keyed = "answered as the call was", true
	case Refused(other.err) && !passes(other.err):
		t.repeat, t.keyed = "answered as the call was, and a call under another key was refused", true
	case other.err != nil || bytes.Equal(other.keyless(), t.one.keyless()):
		t.repeat = "answered as the call was; so is a call under another key, so the answer shows nothing"
		t.keyed, t.unsure, t.one.decides = counts, !counts, counts
	default:
		t.repeat, t.keyed = "answered as the call was, and a call under another key was not", true
	}
	if t.spec.Level == keep.LevelKey && t.keyed && !t.spec.Sets && !t.one.decides {
		t.onceMore(ctx)
	}
	if t.spec.Level == keep.LevelKey && !t.keyed && !t.unsure {
		t.faultf("the key is not honoured: a repeat was %s", t.repeat)
	}
}

// onceMore repeats the call after the one under another key, which was answered otherwise. That may have come later instead: of a service
// that knows no keys, and says what time it is, or how much there is, only what is asked last shows that.
func (t *prover) onceMore(ctx context.Context) {
	if !t.spend(1) {
		t.unsure = true
		return
	}
	t.one.m.Attempts++
	repeat, err := t.send(ctx, t.one)
	switch {
	case err != nil:
		t.unsure = true
		t.repeat += fmt.Sprintf("; repeated after that, it was not: %v", err)
	case !bytes.Equal(canonical(repeat), canonical(t.one.result)):
		t.keyed = false
		t.repeat += "; repeated after that, it was answered with another result: " + cut(repeat)
	}
}

// atOnce makes the same call twice at the same time: the second comes while the service works
// on the first.
//
// A key that a repeat has refuted already is not tried: it would cost two calls to know it once more.
func (t *prover) atOnce(ctx context.Context) {
	if t.spec.Level != keep.LevelKey || !t.keyed || !t.spend(2) {
		return
	}
	tr := t.begin(ctx, "twice at once", nil)
	t.trials = append(t.trials, tr)
	var wait sync.WaitGroup
	var results [2]json.RawMessage
	var errs [2]error
	for i := range results {
		wait.Go(func() { results[i], errs[i] = t.send(ctx, tr) })
	}
	wait.Wait()
	tr.result, tr.err = results[0], errs[0]
	if errs[0] != nil {
		tr.result, tr.err = results[1], errs[1]
	}
	if errs[0] == nil && errs[1] == nil && !t.spec.Sets && !bytes.Equal(canonical(results[0]), canonical(results[1])) {
		if tr.decides = t.canCount(ctx, tr); tr.decides {
			return
		}
		t.keyed = false
		t.faultf("two calls at once under one key were answered as two: %s, %s", cut(results[0]), cut(results[1]))
	}
}

// brokenOff ends calls before their answer, each a little later, and settles them as a host
// would.
func (t *prover) brokenOff(ctx context.Context) {
	if t.isRefuted(ctx) {
		return
	}
	n := max(1, t.plan.Calls/5)
	for i := range n {
		if t.left() < 3 || !t.spend(1) {
			return
		}
		tr := t.begin(ctx, "broken off", nil)
		t.trials = append(t.trials, tr)
		broken, cancel := context.WithTimeout(ctx, t.took*time.Duration(i+1)/time.Duration(n+1))
		tr.result, tr.err = t.send(broken, tr)
		cancel()
		t.await(ctx, tr)
	}
}

// lost makes calls whose answers nobody takes, with what is left of the budget.
func (t *prover) lost(ctx context.Context) {
	if t.isRefuted(ctx) {
		return
	}
	each := 1
	if t.spec.Level == keep.LevelKey && (len(t.trials) == 0 || !t.canCount(ctx, t.trials[0])) {
		each = 2 // it is asked for by a repeat
	}
	for refusals := 0; t.left() >= each && refusals < maxRefusals && ctx.Err() == nil && !t.blind; {
		t.spend(1)
		tr := t.begin(ctx, "answer lost", nil)
		t.first(ctx, tr)
		if Refused(tr.err) {
			refusals++
			_ = pause.For(ctx, longPause)
			continue
		}
		refusals = 0
		t.await(ctx, tr)
	}
}

// isRefuted reports whether no further call shows anything: the key is not honoured, and nothing else is known of a call, or nothing ever
// can be. Each one would be one more thing to remove, and could be used to try something else.
func (t *prover) isRefuted(ctx context.Context) bool {
	return t.spec.Level == keep.LevelNone || t.spec.Level == keep.LevelKey && !t.keyed && !t.unsure && len(t.trials) > 0 && !t.canCount(ctx, t.trials[0])
}

// await waits until the effect of a trial shows, and notes how long that took.
func (t *prover) await(ctx context.Context, tr *trial) {
	if t.spec.Level == keep.LevelNone || t.blind {
		return
	}
	if t.spec.Level == keep.LevelKey && !t.canCount(ctx, tr) {
		t.askByRepeat(ctx, tr)
		return
	}
	answered := time.Now()
	var why string
	for wait := firstPause; time.Since(answered) < t.wait; wait = min(wait*3/2, longPause) {
		seen, detail, err := t.seen(ctx, tr)
		if err == nil && seen > 0 {
			tr.found = true
			if lag := time.Since(answered); tr.err == nil || lag > t.spec.SettleAfter {
				t.lags = append(t.lags, lag)
			}
			t.findAgain(ctx, tr)
			return
		}
		why = detail
		if err != nil {
			why = err.Error()
		}
		if tr.err != nil && time.Since(answered) > t.settle() {
			tr.ended, tr.missed = answered, time.Since(answered)
			return // it may never have come there
		}
		if pause.For(ctx, wait) != nil {
			return
		}
	}
	if tr.err == nil {
		t.blind = true
		t.faultf("the effect of a call that was confirmed did not show in %s: %s", t.wait, why)
	}
}

// findAgain looks once more for an effect that was found. A lookup that does not find it again is none: it may take away what it
// shows, as one that gives out the next job of a queue, and each doubt of a host would lose what others wait for.
func (t *prover) findAgain(ctx context.Context, tr *trial) {
	began := time.Now()
	for wait := firstPause; ctx.Err() == nil; wait = min(wait*3/2, longPause) {
		seen, why, err := t.seen(ctx, tr)
		if err == nil && seen > 0 {
			return
		}
		if err != nil {
			why = err.Error()
		}
		if time.Since(began) >= t.wait {
			t.blind = true
			t.faultf("the effect of a call was found once, and not again in %s: the lookup may take away what it shows: %s", t.wait, why)
			return
		}
		_ = pause.For(ctx, wait)
	}
}

// settle is how long an effect may take that was not confirmed: as long as any did, and more.
func (t *prover) settle() time.Duration {
	longest := time.Second
	for _, l := range t.lags {
		longest = max(longest, 2*l)
	}
	return min(longest, t.wait)
}

// askByRepeat asks for a call by making it again under its key.
func (t *prover) askByRepeat(ctx context.Context, tr *trial) {
	if !t.spend(1) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callLasts)
	defer cancel()
	tr.m.Attempts++
	a, err := t.plan.Tool.(connector.Reconciler).Reconcile(ctx, tr.m)
	tr.found = err == nil && a.Verdict == connector.Happened
	if tr.found && tr.err == nil && !t.spec.Sets && !bytes.Equal(canonical(a.Result), canonical(tr.result)) && tr.result != nil {
		t.keyed = false
		t.faultf("a repeat was answered with another result: %s, and before %s", cut(a.Result), cut(tr.result))
	}
}

// canCount reports whether the tool's lookup can count effects without sending anything.
func (t *prover) canCount(ctx context.Context, tr *trial) bool {
	c, ok := t.plan.Tool.(connector.Counter)
	if !ok {
		return false
	}
	_, err := count(ctx, c, tr)
	return !errors.Is(err, errors.ErrUnsupported)
}

// count returns how many effects of a trial the tool's lookup shows. It ends also if that never answers.
func count(ctx context.Context, c connector.Counter, tr *trial) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callLasts)
	defer cancel()
	return c.Count(ctx, tr.m)
}

// seen returns how many effects of a trial can be seen now: one, if the tool can't count.
func (t *prover) seen(ctx context.Context, tr *trial) (n int, detail string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLasts)
	defer cancel()
	if c, ok := t.plan.Tool.(connector.Counter); ok && t.spec.Level != keep.LevelClaim {
		if n, err = c.Count(ctx, tr.m); !errors.Is(err, errors.ErrUnsupported) {
			return n, "it is not in the answer of the lookup", err
		}
	}
	r, ok := t.plan.Tool.(connector.Reconciler)
	if !ok || t.spec.Level == keep.LevelKey {
		return 0, "nothing can be looked for", nil
	}
	a, err := r.Reconcile(ctx, tr.m)
	if err == nil && a.Verdict == connector.Happened {
		n = 1
	}
	return n, a.Detail, err
}

// count looks at the end how often each call had its effect, after as long as second effects
// may take to show.
func (t *prover) count(ctx context.Context) {
	c, ok := t.plan.Tool.(connector.Counter)
	if !ok || t.spec.Level == keep.LevelNone {
		return
	}
	if t.blind {
		t.undecided()
		return
	}
	_ = pause.For(ctx, t.settle())
	for _, tr := range t.trials {
		n, err := count(ctx, c, tr)
		if err != nil {
			continue
		}
		tr.shown = n
		if n > 0 && !tr.found && tr.missed > 0 {
			t.showedLate(tr)
		}
		tr.found = tr.found || n > 0
		if n > 1 {
			if t.spec.Level == keep.LevelKey {
				t.faultf("the key is not honoured: %q had %d effects under one key", tr.what, n)
			}
			t.keyed = false
		}
	}
	t.undecided()
	if t.one != nil && t.one.shown >= 0 && t.repeat != "" {
		t.repeat += fmt.Sprintf("; the lookup then showed %d of its effects", t.one.shown)
	}
}

// showedLate notes an effect that was not there when it was looked for, and is now. When it came is not known: it is taken for
// now, as a settle_after that is too long only makes hosts wait.
func (t *prover) showedLate(tr *trial) {
	lag := time.Since(tr.ended)
	t.longest = max(t.longest, lag)
	if tr.missed > t.spec.SettleAfter {
		t.lags = append(t.lags, lag)
	}
}

// undecided takes back what only a count at the end would have decided, if that showed no effect.
func (t *prover) undecided() {
	if t.keyed && slices.ContainsFunc(t.trials, func(tr *trial) bool { return tr.decides && tr.shown < 1 }) {
		t.keyed, t.unsure = false, true
	}
}
