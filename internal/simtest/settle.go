package simtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/operator"
)

// maxRounds is how often people answer all that is open, at the end of a world. Where each event of a topic waits for an approval of its own,
// and others follow it, some 200 are needed.
const maxRounds = 500

// settle ends the chaos: nothing fails any more, everything that was on its way
// has come, the scripts are right, and people answer every question. Then a host
// works until nothing is left.
func (w *world) settle() {
	w.calm = true
	clear(w.resting)
	w.putFileBack()
	w.inspect()
	time.Sleep(72 * time.Hour)
	p := w.boot()
	defer func() {
		p.cancel()
		p.wait.Wait()
		w.inspect()
	}()
	p.turn("people")
	for _, f := range w.flows {
		w.must("deploy", second(p.operator.Deploy(person, f.deployment(behaviour{}, w.settings))))
		w.must("resume", p.operator.Resume(person, f.name, keep.Decision{By: "ann", From: "sim"}))
	}
	if w.granted {
		w.permitAll(p.operator)
	}
	// The last deploy woke its workflow. Whether that has looked when it is told again must not depend on Go's scheduler.
	p.turn("people")
	p.engine.Reload()
	quiet := false
	for round := range maxRounds {
		err := w.waitIdle(p)
		p.turn("people")
		if err != nil {
			w.broken("explained", "not idle after a month")
			return
		}
		what, err := w.settleWaiting(p.operator)
		w.must(what, err)
		// What settleWaiting lets continue has its turn in the next round.
		was := quiet
		if quiet = !w.answerAll(p) && !w.catchUp(p); quiet && was {
			w.note(fmt.Sprintf("settled after %d rounds", round+1))
			return
		}
	}
	w.broken("explained", "still busy after %d rounds of answers", maxRounds)
}

// waitIdle waits until the engine is, for a month at most. What waits until a person says whether secrets are of the same user
// is asked about meanwhile, so the engine is not idle before that.
func (w *world) waitIdle(p *process) error {
	const month = 30 * 24 * time.Hour
	step := month
	if w.users {
		step = time.Hour
	}
	var err error
	for waited := time.Duration(0); waited < month; waited += step {
		limit, stop := context.WithTimeout(context.Background(), step)
		err = p.engine.WaitIdle(limit)
		stop()
		if err == nil || !w.users {
			return err
		}
		p.turn("people")
		qs, inboxErr := w.inbox(true)
		w.must("read the inbox", inboxErr)
		w.answerEach(p, slices.DeleteFunc(qs, func(q keep.Escalation) bool { return !account.IsUserQuestion(q) }))
	}
	return err
}

func second(_ keep.Version, err error) error { return err }

// must reports an error of something that cannot fail in a calm world.
func (w *world) must(what string, err error) {
	if err != nil {
		w.broken("explained", "%s in a calm world: %v", what, err)
	}
}

// answerAll answers what is open, and reports whether anything was.
func (w *world) answerAll(p *process) bool {
	qs, err := w.inbox(true)
	w.must("read the inbox", err)
	w.answerEach(p, qs)
	return len(qs) > 0
}

func (w *world) answerEach(p *process, qs []keep.Escalation) {
	for _, q := range qs {
		a := w.honest(q)
		err := w.answer(p.operator, q, a)
		w.note(fmt.Sprintf("person: %s to %s: %v", a, q.Kind, err))
		if _, waits := errors.AsType[*operator.ItemError](err); waits && w.itemInDoubt(q) {
			continue
		}
		if err != nil && !errors.Is(err, keep.ErrDecided) && !errors.Is(err, keep.ErrStale) {
			w.broken("explained", "%s to question %s (%s) of run %s: %v", a, q.ID, q.Kind, q.Run, err)
		}
	}
}

// catchUp asks for runs of producers and jobs that have something left, and
// reports whether any has.
func (w *world) catchUp(p *process) bool {
	busy := false
	for _, f := range w.flows {
		for _, h := range w.behind(f) {
			err := p.operator.Trigger(person, f.name, h, keep.Decision{By: "ann", From: "sim"})
			w.note(fmt.Sprintf("person: run %s %s now: %v", f.name, h, err))
			busy = true
			if err != nil && !errors.Is(err, keep.ErrRunOpen) {
				w.broken("explained", "run %s of %s now: %v", h, f.name, err)
			}
		}
	}
	return busy
}

// behind returns the producers and jobs that have not come to everything yet.
func (w *world) behind(f *flow) (late []keep.HandlerName) {
	for _, s := range f.sources {
		for n := range s.arrivals {
			if _, err := w.store.Event(person, f.name, s.topic, keep.MessageID(fmt.Sprintf("e%d", n))); err != nil {
				late = append(late, s.producer)
				break
			}
		}
	}
	if f.job == nil {
		return late
	}
	for _, it := range f.job.items {
		got, err := w.store.Item(person, f.name, it.id)
		if err != nil || got.Status != keep.ItemDone && got.Status != keep.ItemSkipped {
			return append(late, w.settings.job(keep.Handler{Name: f.job.name}).Name)
		}
	}
	return late
}
