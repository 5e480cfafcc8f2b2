package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
)

const (
	// sendEvery is the least time between two news of a host.
	sendEvery = 250 * time.Millisecond

	// sendRate is how many news a second there are at most, by all hosts:
	// each wakes all of them.
	sendRate = 64

	newsLimit   = 7000 // bytes of news
	sendTimeout = 5 * time.Second
)

// peers are the other hosts of the database. It sends them what changed here, and passes on
// what they send. It wraps the leases of the engine, to see each lease status.
type peers struct {
	store.Leaser
	connections func() map[string]string // of this host
	inGo        func() []string          // versions whose handlers it has
	broadcaster store.Broadcaster        // nil: nothing is sent, and a change elsewhere is a reset
	log         *slog.Logger

	here     *feed.Feed // what those who look at this host follow
	outgoing *feed.Feed // what the peers are to receive
	pending  *feed.Subscription
	me       string // marks own news

	mu       sync.Mutex // protects the fields below
	begun    bool       // a status was read
	unlike   string     // how hosts differ, as it was logged
	hosts    int        // that share the store, by the last status
	received uint64     // number of the last news that was received, or made up for by a reset
	due      uint64     // number of the last news at the last status
	own      []uint64   // news of this host since received
}

func newPeers(l store.Leaser, connections func() map[string]string, inGo func() []string, here *feed.Feed, log *slog.Logger) *peers {
	o := &peers{Leaser: l, connections: connections, inGo: inGo, log: log, here: here, outgoing: feed.New(remembered), me: rand.Text()[:12]}
	o.broadcaster, _ = l.(store.Broadcaster)
	o.pending = o.outgoing.Subscribe(context.Background(), "")
	return o
}

// Alerts implements store.Alerter, if the store does.
func (o *peers) Alerts() <-chan struct{} {
	if a, ok := o.Leaser.(store.Alerter); ok {
		return a.Alerts()
	}
	return nil
}

// Heartbeat implements store.Hosts.
func (o *peers) Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.LeaseStatus, error) {
	h.Connections, h.InGo = o.connections(), o.inGo()
	p, err := o.Leaser.Heartbeat(ctx, h, ttl)
	if err == nil {
		o.observe(p)
		o.compare(ctx, p)
	}
	return p, err
}

// compare logs how the connections of the hosts differ, whenever that changes. Each
// workflow may come to each host, and what one sent is asked about where it was sent.
func (o *peers) compare(ctx context.Context, p keep.LeaseStatus) {
	o.mu.Lock()
	before := o.unlike
	o.mu.Unlock()
	var list []policy.Mismatch
	if p.Mixed {
		hosts, err := o.Hosts(ctx)
		if err != nil {
			o.log.WarnContext(ctx, "the connections of other hosts could not be compared; trying again", "err", err)
			return
		}
		list = policy.Mismatches(hosts, p.Now)
	}
	text := fmt.Sprint(list)
	if len(list) == 0 {
		text = ""
	}
	if text == before {
		return
	}
	for _, m := range list {
		o.log.WarnContext(ctx, m.String()+"; give all hosts of a database the same keep.toml", "connection", m.Connection)
	}
	if text == "" {
		o.log.InfoContext(ctx, "all hosts have the same connections again")
	}
	o.mu.Lock()
	o.unlike = text
	o.mu.Unlock()
	o.here.Reset() // pages show it
}

// Poll implements store.Hosts.
func (o *peers) Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error) {
	p, err := o.Leaser.Poll(ctx, id)
	if err == nil {
		o.observe(p)
	}
	return p, err
}

// Claim implements store.Leases. What no host had may have changed unseen.
func (o *peers) Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error) {
	got, err := o.Leaser.Claim(ctx, id, n, only)
	for _, l := range got {
		o.publish(feed.Change{Workflow: l.Workflow, Kinds: feed.Looked()})
	}
	return got, err
}

// publish sends a change to the pages of this host, and to its peers.
func (o *peers) publish(c feed.Change) {
	o.here.Publish(c)
	o.outgoing.Publish(c)
}

// observe takes from a lease status what was committed beside the hosts, and whether there
// were news that this host did not receive. News that the last status counted have
// arrived by now, if they arrive at all.
func (o *peers) observe(p keep.LeaseStatus) {
	for _, w := range p.Touched {
		o.publish(feed.Change{Workflow: w, Kinds: feed.Looked()})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hosts = p.Hosts
	missed := o.received < o.due
	o.own = slices.DeleteFunc(o.own, func(n uint64) bool { return n <= o.received })
	if o.broadcaster == nil || o.broadcaster.News() == nil {
		unseen := slices.DeleteFunc(slices.Clone(o.own), func(n uint64) bool { return n > p.News })
		missed = p.News-min(o.received, p.News) > uint64(len(unseen))
		o.received = max(o.received, p.News)
	}
	if missed || !o.begun {
		o.received = p.News
		o.here.Reset()
	}
	o.begun, o.due = true, p.News
}

// listen passes on what peers send, until ctx ends.
func (o *peers) listen(ctx context.Context) {
	if o.broadcaster == nil {
		return
	}
	news := o.broadcaster.News()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-news:
			o.receive(n)
		}
	}
}

// receive passes news on, or a reset if some are missing before them.
func (o *peers) receive(n keep.News) {
	o.mu.Lock()
	defer o.mu.Unlock()
	missed := o.begun && n.N > o.received+1
	o.received = max(o.received, n.N)
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

// broadcast sends the peers what changed here, until ctx ends.
func (o *peers) broadcast(ctx context.Context) {
	if o.broadcaster == nil {
		return
	}
	failing := false
	for {
		batch, err := o.pending.Next(ctx)
		if err != nil {
			return
		}
		err = o.send(ctx, feed.Text(batch, newsLimit))
		if err != nil && ctx.Err() == nil {
			if !failing {
				o.log.WarnContext(ctx, "other hosts were not notified of changes; their pages are late", "err", err)
			}
			o.outgoing.Reset()
		}
		failing = err != nil
		_ = pause.For(ctx, o.gap(failing))
	}
}

// send sends one text.
func (o *peers) send(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, &keep.TimeoutError{Op: "telling the other hosts", After: sendTimeout})
	defer cancel()
	n, err := o.broadcaster.Tell(ctx, o.me+" "+text)
	if err == nil {
		o.mu.Lock()
		o.own = append(o.own, n)
		o.mu.Unlock()
	}
	return err
}

// gap returns how long to wait before the next news.
func (o *peers) gap(failing bool) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if failing {
		return sendTimeout
	}
	return max(sendEvery, time.Duration(o.hosts)*time.Second/sendRate)
}
