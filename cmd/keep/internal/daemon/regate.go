package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/gateway"
)

// A gateway is made of one configuration. Where keep.toml changes, it ends after its calls, and the next one is made
// of the new configuration: its agents continue with that.

// NextGateway waits until keep.toml, or a secret that it needs, is another one than in cfg that a gateway can be made of, and
// returns it; nil: ctx ended. What it cannot be made of is said once, and leaves the gateway as it is. A change is read when
// two looks agree, and taken if a look after that does.
//
// What was refused is read again every two seconds, and so is what has secrets of the database: no file shows what changes
// there. What is read is compared with cfg, and not what the files were with what they are: nobody looked at them just when
// cfg was read.
func (e Env) NextGateway(ctx context.Context, cfg *config.Config, load func() (*config.Config, error)) *config.Config {
	var judged fingerprint // of what was read last; nil: nothing was
	read, last, reason, refused, looks := cfg, fingerprintOf(cfg), "", false, 0
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := fingerprintOf(cfg, read)
		settled := maps.Equal(now, last)
		last = now
		looks++
		if hidden := refused || read.Stored != ""; !settled || maps.Equal(now, judged) && !(hidden && looks >= hiddenEvery) {
			continue
		}
		looks = 0
		next, err := loadGateway(cfg, load)
		if next != nil {
			read = next
		}
		if last = fingerprintOf(cfg, read); !maps.Equal(now, last) {
			continue // it changed meanwhile, or names other files
		}
		judged, refused = now, err != nil
		switch {
		case err == nil && !next.Same(cfg):
			return next
		case err != nil && reasonOf(err) != reason:
			reason = reasonOf(err)
			e.Log.WarnContext(ctx, "configuration refused", "reason", reason)
		}
	}
}

// hiddenEvery is after how many looks is read what no file shows.
const hiddenEvery = 5

// loadGateway reads a configuration anew that takes the place of another, or says why a gateway cannot be made of it.
func loadGateway(before *config.Config, load func() (*config.Config, error)) (*config.Config, error) {
	next, err := load()
	switch {
	case err != nil:
		return nil, err
	case next.File != before.File || len(next.Gateway.Servers) == 0:
		return nil, fmt.Errorf("%s configures no MCP server any more", before.File)
	case len(next.Missing) > 0:
		return next, &config.Error{Problems: next.Missing}
	case next.DB != before.DB || SocketOf(next) != SocketOf(before):
		return next, fmt.Errorf("%s: a change of db or server.socket needs a restart", next.File)
	}
	return next, gateway.CheckAgents(next.Gateway.Agents)
}

// A served gateway is one that agents of other processes use.
type served struct {
	*gateway.Gateway
	hash  string          // of keep.toml
	ctx   context.Context // ends with the links
	stop  context.CancelFunc
	links sync.WaitGroup
}

func newServed(g *gateway.Gateway, hash string) *served {
	v := &served{Gateway: g, hash: hash}
	v.ctx, v.stop = context.WithCancel(context.Background())
	return v
}

// end ends the links, after what was sent had a moment.
func (v *served) end() {
	v.stop()
	v.links.Wait()
}

var errStopping = errors.New("the gateway is stopping")

// A gate has the gateway that serves links. That of a daemon is opened when the first agent comes, with the configuration
// as it is then, and another one after that changed. Once opened there is one, also while no agent is there: it asks about
// calls in doubt.
type gate struct {
	log  *slog.Logger
	open func() (g *gateway.Gateway, hash string, err error)
	ctx  context.Context // ends when no gateway is to be opened any more
	stop context.CancelFunc

	renewing sync.WaitGroup
	mu       sync.Mutex // protects the next one
	now      *served    // nil: none
}

func newGate(log *slog.Logger, open func() (*gateway.Gateway, string, error)) *gate {
	g := &gate{log: log, open: open}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// join returns the gateway for a link, which its links then count.
func (g *gate) join() (*served, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, errStopping
	}
	if g.now == nil {
		opened, hash, err := g.open()
		if err != nil {
			return nil, err
		}
		g.now = newServed(opened, hash)
	}
	g.now.links.Add(1)
	return g.now, nil
}

// begin opens the gateway before an agent comes.
func (g *gate) begin() error {
	v, err := g.join()
	if err == nil {
		v.links.Done()
	}
	return err
}

// beginSoon opens the gateway before an agent comes, now or as soon as it opens.
func (g *gate) beginSoon() {
	if g.begin() != nil {
		g.renewing.Go(g.keepOpen)
	}
}

// openEvery is how often a gateway is tried that does not open.
const openEvery = time.Second

// keepOpen opens the gateway, and tries until it opens or is not wanted any more.
func (g *gate) keepOpen() {
	reason := ""
	for {
		err := g.begin()
		if err == nil || errors.Is(err, errStopping) {
			return
		}
		if err.Error() != reason {
			reason = err.Error()
			g.log.Warn("the gateway does not open; it is tried again, and nobody is asked about its calls until then", "err", err)
		}
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(openEvery):
		}
	}
}

// renew has agents use another gateway, after their calls.
func (g *gate) renew() {
	g.renewing.Go(func() {
		g.mu.Lock()
		v := g.now
		g.mu.Unlock()
		if v == nil {
			return
		}
		calls, cancel := context.WithTimeout(g.ctx, CallWait)
		v.Settle(calls)
		cancel()
		g.mu.Lock()
		if g.now == v {
			_ = g.close()
		}
		g.mu.Unlock()
		g.keepOpen()
	})
}

// close ends the gateway; the lock is held.
func (g *gate) close() error {
	if g.now == nil {
		return nil
	}
	g.now.end()
	err := g.now.Close()
	g.now = nil
	return err
}

// end ends it for good.
func (g *gate) end() error {
	g.stop()
	g.mu.Lock()
	err := g.close()
	g.mu.Unlock()
	g.renewing.Wait()
	return err
}
