package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
)

// A parking is a mutate tool whose calls stay out until the host is gone, and
// that can then be asked for them.
type parking struct {
	instant
	out chan struct{} // gets a value for each call that is out

	asked, most, now atomic.Int64 // lookups: all, at once at most, at this moment
}

// Spec gives calls so much time that all of them are out when the host dies.
func (p *parking) Spec() connector.Spec {
	spec := p.instant.Spec()
	spec.Timeout = time.Hour
	return spec
}

// Mutate never answers.
func (p *parking) Mutate(ctx context.Context, _ keep.Mutation) (connector.Receipt, error) {
	p.out <- struct{}{}
	<-ctx.Done()
	return connector.Receipt{}, context.Cause(ctx)
}

// answerTime is how long the service of the recovery takes for a lookup.
const answerTime = 5 * time.Millisecond

// Reconcile answers soon, as a service in the same building does.
func (p *parking) Reconcile(ctx context.Context, _ keep.Mutation) (connector.Answer, error) {
	p.asked.Add(1)
	n := p.now.Add(1)
	defer p.now.Add(-1)
	if err := pause.For(ctx, answerTime); err != nil {
		return connector.Answer{}, err
	}
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: json.RawMessage(`{"id":"7"}`)}}, nil
}

// A dying store takes no commits any more once it is dead.
type dying struct {
	*counter
	dead atomic.Bool
}

// Commit fails like a store whose process is gone.
func (d *dying) Commit(ctx context.Context, k keep.Commit) error {
	if d.dead.Load() {
		return errors.New("the process is gone")
	}
	return d.counter.Commit(ctx, k)
}

// recovery kills a host while every workflow has a call out, starts another one,
// and measures how long it takes until all of them are certain and the runs done.
func recovery(ctx context.Context, dir string, workflows int, out io.Writer) error {
	if err := leaveInFlight(ctx, dir, workflows); err != nil {
		return err
	}
	tool := &parking{}
	b := &bench{dir: dir, tool: tool, last: make(map[keep.WorkflowName]time.Time)}
	if err := b.open(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory() // what the dead host had
	before := rssBytes()
	peak := watchRSS()
	wall, cpu, err := b.drain(ctx)
	most := peak()
	if err != nil {
		return err
	}
	left, _, err := b.db.Mutations(ctx, keep.MutationFilter{State: keep.InFlight}, keep.Page{Limit: 1})
	if err != nil {
		return err
	}
	if asked := tool.asked.Load(); len(left) > 0 || asked != int64(workflows) {
		return fmt.Errorf("recovery: %d lookups for %d calls, %d of them still in flight", asked, workflows, len(left))
	}
	fmt.Fprintf(out, "recovery, %d workflows with a call in flight each: all certain and done in %s (%.0f runs/s, %s CPU/run)\n",
		workflows, wall.Round(time.Millisecond), float64(workflows)/wall.Seconds(), (cpu / time.Duration(workflows)).Round(time.Microsecond))
	fmt.Fprintf(out, "  lookups at once: at most %d; RSS %d MiB before, %d MiB at most, %.0f KiB/workflow\n\n",
		tool.most.Load(), before>>20, most>>20, float64(most-before)/1024/float64(workflows))
	return b.close()
}

// leaveInFlight makes a database in which every workflow has a run whose call is
// out, as a killed host leaves it.
func leaveInFlight(ctx context.Context, dir string, workflows int) error {
	tool := &parking{out: make(chan struct{}, workflows)}
	b := &bench{dir: dir, tool: tool, last: make(map[keep.WorkflowName]time.Time)}
	impatient := policy.Default()
	impatient.Shutdown = time.Millisecond // the calls never end
	b.policy = &impatient
	var store *dying
	b.wrap = func(c *counter) hostStore { store = &dying{counter: c}; return store }
	if err := b.open(ctx); err != nil {
		return err
	}
	if err := b.deployMany(ctx, workflows); err != nil {
		return err
	}
	runCtx, kill := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.host.Run(runCtx) })
	for range workflows {
		select {
		case <-tool.out:
		case <-ctx.Done():
			kill()
			wg.Wait()
			return context.Cause(ctx)
		}
	}
	store.dead.Store(true)
	kill()
	wg.Wait()
	return b.close()
}

// deployMany deploys that many consumers with an event each, many at a time, so
// that they share the commits of the disk.
func (b *bench) deployMany(ctx context.Context, workflows int) error {
	next := make(chan int)
	errs := make([]error, 128)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := range next {
				errs[i] = errors.Join(errs[i], b.deployOne(ctx, fmt.Sprintf("w%05d", n)))
			}
		})
	}
	for n := range workflows {
		next <- n
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// deployOne deploys a consumer and publishes an event for it.
func (b *bench) deployOne(ctx context.Context, name string) error {
	bundle, err := sandbox.BuildSource(name+".js", []byte(fmt.Sprintf(consumer, name)))
	if err != nil {
		return err
	}
	w, err := b.host.LoadBundle(ctx, bundle)
	if err != nil {
		return err
	}
	if _, err := b.host.Deploy(ctx, w); err != nil {
		return err
	}
	return b.db.Commit(ctx, seedCommit(w.Name, "in", json.RawMessage(`{"text":"x"}`), 0, 1))
}
