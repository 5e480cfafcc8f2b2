package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A cluster is one store with leases, one service, and hosts that come and go.
// The database's clock is three hours ahead of the machine's.
type cluster struct {
	*world
	shared *memory.Shared
	names  []keep.WorkflowName
}

const skew = 3 * time.Hour

// newCluster returns a cluster with n workflows like that of newWorld.
func newCluster(t testing.TB, n int) *cluster {
	w := newWorld(t)
	shared := memory.New().Share(func() time.Time { return time.Now().Add(skew) })
	w.store = shared
	c := &cluster{world: w, shared: shared}
	for i := range n {
		w.def.Name = keep.WorkflowName(fmt.Sprintf("w%02d", i))
		c.names = append(c.names, w.def.Name)
		w.deploy()
	}
	return c
}

// A node is one host of a cluster, and its wire to the database.
type node struct {
	database
	store.Leaser
	c    *cluster
	id   keep.HostID // learned from its heartbeats
	eng  *host
	stop func() // and waits
	done chan struct{}

	mu       sync.Mutex
	cut      bool                 // the database cannot be reached
	onCommit func(keep.Commit)    // before each commit; nil: nothing
	epochs   map[int64]int        // commits by epoch
	polls    int                  // heartbeats and polls
	answers  func() time.Duration // how long an answer takes; nil: no time
	hangs    bool                 // claims get no answer
	ends     error                // the database is for newer versions, or has lost something; see Engine.Run
}

var errCut = errors.New("no route to host")

// reach returns an error if the wire is cut.
func (n *node) reach() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return errCut
	}
	return n.ends
}

func (n *node) name() keep.HostID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}

func (n *node) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *node) Commit(ctx context.Context, c keep.Commit) error {
	if n.onCommit != nil {
		n.onCommit(c)
	}
	if err := n.reach(); err != nil {
		return err
	}
	n.mu.Lock()
	n.epochs[c.Epoch]++
	n.mu.Unlock()
	return n.database.Commit(ctx, c)
}

func (n *node) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	if err := n.reach(); err != nil {
		return nil, err
	}
	return n.database.OpenRuns(ctx, w)
}

func (n *node) wait() {
	n.mu.Lock()
	n.polls++
	d := n.answers
	n.mu.Unlock()
	if d != nil {
		time.Sleep(d())
	}
}

func (n *node) Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.LeaseStatus, error) {
	n.mu.Lock()
	n.id = h.ID
	n.mu.Unlock()
	if err := n.reach(); err != nil {
		return keep.LeaseStatus{}, err
	}
	defer n.wait()
	return n.Leaser.Heartbeat(ctx, h, ttl)
}

func (n *node) Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error) {
	if err := n.reach(); err != nil {
		return keep.LeaseStatus{}, err
	}
	defer n.wait()
	return n.Leaser.Poll(ctx, id)
}

func (n *node) Claim(ctx context.Context, id keep.HostID, k int, only []keep.WorkflowName) ([]keep.Lease, error) {
	n.mu.Lock()
	hangs := n.hangs
	n.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.Leaser.Claim(ctx, id, k, only)
}

func (n *node) Deregister(ctx context.Context, id keep.HostID) error {
	if err := n.reach(); err != nil {
		return err
	}
	return n.Leaser.Deregister(ctx, id)
}

// start starts a host whose clock is wrong by off.
func (c *cluster) start(off time.Duration) *node {
	c.t.Helper()
	n := c.node()
	n.run(off, nil)
	return n
}

func (c *cluster) node() *node {
	return &node{database: c.store, Leaser: c.shared, c: c, epochs: make(map[int64]int)}
}

