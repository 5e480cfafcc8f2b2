//go:build unix

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/connectortest"
)

var (
	failoverFor  = flag.Duration("failover", 0, "how long TestFailover breaks hosts; zero: through each way once")
	failoverSeed = flag.Uint64("failover-seed", 1, "what TestFailover breaks when")

	// On a machine that is busy with other things, processes are late by seconds.
	failoverStrict = flag.Bool("failover-strict", false, "fail if a take-over takes longer than a lease and two seconds")
)

const (
	failoverTTL       = 2 * time.Second
	failoverWorkflows = 6
	failoverPatience  = time.Minute
)

// failoverConfig is that of every host. The tools may wait for longer than a lease.
const failoverConfig = `
db = "${env:FAILOVER_DB}"
[policy]
retry     = { first = "50ms", max = "200ms", attempts = 50 }
reconcile = { inline = "1s", first = "50ms", max = "200ms", attempts = 500 }
lease     = { ttl = "2s" }
shutdown  = "2s"

[connections.crm]
connector = "http"
base_url  = "${env:CRM_URL}"
[connections.crm.tools.feed]
effect = "list"
path   = "/feed"
[connections.crm.tools.witnessed]    # level C
effect   = "mutate"
path     = "/contacts"
identity = ["id"]
timeout  = "5s"
settle_after = "0s"
idempotency_header = "Idempotency-Key"
[connections.crm.tools.witnessed.reconcile]
path = "/by-token/{token}"
absent_if = { path = "$.error", equals = "no such token" }
[connections.crm.tools.keyed]        # level A
effect   = "mutate"
path     = "/keyed"
identity = ["id"]
timeout  = "5s"
settle_after = "0s"
idempotency_header = "Idempotency-Key"
deduplicates = true
`

// failoverScript makes each contact of the feed once, for itself.
const failoverScript = `
export default Keep.workflow({
  name: "NAME",
  topics: { found: {}, made: {} },
  producers: {
    feed: {
      schedule: { interval: "1s" },
      async handler(ctx) {
        for (const c of await ctx.crm.feed({}))
          await ctx.publish("found", { messageId: "NAME-" + c.id, payload: { id: "NAME-" + c.id, n: Number(c.id.slice(1)) } });
      },
    },
  },
  consumers: {
    create: Keep.consumer({
      subscribe: ["found"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "found", ids: [event.messageId] }], data: event.payload };
      },
      async mutate(ctx, prepared) {
        const call = { id: prepared.data.id, name: "x" };
        if (prepared.data.n % 2) await ctx.crm.witnessed(call);
        else await ctx.crm.keyed(call);
      },
      async next(ctx, prepared, result) {
        await ctx.publish("made", { messageId: prepared.data.id, status: result.status });
      },
    }),
  },
});
`

// A failover is a database, a service, and hosts on it that are broken one way
// after another.
type failover struct {
	*testing.T
	dir   string
	pg    *pgtest.Server
	db    *postgres.DB // to look at, not by way of any host's proxy
	crm   *service
	front *httptest.Server // where all hosts find the service
	serve atomic.Pointer[http.Handler]
	hosts []*failHost
	all   sync.Map // *failHost by what its requests say of it

	workflows int

	rng *rand.Rand
}

// A failHost is one place where a host runs: its way to the database, its way to
// the service, its clock, and the process that is there now.
type failHost struct {
	f     *failover
	n     int
	bin   string // empty: this version, with a clock of its own
	clock time.Duration
	wire  *connectortest.Proxy
	at    *island // nil: in the network of the test

	mu      sync.Mutex // protects the fields below
	process *os.Process
	pid     int           // of the newest process, which may be over
	freeze  chan struct{} // not nil: the next call that arrives freezes the process
	exited  chan error
	out     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestFailover runs three real hosts, two of them with clocks that are wrong by an
// hour, on a real Postgres, and kills, freezes and cuts them off while they work;
// and kills Postgres. Laws: once, one-at-a-time, nothing-lost; and no workflow is
// without a host for longer than a lease and two seconds.
func TestFailover(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	for _, h := range f.hosts {
		h.start()
	}
	stop := f.feed()
	f.settled("at first")
	ways := []func(*failHost){(*failHost).kill, (*failHost).freezeInACall, (*failHost).cutOff, (*failHost).fallSilent, (*failHost).terminate, (*failHost).loseDatabase, (*failHost).failOver}
	deadline := time.Now().Add(*failoverFor)
	for i := 0; i < len(ways) || time.Now().Before(deadline); i++ {
		way, h := ways[i%len(ways)], f.hosts[i%len(f.hosts)]
		if i >= len(ways) {
			way, h = ways[f.rng.IntN(len(ways))], f.hosts[f.rng.IntN(len(f.hosts))]
		}
		f.until("a share for the host to lose", time.Minute, func() string {
			if h.holds() == 0 {
				return "it has no workflow"
			}
			return ""
		})
		way(h)
	}
	stop()
	f.finish()
}

func newFailover(t *testing.T) *failover { return newFailoverWith(t, "") }

// newFailoverWith is newFailover with another version of the command, if bin is not
// empty.
func newFailoverWith(t *testing.T, bin string) *failover {
	return newFailoverOn(t, pgtest.StartDurable(t), bin)
}

// between puts a handler before the one that answers all hosts.
func (f *failover) between(with func(next http.Handler) http.HandlerFunc) {
	var next http.Handler
	if before := f.serve.Load(); before != nil {
		next = *before
	}
	handler := http.Handler(with(next))
	f.serve.Store(&handler)
}

// arrive answers a request as the service does, and notes that a host made a call.
func (f *failover) arrive(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if h, ok := f.all.Load(sentBy(r)); ok {
			h.(*failHost).arrived()
		}
	}
	f.crm.Config.Handler.ServeHTTP(w, r)
}

