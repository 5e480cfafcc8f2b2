package host

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/feed"
)

// A Teller is a store with leases over which hosts tell one another what they
// changed, for those who look. Nothing else depends on it.
type Teller interface {
	// Tell tells every host of the store, this one included, and returns the
	// number of the news. They are gone with the hosts that are there.
	Tell(ctx context.Context, text string) (uint64, error)

	// News returns what was told, in the order of the numbers. Some may be
	// missing. A nil channel means that the text is not heard; Pulse.News then
	// shows that there was one.
	News() <-chan keep.News
}

const (
	// tellEvery is the least time between two news of a host.
	tellEvery = 250 * time.Millisecond

	// tellTogether is how many news a second there are at most, by all hosts:
	// each wakes all of them.
	tellTogether = 64

	tellLimit = 7000 // bytes of news
	tellWait  = 5 * time.Second
)

// others are the hosts beside this one. It passes on what they tell, and tells
// them. It stands before the leases of the engine, to see what the engine learns.
type others struct {
	engine.Leaser
	teller Teller // nil: nobody is told, and news are resets
	log    *slog.Logger

	here     *feed.Feed // what those who look at this host follow
	outgoing *feed.Feed // what the others have to hear
	pending  *feed.Subscription
	me       string // tells own news from those of others

	mu    sync.Mutex // protects the fields below
	begun bool       // there was a pulse
	hosts int        // that share the store, by the last pulse
	heard uint64     // number of the last news that was heard, or made up for by a reset
	due   uint64     // number of the last news at the last pulse
	own   []uint64   // news of this host since heard
}

func newOthers(l engine.Leaser, here *feed.Feed, log *slog.Logger) *others {
	o := &others{Leaser: l, log: log, here: here, outgoing: feed.New(remembered), me: rand.Text()[:12]}
	o.teller, _ = l.(Teller)
	o.pending = o.outgoing.Subscribe(context.Background(), "")
	return o
}

// Alerts implements engine.Alerter, if the store does.
func (o *others) Alerts() <-chan struct{} {
	if a, ok := o.Leaser.(engine.Alerter); ok {
		return a.Alerts()
	}
	return nil
}

// Beat implements engine.Pulser.
func (o *others) Beat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.Pulse, error) {
	p, err := o.Leaser.Beat(ctx, h, ttl)
	if err == nil {
		o.learn(p)
	}
	return p, err
}

// Look implements engine.Pulser.
func (o *others) Look(ctx context.Context, id keep.HostID) (keep.Pulse, error) {
	p, err := o.Leaser.Look(ctx, id)
	if err == nil {
		o.learn(p)
	}
	return p, err
}

// Claim implements engine.Claimer. What was nobody's may have changed unseen.
func (o *others) Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error) {
	got, err := o.Leaser.Claim(ctx, id, n, only)
	for _, l := range got {
		o.publish(feed.Change{Workflow: l.Workflow, Kinds: feed.Looked()})
	}
	return got, err
}

// publish tells those who look at this host, and the other hosts.
func (o *others) publish(c feed.Change) {
	o.here.Publish(c)
	o.outgoing.Publish(c)
}

// learn takes from a pulse what was committed beside the hosts, and whether there
// were news that this host did not hear. News that the last pulse counted have
// arrived by now, if they arrive at all.
func (o *others) learn(p keep.Pulse) {
	for _, w := range p.Touched {
		o.publish(feed.Change{Workflow: w, Kinds: feed.Looked()})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hosts = p.Hosts
	missed := o.heard < o.due
	o.own = slices.DeleteFunc(o.own, func(n uint64) bool { return n <= o.heard })
	if o.teller == nil || o.teller.News() == nil {
		unseen := slices.DeleteFunc(slices.Clone(o.own), func(n uint64) bool { return n > p.News })
		missed = p.News-min(o.heard, p.News) > uint64(len(unseen))
		o.heard = max(o.heard, p.News)
	}
	if missed || !o.begun {
		o.heard = p.News
		o.here.Reset()
	}
	o.begun, o.due = true, p.News
}

// listen passes on what other hosts tell, until ctx ends.
func (o *others) listen(ctx context.Context) {
	if o.teller == nil {
		return
	}
	news := o.teller.News()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-news:
			o.hear(n)
		}
	}
}

// hear passes news on, or a reset if some are missing before them.
func (o *others) hear(n keep.News) {
	o.mu.Lock()
	defer o.mu.Unlock()
	missed := o.begun && n.N > o.heard+1
	o.heard = max(o.heard, n.N)
	from, text, _ := strings.Cut(n.Text, " ")
	switch {
	case missed:
		o.here.Reset()
	case from != o.me:
		for _, c := range feed.Read(text) {
			o.here.Publish(c)
		}
	}
}

// tell tells the others what is changed here, until ctx ends.
func (o *others) tell(ctx context.Context) {
	if o.teller == nil {
		return
	}
	failing := false
	for {
		batch, err := o.pending.Next(ctx)
		if err != nil {
			return
		}
		err = o.say(ctx, feed.Text(batch, tellLimit))
		if err != nil && ctx.Err() == nil {
			if !failing {
				o.log.WarnContext(ctx, "other hosts were not told of changes; their pages are late", "err", err)
			}
			o.outgoing.Reset()
		}
		failing = err != nil
		timer := time.NewTimer(o.gap(failing))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// say tells one text.
func (o *others) say(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tellWait, &keep.TimeoutError{Op: "telling the other hosts", After: tellWait})
	defer cancel()
	n, err := o.teller.Tell(ctx, o.me+" "+text)
	if err == nil {
		o.mu.Lock()
		o.own = append(o.own, n)
		o.mu.Unlock()
	}
	return err
}

// gap returns how long to wait before the next news.
func (o *others) gap(failing bool) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if failing {
		return tellWait
	}
	return max(tellEvery, time.Duration(o.hosts)*time.Second/tellTogether)
}