// run starts the engine of the host.
func (n *node) run(off time.Duration, only []keep.WorkflowName) {
	c := n.c
	c.t.Helper()
	tools, err := engine.NewTools([]connector.Connection{c.service.connection()})
	if err != nil {
		c.t.Fatal(err)
	}
	e, err := engine.New(n, c.world, tools, engine.Config{
		Policy: &c.policy, Slow: time.Hour, Leases: n, Only: only, Host: keep.Host{Name: "test"},
		Clock:  func() time.Time { return time.Now().Add(off) },
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n.eng = c.hostOf(n, e)
	ctx, cancel := context.WithCancel(c.t.Context())
	n.done = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(n.done)
		err := n.eng.Run(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		if !errors.Is(err, n.ends) {
			c.t.Errorf("Run: %v", err)
		}
	})
	n.stop = func() {
		cancel()
		wg.Wait()
	}
}

// pass lets time go by, and everything happen that happens meanwhile.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// held returns the workflows that a host has and that hold.
func (c *cluster) held(n *node) []keep.WorkflowName {
	c.t.Helper()
	leases, err := c.shared.Leases(c.t.Context(), n.name())
	if err != nil {
		c.t.Fatal(err)
	}
	var names []keep.WorkflowName
	for _, l := range leases {
		names = append(names, l.Workflow)
	}
	return names
}

// give publishes one event to each workflow, and wakes nobody: the hosts hear.
func (c *cluster) give(id string) {
	c.t.Helper()
	for _, name := range c.names {
		c.def.Name = name
		c.publish("in", id+" "+string(name))
	}
}

// effects fails the test unless the service made n effects, each once.
func (c *cluster) effects(n int) {
	c.t.Helper()
	c.service.mu.Lock()
	defer c.service.mu.Unlock()
	for token, times := range c.service.effects {
		if times > 1 {
			c.t.Errorf("the effect of %s happened %d times", token, times)
		}
	}
	if len(c.service.effects) != n {
		c.t.Errorf("%d effects, want %d", len(c.service.effects), n)
	}
}

func TestHostsShareWorkflows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 7)
		a := c.start(time.Hour)
		pass(2 * time.Second)
		if got := len(c.held(a)); got != 7 {
			t.Fatalf("alone, a has %d workflows, want 7", got)
		}
		b := c.start(-time.Hour)
		pass(10 * time.Second)
		if x, y := len(c.held(a)), len(c.held(b)); x != 4 || y != 3 {
			t.Errorf("a and b have %d and %d workflows, want 4 and 3", x, y)
		}
		c.give("e1")
		pass(2 * time.Second)
		c.effects(7)
		x, y := len(c.held(a)), len(c.held(b))
		pass(10 * time.Minute)
		if len(c.held(a)) != x || len(c.held(b)) != y {
			t.Error("workflows go to and fro between idle hosts")
		}
		a.stop()
		pass(2 * time.Second)
		if got := len(c.held(b)); got != 7 {
			t.Errorf("two seconds after a had stopped, b has %d workflows, want 7", got)
		}
		c.give("e2")
		pass(2 * time.Second)
		c.effects(14)
		b.stop()
		hosts, err := c.shared.Hosts(t.Context())
		if err != nil || len(hosts) != 0 {
			t.Errorf("Hosts = %v, %v after all had stopped", hosts, err)
		}
		c.check()
	})
}

// A host whose version cannot work on the database any more ends by itself, at its
// next look, and what it was at is another's.
func TestOutdatedHostEnds(t *testing.T) {
	for _, err := range []error{keep.ErrNewerDatabase, keep.ErrReplaced} {
		t.Run(err.Error(), func(t *testing.T) { testHostEnds(t, err) })
	}
}

func testHostEnds(t *testing.T, ends error) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		a := c.start(0)
		pass(2 * time.Second)
		a.mu.Lock()
		a.ends = ends
		a.mu.Unlock()
		b := c.start(0)
		pass(time.Minute) // its row has expired
		select {
		case <-a.done:
		default:
			t.Error("the host continues")
		}
		a.stop()
		if got := len(c.held(b)); got != 4 {
			t.Errorf("the other host has %d workflows, want 4", got)
		}
		c.give("e1")
		pass(2 * time.Second)
		c.effects(4)
		b.stop()
		c.check()
	})
}

func TestIdleHostAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 50)
		a := c.start(0)
		pass(10 * time.Second)
		a.mu.Lock()
		before := a.polls
		a.mu.Unlock()
		pass(100 * time.Second)
		a.mu.Lock()
		got := a.polls - before
		a.mu.Unlock()
		if got > 100 { // a heartbeat is a look, too
			t.Errorf("%d polls in 100 s, want 100 at most", got)
		}
		a.stop()
	})
}

func TestDeadHostIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 6)
		a, b := c.start(time.Hour), c.start(-time.Hour)
		pass(10 * time.Second)
		lost := c.held(a)
		a.setCut(true) // forever; and nothing that it does arrives
		pass(c.policy.Lease.TTL + 2*time.Second)
		if got := c.held(b); len(got) != 6 {
			t.Errorf("one lease and 2 s after a was cut off with %v, b has %v", lost, got)
		}
		c.give("e")
		pass(time.Second)
		c.effects(6)
		a.stop()
		b.stop()
		c.check()
	})
}

// A host is cut off in the middle of calls, whose effects happen late. It gives
// them up before its leases end; the other one believes nothing before then.
func TestCallsEndBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.policy.Lease.TTL = 8 * time.Second // and the tool would wait for 10 s
		var mu sync.Mutex
		var gaveUp time.Time
		var calls atomic.Int32
		var a *node
		c.service.onCallContext = func(ctx context.Context) error {
			if calls.Add(1) > 1 {
				return nil
			}
			a.setCut(true) // its record is stored
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			gaveUp = time.Now()
			return ctx.Err()
		}
		var last time.Time
		a = c.node()
		a.onCommit = func(k keep.Commit) {
			mu.Lock()
			defer mu.Unlock()
			for _, change := range k.Changes {
				if m, ok := change.(keep.PutMutation); ok && m.Mutation.State == keep.InFlight {
					last = m.Mutation.CallDeadline
				}
			}
		}
		a.run(time.Hour, nil)
		pass(2 * time.Second)
		b := c.start(-time.Hour)
		pass(2 * time.Second)
		c.give("e")
		pass(7 * time.Second)
		hosts, err := c.shared.Hosts(t.Context())
		if err != nil || len(hosts) != 2 {
			t.Fatalf("Hosts = %v, %v", hosts, err)
		}
		until := hosts[0].Until
		pass(3 * time.Second)
		mu.Lock()
		took, last := gaveUp, last
		mu.Unlock()
		if end := until.Add(-c.policy.Lease.Margin()); last.IsZero() || last.After(end) {
			t.Errorf("the deadline of the call is %s, the lease ends at %s: want %s at most", last, until, end)
		}
		if took.IsZero() || took.Add(skew).After(last) {
			t.Errorf("the call was given up at %s, its deadline was %s", took.Add(skew), last)
		}
		pass(c.policy.Lease.TTL + 30*time.Second)
		c.effects(1)
		if m := c.mutation(); m.State != keep.Applied {
			t.Errorf("mutation = %s, want it applied", m.State)
		}
		a.stop()
		b.stop()
		c.check()
	})
}

// A call that is given up before its tool's timeout, because its lease ends or its record took long to be durable, may take
// effect all the same until the service has had that time: until then, and as long as effects take to show, its absence proves nothing.
func TestCutCallIsStillOut(t *testing.T) {
	for name, how := range map[string]struct{ ttl, commit time.Duration }{"lease": {8 * time.Second, 0}, "slow commit": {time.Minute, 2400 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutCall(t, how.ttl, how.commit) })
		})
	}
}

func cutCall(t *testing.T, ttl, commit time.Duration) {
	c := newCluster(t, 1)
	c.policy.Lease.TTL = ttl // the tool waits for 10 s
	a := c.node()
	var mu sync.Mutex
	var token string
	a.onCommit = func(k keep.Commit) {
		for _, change := range k.Changes {
			if m, ok := change.(keep.PutMutation); ok && m.Mutation.State == keep.InFlight {
				time.Sleep(commit)
				mu.Lock()
				token = m.Mutation.Token
				mu.Unlock()
			}
		}
	}
	var calls atomic.Int32
	c.service.onCallContext = func(ctx context.Context) error {
		if calls.Add(1) > 1 {
			return nil
		}
		time.AfterFunc(9900*time.Millisecond, func() { // within its timeout, which began when it was sent
			mu.Lock()
			defer mu.Unlock()
			c.service.mu.Lock()
			defer c.service.mu.Unlock()
			c.service.perform(keep.Mutation{Token: token})
		})
		<-ctx.Done()
		return ctx.Err()
	}
	a.run(0, nil)
	pass(2 * time.Second)
	c.give("e")
	pass(2 * time.Minute)
	c.effects(1)
	if m := c.mutation(); m.State != keep.Applied || calls.Load() != 1 {
		t.Errorf("mutation = %s after %d calls, want it applied after one", m.State, calls.Load())
	}
	a.stop()
	c.check()
}