func newFailoverOn(t *testing.T, pg *pgtest.Server, bin string) *failover {
	f := &failover{T: t, dir: t.TempDir(), pg: pg, crm: startService(), workflows: failoverWorkflows, rng: rand.New(rand.NewPCG(*failoverSeed, 1))}
	t.Cleanup(f.crm.Close)
	f.crm.fill(3)
	f.between(func(http.Handler) http.HandlerFunc { return f.arrive })
	f.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.serve.Load()).ServeHTTP(w, r) }))
	t.Cleanup(f.front.Close)
	f.write("keep.toml", failoverConfig)
	for i := range failoverWorkflows {
		name := fmt.Sprintf("w%d", i)
		f.write(name+".js", strings.ReplaceAll(failoverScript, "NAME", name))
	}
	for n, clock := range []time.Duration{0, time.Hour, -time.Hour} {
		h := f.newHost(n, clock)
		h.bin = bin
		f.hosts = append(f.hosts, h)
	}
	cmd := f.hosts[0].command("deploy", ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("deploy: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if f.db != nil {
			f.db.Close()
		}
	})
	if bin == "" { // else the database may be too old for this version to look at
		f.look()
	}
	return f
}

// look opens the database to look at it.
func (f *failover) look() {
	f.db = postgres.New(f.pg.URL("postgres"), postgres.Config{ReadOnly: true})
	if err := f.db.Open(f.Context()); err != nil {
		f.Fatal(err)
	}
}

func (f *failover) write(name, text string) {
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *failover) newHost(n int, clock time.Duration) *failHost {
	h := &failHost{f: f, n: n, clock: clock}
	var err error
	if h.wire, err = connectortest.NewProxy(f.pg.Addr); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.wire.Close)
	f.all.Store(h.mark(), h)
	f.Cleanup(func() {
		if f.Failed() && h.out != nil {
			h.signal(syscall.SIGQUIT)
			h.wait()
			f.Logf("host %d said:\n%s", h.n, h.out)
		}
		h.signal(syscall.SIGKILL)
		h.wait()
	})
	return h
}

// mark is what the requests of this host say.
func (h *failHost) mark() string { return fmt.Sprintf("host-number-%d", h.n) }

// way returns the proxy by which a host goes to the service at an address, which is that service itself: so its
// requests say which host they are of, and are the same otherwise.
func (h *failHost) way(service string) string {
	return strings.Replace(service, "://", "://"+h.mark()+":@", 1)
}

// sentBy returns the mark of the host that sent a request.
func sentBy(r *http.Request) string {
	mark, _, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	return mark
}

// program returns what this host runs. Where the clock is right that is the command as it is installed; the race detector,
// under which a host takes five times as much of the processors, watches those whose clock is wrong.
func (h *failHost) program() string {
	switch {
	case h.bin != "":
		return h.bin
	case h.clock == 0:
		return buildKeep(h.f.T)
	}
	return "keep-skewed"
}

// command returns the command as this host runs it.
func (h *failHost) command(args ...string) *exec.Cmd {
	u, err := url.Parse(h.f.pg.URL("postgres"))
	if err != nil {
		h.f.Fatal(err)
	}
	service := h.f.front.URL
	cmd := exec.Command(h.program(), args...)
	if u.Host = h.wire.Addr(); h.at != nil {
		u.Host, service = h.at.database(), h.at.service()
		cmd = h.at.command(h.program(), args...)
	}
	cmd.Dir = h.f.dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(h.f), "XDG_RUNTIME_DIR="+h.f.dir, "CRM_URL=http://crm.example", "HTTP_PROXY="+h.way(service), "FAILOVER_DB="+u.String(), "CLOCK_OFF="+h.clock.String())
	return cmd
}

