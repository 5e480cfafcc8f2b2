//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// Two hosts have a thousand workflows each; one is killed. The other one has all of
// them one lease and two seconds later, and works on them. Then it is idle, and
// what that costs does not depend on how many there are. Without -failover-strict
// they have fifty each, and nothing is asked of the speed of the machine.
func TestTakeOverOfAThousand(t *testing.T) {
	t.Parallel()
	f := newFailoverOn(t, pgtest.StartDurable(t, "autovacuum=off"), "") // its transactions would count
	f.workflows = 100
	if *failoverStrict {
		f.workflows = 2000 // each has a thousand
	}
	w := f.multiply()
	a, b := f.hosts[0], f.hosts[1]
	a.start()
	b.start()
	f.until("each has its share", 2*time.Minute, func() string {
		if x, y := a.holds(), b.holds(); x != f.workflows/2 || y != f.workflows/2 {
			return fmt.Sprintf("they have %d and %d", x, y)
		}
		return ""
	})
	a.signal(syscall.SIGKILL)
	a.wait()
	f.takenOver("killed", a)
	began := time.Now()
	f.publish(w)
	f.until("every workflow works", 2*time.Minute, func() string { return f.consumed(w) })
	t.Logf("every workflow consumed an event %s after that", time.Since(began).Round(time.Millisecond))
	f.idleCost()
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid)); err == nil {
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmRSS") {
				t.Logf("the host of %d workflows: %s", f.workflows, strings.TrimSpace(line))
			}
		}
	}
	b.signal(syscall.SIGTERM)
	b.wait()
	for err := range f.db.Check(t.Context()) {
		t.Errorf("Check: %v", err)
	}
}

// multiply deploys the workflow w0 under many names, with a consumer that makes
// no call, and returns the names.
func (f *failover) multiply() []keep.WorkflowName {
	f.write("w0.js", `
export default Keep.workflow({
  name: "w0",
  topics: { found: {} },
  consumers: {
    take: Keep.consumer({
      subscribe: ["found"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "found", ids: [event.messageId] }], data: {} };
      },
    }),
  },
});
`)
	if out, err := f.hosts[0].command("deploy", "w0.js").CombinedOutput(); err != nil {
		f.Fatalf("deploy: %v\n%s", err, out)
	}
	ws, err := f.db.Workflows(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	d, err := f.db.Deployment(f.Context(), "w0", ws[0].Version)
	if err != nil {
		f.Fatal(err)
	}
	db := f.open()
	var names []keep.WorkflowName
	for i := range f.workflows {
		name := keep.WorkflowName(fmt.Sprintf("w%d", i))
		names = append(names, name)
		d.Workflow, d.Definition.Name, d.Version.Major = name, name, 9
		d.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
		changes := []keep.Change{keep.Deploy{Deployment: d}, keep.PutHandler{State: keep.HandlerState{Workflow: name, Handler: "take", Kind: keep.Consumer}}}
		if err := db.Commit(f.Context(), keep.Commit{Workflow: name, At: d.CreatedAt, Changes: changes}); err != nil {
			f.Fatal(err)
		}
	}
	return names
}

// open opens the database to write.
func (f *failover) open() *postgres.DB {
	db := postgres.New(f.pg.URL("postgres"), postgres.Config{})
	if err := db.Open(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	return db
}

// publish gives each workflow an event, as a person beside the host would.
func (f *failover) publish(names []keep.WorkflowName) {
	db := f.open()
	for _, name := range names {
		now := time.Now().UTC().Truncate(time.Millisecond)
		in := keep.Input{ID: keep.InputID("in_" + name), Workflow: name, Source: "test", Type: "t", ExternalID: "e", Title: "e", Status: keep.InputPending, CreatedAt: now}
		ev := keep.Event{Workflow: name, Topic: "found", MessageID: "e", Payload: []byte("{}"), Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}
		if err := db.Commit(f.Context(), keep.Commit{Workflow: name, At: now, Changes: []keep.Change{keep.PutInput{Input: in}, keep.Publish{Event: ev}}}); err != nil {
			f.Fatal(err)
		}
	}
}

// consumed says which workflows have not consumed their event.
func (f *failover) consumed(names []keep.WorkflowName) string {
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	counts, err := f.db.TopicCounts(ctx, "")
	if err != nil {
		return err.Error()
	}
	left := 0
	for _, c := range counts {
		if c.Topic == "found" && c.Consumed == 0 {
			left++
		}
	}
	if left == 0 && len(counts) >= len(names) {
		return ""
	}
	return fmt.Sprintf("%d have not", left)
}

// idleCost counts the transactions of the server in five seconds, in which one host
// has nothing to do: one poll a second, its heartbeats, and each five seconds two looks for runs
// that wait for a person, whatever it has. A server that rests counts late what was asked
// before, and a host that a busy machine stopped reads everything again: it may take some tries.
func (f *failover) idleCost() {
	f.Helper()
	for try := 1; ; try++ {
		before, began := f.transactions(), time.Now()
		time.Sleep(5 * time.Second)
		n, passed := f.transactions()-before, time.Since(began)
		f.Logf("%d transactions in %s, with a heartbeat each %s", n, passed.Round(time.Millisecond), failoverTTL/8)
		heartbeats := int(passed / (failoverTTL / 8))
		looks := 2 * int(passed/(5*time.Second))
		limit := int(passed/time.Second) + heartbeats + looks + 6 // and what the server does by itself
		if n <= limit {
			return
		}
		if try == 10 {
			f.Fatalf("%d transactions in %s, want %d at most", n, passed, limit)
		}
	}
}

// transactions returns how many the server has committed on the database, its own
// question included.
func (f *failover) transactions() int {
	f.Helper()
	n, err := f.pg.Transactions(f.Context(), "postgres")
	if err != nil {
		f.Fatal(err)
	}
	return n
}