// A host stops for a long time before a commit, and continues: what it then tries
// to write is refused, and it works on as if it were new.
func TestPausedHostIsFenced(t *testing.T) {
	for _, at := range []string{"record", "outcome"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1)
				a := c.node()
				commits := 0
				refused := make(chan struct{})
				a.onCommit = func(keep.Commit) {
					if commits++; (commits == 1) == (at == "record") && commits < 3 {
						a.setCut(true) // its heart stops as well
						time.Sleep(5 * time.Minute)
						a.setCut(false)
						close(refused)
					}
				}
				a.run(time.Hour, nil)
				pass(2 * time.Second)
				b := c.start(-time.Hour)
				pass(2 * time.Second)
				c.give("e")
				pass(4 * time.Minute)
				c.effects(1)
				if got := c.held(b); len(got) != 1 {
					t.Errorf("b has %v while a is away", got)
				}
				<-refused
				pass(time.Minute)
				c.effects(1)
				if m := c.mutation(); m.State != keep.Applied {
					t.Errorf("mutation = %s, want it applied", m.State)
				}
				c.give("f")
				pass(time.Minute)
				c.effects(2)
				a.stop()
				b.stop()
				if n := a.epochs[0] + b.epochs[0]; n > 0 {
					t.Errorf("%d commits do not say by which lease they are made", n)
				}
				c.check()
			})
		})
	}
}

func TestCutHostComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.start(0)
		pass(2 * time.Second)
		a.setCut(true)
		c.give("e") // by a person at another machine
		pass(10 * c.policy.Lease.TTL)
		c.effects(0)
		a.setCut(false)
		pass(3 * time.Second)
		c.effects(3)
		leases, err := c.shared.Leases(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			if l.Epoch != 1 {
				t.Errorf("lease %+v, want its first epoch: nobody else was there", l)
			}
		}
		a.stop()
	})
}

// A slow answer of the database must not let a host believe that it has more
// time than it has, nor write a deadline before which it may still be calling.
func TestSlowHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		n := c.node()
		delay := 900 * time.Millisecond
		n.answers = func() time.Duration { return delay }
		var gaveUp time.Time
		c.service.onCallContext = func(ctx context.Context) error {
			<-ctx.Done()
			gaveUp = time.Now()
			return ctx.Err()
		}
		c.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
		n.run(time.Hour, nil)
		pass(5 * time.Second)
		c.give("e")
		pass(15 * time.Second)
		m := c.mutation()
		if late := gaveUp.Add(skew).Sub(m.CallDeadline); late > 0 || gaveUp.IsZero() {
			t.Errorf("the call was given up %s after its deadline", late)
		}
		n.stop()
	})
}

func TestPersonsAreHeardByTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.service.level = keep.LevelNone
		c.service.onCall = func(int) (bool, error) { return false, errReset }
		a := c.start(time.Hour)
		pass(2 * time.Second)
		c.def.Name = "w00"
		c.publish("in", "e")
		pass(2 * time.Second)
		if qs := c.questions(); len(qs) != 1 {
			t.Fatalf("%d questions, want 1", len(qs))
		}
		c.service.mu.Lock()
		c.service.onCall = nil
		c.service.mu.Unlock()
		person := c.node()
		person.run(0, []keep.WorkflowName{}) // beside, and works on nothing
		pass(time.Second)
		if err := person.eng.Decide(t.Context(), c.questions()[0].ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		c.effects(1)
		person.stop()
		a.stop()
		c.check()
	})
}

func TestPartialHostTakesWhatItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		n := c.node()
		n.run(0, []keep.WorkflowName{"w01"})
		c.give("e")
		pass(2 * time.Second)
		if got := c.held(n); !slices.Equal(got, []keep.WorkflowName{"w01"}) {
			t.Errorf("it has %v, want w01", got)
		}
		if err := n.eng.WaitIdle(t.Context()); err != nil {
			t.Errorf("WaitIdle: %v", err)
		}
		c.effects(1)
		a := c.start(0)
		pass(2 * time.Second)
		if got := c.held(a); len(got) != 2 {
			t.Errorf("the other one has %v, want the other two", got)
		}
		n.stop()
		pass(5 * time.Second)
		c.effects(3)
		if got := c.held(a); len(got) != 3 {
			t.Errorf("alone, the other one has %v", got)
		}
		a.stop()
	})
}

func TestDrainedHostGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		a, b := c.start(0), c.start(0)
		pass(10 * time.Second)
		if err := c.shared.Drain(t.Context(), a.name(), true); err != nil {
			t.Fatal(err)
		}
		pass(4 * time.Second)
		if x, y := len(c.held(a)), len(c.held(b)); x != 0 || y != 4 {
			t.Errorf("a and b have %d and %d workflows, want 0 and 4", x, y)
		}
		if err := c.shared.Drain(t.Context(), a.name(), false); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if x, y := len(c.held(a)), len(c.held(b)); x != 2 || y != 2 {
			t.Errorf("a and b have %d and %d workflows, want 2 and 2", x, y)
		}
		a.stop()
		b.stop()
	})
}

// A host that is told to stop gives each workflow back as soon as nothing of it is executed, while it waits for a call of another
// one; it says that it drains, takes nothing, and keeps what the call is of until that has ended.
func TestStoppingHostGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		out, release := make(chan struct{}), make(chan struct{})
		first := sync.OnceFunc(func() {
			close(out)
			<-release
		})
		c.service.onCallContext = func(context.Context) error {
			select {
			case <-out:
			default:
				first()
			}
			return nil
		}
		a := c.start(0)
		pass(2 * time.Second)
		c.def.Name = "w02"
		c.publish("in", "slow")
		<-out
		b := c.start(0)
		pass(3 * time.Second)
		slow := func() (l keep.Lease) {
			leases, err := c.shared.Leases(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, l = range leases {
				if l.Workflow == "w02" {
					break
				}
			}
			return l
		}
		before := slow()
		stopped := make(chan struct{})
		go func() { a.stop(); close(stopped) }()
		pass(2 * time.Second)
		hosts, err := c.shared.Hosts(t.Context())
		if err != nil || len(hosts) != 2 || !hosts[0].Draining {
			t.Errorf("Hosts = %+v, %v, want two, the first draining", hosts, err)
		}
		if got := c.held(b); !slices.Equal(got, []keep.WorkflowName{"w00", "w01", "w03"}) {
			t.Errorf("while a call of w02 is out, the other host has %v, want all but that", got)
		}
		for _, name := range []keep.WorkflowName{"w00", "w01", "w03"} {
			c.def.Name = name
			c.publish("in", "e "+string(name))
		}
		pass(time.Second)
		c.effects(3)
		if now := slow(); now != before {
			t.Errorf("the lease of the workflow whose call is out is %+v, was %+v", now, before)
		}
		if err := c.shared.Drain(t.Context(), a.name(), false); err != nil { // a person meant what does not stop
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if got := c.held(a); !slices.Equal(got, []keep.WorkflowName{"w02"}) {
			t.Errorf("the host that stops took workflows: it has %v, want w02", got)
		}
		close(release)
		<-stopped
		pass(2 * time.Second)
		if got := c.held(b); len(got) != 4 {
			t.Errorf("after the call the other host has %v, want all four", got)
		}
		c.effects(4)
		b.stop()
		c.check()
	})
}