// start starts a process, and waits until it serves.
func (h *failHost) start() {
	h.f.Helper()
	cmd := h.command("serve")
	out := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		h.f.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	h.mu.Lock()
	h.process, h.pid, h.exited, h.out = cmd.Process, cmd.Process.Pid, exited, out
	h.mu.Unlock()
	h.f.until(fmt.Sprintf("host %d serves", h.n), time.Minute, func() string {
		if strings.Contains(out.String(), "Serving") {
			return ""
		}
		return "it says: " + out.String()
	})
}

func (h *failHost) signal(s os.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		_ = h.process.Signal(s) // it may have ended
	}
}

// wait waits for the process to end.
func (h *failHost) wait() {
	h.mu.Lock()
	exited := h.exited
	h.exited, h.process = nil, nil
	h.mu.Unlock()
	if exited != nil {
		<-exited
	}
}

// arrived is called when a call of this host is at the service and not made yet.
func (h *failHost) arrived() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.freeze != nil {
		_ = h.process.Signal(syscall.SIGSTOP)
		close(h.freeze)
		h.freeze = nil
	}
}

// until waits for a fact; why says what is missing, and is empty once nothing is.
func (f *failover) until(what string, limit time.Duration, why func() string) time.Duration {
	f.Helper()
	began := time.Now()
	for {
		missing := why()
		if missing == "" {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			f.Fatalf("%s: not within %s: %s", what, limit, missing)
		}
		time.Sleep(20 * time.Millisecond) // asks the world outside, which tells nobody
	}
}

// unheld says which workflows no host has that is there, by the database's clock;
// not is not asked for.
func (f *failover) unheld(not *failHost) string {
	ctx, cancel := context.WithTimeout(f.Context(), 5*time.Second)
	defer cancel()
	p, err := f.db.Poll(ctx, "nobody")
	if err != nil {
		return err.Error()
	}
	hosts, err := f.db.Hosts(ctx)
	if err != nil {
		return err.Error()
	}
	leases, err := f.db.Leases(ctx, "")
	if err != nil {
		return err.Error()
	}
	there := make(map[keep.HostID]bool)
	for _, h := range hosts {
		there[h.ID] = h.Until.After(p.Now) && !(not != nil && not.is(h))
	}
	var missing []string
	for _, l := range leases {
		if !there[l.Host] {
			missing = append(missing, string(l.Workflow))
		}
	}
	if len(leases) != f.workflows {
		return fmt.Sprintf("%d leases", len(leases))
	}
	return strings.Join(missing, " ")
}

// is reports whether h runs, or ran last, as that host.
func (h *failHost) is(k keep.Host) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.HasSuffix(k.Name, fmt.Sprint(":", h.pid))
}

// holds returns how many workflows the host has.
func (h *failHost) holds() int {
	hosts, err := h.f.db.Hosts(h.f.Context())
	if err != nil {
		h.f.Fatal(err)
	}
	for _, k := range hosts {
		if h.is(k) {
			return k.Held
		}
	}
	return 0
}

// takenOver waits until every workflow has a host that is not h.
func (f *failover) takenOver(what string, h *failHost) {
	f.Helper()
	limit := failoverTTL + 2*time.Second
	took := f.until(what, 10*limit, func() string { return f.unheld(h) })
	f.Logf("%s: every workflow has a host after %s", what, took.Round(time.Millisecond))
	if took > limit && *failoverStrict {
		f.Errorf("%s: that took %s, want %s at most", what, took, limit)
	}
}

func (f *failover) settled(what string) {
	f.Helper()
	f.until(what, time.Minute, func() string { return f.unheld(nil) })
}

// feed lets contacts come until stop is called.
func (f *failover) feed() (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(400 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				f.crm.more(1)
			}
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}

// kill kills the host and starts another.
func (h *failHost) kill() {
	h.signal(syscall.SIGKILL)
	h.wait()
	h.f.takenOver("killed", h)
	h.start()
}

// freezeInACall stops the process while a call of it is under way, for longer than
// its lease, and lets it continue.
func (h *failHost) freezeInACall() {
	frozen := make(chan struct{})
	h.mu.Lock()
	h.freeze = frozen
	h.mu.Unlock()
	h.f.until("a call to freeze in", time.Minute, func() string {
		select {
		case <-frozen:
			return ""
		default:
			return "no call of this host"
		}
	})
	h.f.takenOver("frozen in a call", h)
	h.signal(syscall.SIGCONT)
	h.f.settled("after it continued")
}

