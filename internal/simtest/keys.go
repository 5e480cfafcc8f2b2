package simtest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// In every third world services of level A forget keys. A call that is sent again after
// that is another one, so it must not be: it is searched for, or a person is asked. How
// old a key is, a host knows by the clock of the records and by what it counted itself. A
// clock that was set back while a host was down makes keys look younger, which no host can
// see (docs/GUARANTEES.md says so); set back under a host that knew the call, it does not.

// forgetKeys decides how long keys last. The draw is its own, so that the other worlds are
// those of before.
func (w *world) forgetKeys() {
	rng := rand.New(rand.NewPCG(w.seed, 7))
	if rng.IntN(3) != 0 {
		return
	}
	w.keyLasts = []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour}[rng.IntN(3)]
	w.keyFound = rng.IntN(2) == 0
}

// forgot reports whether the service has forgotten the key of an effect.
func (w *world) forgot(e effect) bool { return w.keyLasts > 0 && w.now() >= e.at+w.keyLasts }

// found reports whether what a tool of level A did can be searched for.
func (t tool) found() bool { return t.spec.Level == keep.LevelKey && t.w.keyFound }

// clockLag returns how far the clock of the only host was set back since the world began.
func (w *world) clockLag() time.Duration {
	return time.Duration(w.setback.Load()) + 30*24*time.Hour - w.offset
}

// meets notes that the engine of a process has read the record of a call in doubt, and
// counts from now on how old its key gets.
func (p *process) meets(ctx context.Context, m keep.Mutation) {
	if _, known := p.met[m.Key]; !known && m.Key != "" && lifecycle.Unknown(m.State) && ctx.Value(byPerson{}) == nil {
		p.met[m.Key] = p.w.clockLag()
	}
}

// watchResend looks whether a call is sent again under a key that the service has
// forgotten, and that the process could know to be so old.
func (w *world) watchResend(p *process, t tool, m keep.Mutation) {
	w.watchSentAgain(m)
	w.watchUser(t, m)
	for _, e := range w.truth.effects[m.Token] {
		if e.way != t.way || e.user != t.user() || !w.forgot(e) {
			continue
		}
		unseen := max(0, p.met[m.Key]-e.setback)
		if age := w.now() - e.at; age-unseen >= w.keyLasts {
			w.broken("once", "%s is sent again under a key that is %s old (%s of it unseen), and keys last %s", m.Key, age, unseen, w.keyLasts)
		}
		w.saw("key: forgotten as no clock told")
		w.forgotten[m.Token]++
	}
}