// An engine that stopped while the database was away has left a row that drains; when it runs again, it takes its workflows.
func TestRunsAgainAfterItDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		release := make(chan struct{})
		c.service.onCallContext = func(context.Context) error { <-release; return nil }
		a := c.start(0)
		pass(2 * time.Second)
		c.def.Name = "w01"
		c.publish("in", "slow")
		pass(time.Second)
		stopped := make(chan struct{})
		go func() { a.stop(); close(stopped) }()
		pass(2 * time.Second)
		a.setCut(true)
		close(release)
		<-stopped
		if hosts, err := c.shared.Hosts(t.Context()); err != nil || len(hosts) != 1 || !hosts[0].Draining {
			t.Fatalf("Hosts = %+v, %v, want one that drains", hosts, err)
		}
		a.setCut(false)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- a.eng.Run(ctx) }()
		pass(5 * time.Second)
		if got := c.held(a); len(got) != 2 {
			t.Errorf("it has %v, want both workflows", got)
		}
		c.give("e")
		pass(2 * time.Second)
		c.effects(3)
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		c.check()
	})
}

// After the database was away all leases have expired, and everybody comes back
// at once: nobody takes what another one still wants.
func TestDatabaseComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 6)
		a, b := c.start(0), c.start(0)
		pass(10 * time.Second)
		before, err := c.shared.Leases(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		a.setCut(true)
		b.setCut(true)
		pass(10 * time.Minute)
		a.setCut(false)
		pass(700 * time.Millisecond)
		b.setCut(false)
		pass(10 * time.Second)
		after, err := c.shared.Leases(t.Context(), "")
		if err != nil || !slices.Equal(before, after) {
			t.Errorf("leases are %v, %v; they were %v", after, err, before)
		}
		c.give("e")
		pass(2 * time.Second)
		c.effects(6)
		a.stop()
		b.stop()
		c.check()
	})
}

// A claim that gets no answer does not keep a host from renewing what it has.
func TestHangingClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		n := c.start(0)
		pass(2 * time.Second)
		n.mu.Lock()
		n.hangs = true
		n.mu.Unlock()
		c.def.Name = "fresh"
		c.deploy()
		for range 20 {
			pass(c.policy.Lease.TTL / 4)
			if p, err := c.shared.Poll(t.Context(), n.name()); err != nil || p.Until.Sub(p.Now) < c.policy.Lease.TTL/4 {
				t.Fatalf("the leases end %s after %s, %v", p.Until, p.Now, err)
			}
		}
		n.mu.Lock()
		n.hangs = false
		n.mu.Unlock()
		pass(c.policy.Lease.TTL/4 + 2*time.Second)
		if got := c.held(n); len(got) != 3 {
			t.Errorf("it has %v, want three workflows", got)
		}
		n.stop()
	})
}

// A host that cannot renew its leases stops in the middle of what it does, before
// they end.
func TestLateHostStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		var stopped time.Time
		c.script["consumers.act.prepare"] = func(k *call) any {
			<-k.ctx.Done() // a script that waits for its reads
			stopped = time.Now()
			panic(ended{context.Cause(k.ctx)})
		}
		c.give("e")
		n := c.start(0)
		pass(2 * time.Second)
		n.setCut(true)
		hosts, err := c.shared.Hosts(t.Context())
		if err != nil || len(hosts) != 1 {
			t.Fatalf("Hosts = %v, %v", hosts, err)
		}
		pass(time.Minute)
		if end := hosts[0].Until.Add(-skew); stopped.IsZero() || !stopped.Before(end) {
			t.Errorf("the run was stopped at %s, the leases ended at %s", stopped, end)
		}
		n.stop()
	})
}

// The record of a call says until when the call may be out. If it took longer than
// that to write it, the call is not made any more.
func TestLateCallIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		n := c.node()
		slow := 20 * time.Second // the tool has 10
		n.onCommit = func(k keep.Commit) {
			for _, change := range k.Changes {
				if m, ok := change.(keep.PutMutation); ok && m.Mutation.State == keep.InFlight {
					time.Sleep(slow)
					slow = 0
				}
			}
		}
		n.run(0, nil)
		c.give("e")
		pass(22 * time.Second)
		c.effects(0)
		if m := c.mutation(); m.State != keep.Failed || m.Error == nil || m.Error.Code != "not-sent" {
			t.Errorf("mutation = %s, %v, want it failed, not-sent", m.State, m.Error)
		}
		pass(time.Minute)
		c.effects(1)
		if c.service.calls != 1 {
			t.Errorf("%d calls, want 1", c.service.calls)
		}
		n.stop()
		c.check()
	})
}