// cutOff takes the way to the database, which says so.
func (h *failHost) cutOff() {
	h.wire.Down()
	h.f.takenOver("cut off", h)
	if err := h.wire.Up(); err != nil {
		h.f.Fatal(err)
	}
	h.f.settled("after it was cut off")
}

// fallSilent takes the way to the database, and nothing says so.
func (h *failHost) fallSilent() {
	h.wire.Down()
	h.wire.Always(connectortest.Cut{Request: 0, Response: 0, Stall: true})
	if err := h.wire.Up(); err != nil {
		h.f.Fatal(err)
	}
	h.f.takenOver("in silence", h)
	h.wire.Down()
	h.wire.Always(connectortest.Pass)
	if err := h.wire.Up(); err != nil {
		h.f.Fatal(err)
	}
	h.f.settled("after the silence")
}

// terminate stops the process in peace, and starts another.
func (h *failHost) terminate() {
	h.signal(syscall.SIGTERM)
	h.wait()
	h.f.takenOver("stopped", h)
	h.start()
}

// loseDatabase kills the server of all.
func (h *failHost) loseDatabase() {
	h.f.pg.Kill()
	ctx, cancel := context.WithTimeout(h.f.Context(), time.Minute)
	defer cancel()
	if err := h.f.pg.Restart(ctx); err != nil {
		h.f.Fatal(err)
	}
	h.f.settled("after the database was killed")
}

// failOver kills the server of all, and promotes the synchronous standby that
// followed it: what was committed is there.
func (h *failHost) failOver() {
	f := h.f
	ctx, cancel := context.WithTimeout(f.Context(), 2*time.Minute)
	defer cancel()
	standby, err := f.pg.Standby(ctx)
	if standby != nil {
		f.Cleanup(standby.Stop)
	}
	if err != nil {
		f.Fatal(err)
	}
	time.Sleep(time.Second) // under load
	f.moveTo(ctx, standby)
	took := f.until("every workflow works on the standby", time.Minute, func() string { return f.unheld(nil) })
	f.Logf("failed over to the standby: every workflow has a host after %s", took.Round(time.Millisecond))
}

// moveTo kills the server of all, and puts a standby in its place.
func (f *failover) moveTo(ctx context.Context, standby *pgtest.Server) {
	f.pg.Kill()
	if err := standby.Promote(ctx); err != nil {
		f.Fatal(err)
	}
	f.pg = standby
	for _, h := range f.hosts {
		h.wire.Down()
		h.wire.Aim(standby.Addr)
		if err := h.wire.Up(); err != nil {
			f.Fatal(err)
		}
	}
	f.db.Close()
	f.look()
}

// finish waits until everything is done, ends the hosts in peace and compares
// what the service did with what there was to do.
func (f *failover) finish() {
	f.until("all is done", 3*time.Minute, f.undone)
	for _, h := range f.hosts {
		h.signal(syscall.SIGTERM)
		h.wait()
	}
	for err := range f.db.Check(f.Context()) {
		f.Errorf("Check: %v", err)
	}
	hosts, err := f.db.Hosts(f.Context())
	for _, h := range hosts {
		if h.Held > 0 { // a heartbeat that a network held back may come after its host has left
			f.Errorf("host %v holds workflows after all had stopped", h)
		}
	}
	if err != nil {
		f.Error(err)
	}
	f.crm.mu.Lock()
	defer f.crm.mu.Unlock()
	for _, c := range f.crm.feed {
		for i := range failoverWorkflows {
			id := fmt.Sprintf("w%d-%s", i, c.ID)
			if n := f.crm.created[id]; n != 1 {
				f.Errorf("%s was created %d times, want once", id, n)
			}
		}
	}
	f.Logf("%d contacts, each made by %d workflows, once", len(f.crm.feed), failoverWorkflows)
}

// undone says what is left to do, and what a person would be asked.
func (f *failover) undone() string {
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	f.crm.mu.Lock()
	want := len(f.crm.feed)
	f.crm.mu.Unlock()
	qs, _, err := f.db.Escalations(ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: 10})
	if err != nil {
		return err.Error()
	}
	for _, q := range qs {
		f.Errorf("a person is asked: %s (%s)", q.Question, q.Why)
	}
	for i := range failoverWorkflows {
		counts, err := f.db.TopicCounts(ctx, keep.WorkflowName(fmt.Sprint("w", i)))
		if err != nil {
			return err.Error()
		}
		for _, c := range counts {
			if c.Topic == "found" && c.Consumed != want {
				return fmt.Sprintf("w%d has done %d of %d", i, c.Consumed, want)
			}
		}
	}
	return ""
}
