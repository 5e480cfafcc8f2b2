//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/store/sqlite"
)

// A faultyStore fails the commit that ends a run, once, when it is armed.
type faultyStore struct {
	*sqlite.DB
	armed atomic.Bool
	made  bool                   // the commit is made, and its answer lost
	holds atomic.Pointer[func()] // called before the next commit; nil: nothing is
	reads atomic.Pointer[func()] // called after the next read of a checkpoint, before its answer; nil: nothing is
	away  atomic.Bool            // checkpoints and runs cannot be read
}

var errAway = errors.New("failed to connect to `user=keep database=keep`: db.example:5432: connection refused")

// Runs implements store.Runs.
func (f *faultyStore) Runs(ctx context.Context, filter keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	if f.away.Load() {
		return nil, "", errAway
	}
	return f.DB.Runs(ctx, filter, p)
}

// KVs implements store.Checkpoints.
func (f *faultyStore) KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) ([]keep.SetKV, error) {
	rows, err := f.DB.KVs(ctx, w, producer)
	if f.away.Load() {
		return nil, errAway
	}
	if hold := f.reads.Swap(nil); hold != nil {
		(*hold)()
	}
	return rows, err
}

// Commit implements store.Committer.
func (f *faultyStore) Commit(ctx context.Context, c keep.Commit) error {
	if hold := f.holds.Swap(nil); hold != nil {
		(*hold)()
	}
	ends := false
	for _, change := range c.Changes {
		put, ok := change.(keep.PutRun)
		ends = ends || ok && put.Run.Status == keep.StatusCommitted
	}
	if !ends || !f.armed.CompareAndSwap(true, false) {
		return f.DB.Commit(ctx, c)
	}
	lost := errors.New("the connection was lost")
	if f.made {
		return errors.Join(f.DB.Commit(ctx, c), lost)
	}
	return lost
}

// openFaulty starts a desk over a store that fails.
func openFaulty(t *testing.T, s setup, made bool) (*desk, *faultyStore) {
	t.Helper()
	f := &faultyStore{made: made}
	d := openOver(t, s, func(db *sqlite.DB) gateway.Store { f.DB = db; return f }, nil)
	return d, f
}

// A call whose outcome could not be stored is in doubt when it is made again. The calls that are out meanwhile are not.
func TestFailedCommitBesideACall(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a"}
	sent, back := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	s.URL, _ = serveHostile(t, func(_ http.ResponseWriter, method string, _ json.RawMessage) bool {
		if method == "tools/call" && calls.Add(1) == 1 {
			close(sent)
			<-back
		}
		return false
	})
	d, store := openFaulty(t, s, false)
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":100,"method":"tools/call","params":%s}`, createParams("slow")))
	<-sent
	store.armed.Store(true)
	d.want("its outcome is not stored", d.make("a"), "", 0, "the ledger could not be written")
	d.want("made again", d.make("a"), "indeterminate", 0)
	close(back)
	if r, _ := d.read(100); r.state() != "applied" {
		t.Errorf("the call that was out all the time: %s", r.raw)
	}
	if list, _, err := d.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{}); err != nil || len(list) != 1 {
		t.Errorf("%d questions, want that about the first: %v", len(list), err)
	}
}

// An equal call that another process makes from beginning to end after a gateway looked for the last one, and before its own
// first commit, is not made twice, by whichever of its names the other one knows it.
func TestCallMadeMeanwhile(t *testing.T) {
	for _, server := range []string{"notes", "pad"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := setup{Dir: t.TempDir(), Agent: "a", Repeat: repeat.Rules{Repeat: repeat.Replay, Window: time.Hour, Rejoin: time.Hour}}
			s.URL, _ = serveHostile(t, func(_ http.ResponseWriter, method string, _ json.RawMessage) bool {
				if method == "tools/call" {
					calls.Add(1)
				}
				return false
			})
			shared := func(c *gateway.Config) { c.Alone = false }
			f := new(faultyStore)
			d := openOver(t, s, func(db *sqlite.DB) gateway.Store { f.DB = db; return f }, func(c *gateway.Config) {
				shared(c)
				if c.Servers[0].Name = server; server != "notes" {
					c.Was = map[string]connector.Names{server: {"notes"}}
				}
			})
			s.Dir = t.TempDir()
			other := openOver(t, s, func(*sqlite.DB) gateway.Store { return f.DB }, shared)
			meanwhile := func() {
				if r := other.make("x"); r.state() != "applied" {
					t.Errorf("the other gateway: %s", r.raw)
				}
			}
			f.holds.Store(&meanwhile)
			r := must(d.ask(7, "tools/call", strings.Replace(createParams("x"), "notes__", server+"__", 1)))
			if r.state() != "applied" || r.Result.Meta["keep/replayed"] != true || calls.Load() != 1 {
				t.Errorf("%d calls, want one, and its answer: %s", calls.Load(), r.raw)
			}
		})
	}
}

// While the database is away agents are not told who it is for and where it is. Law: no-ambient-power.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	d, store := openFaulty(t, s, false)
	store.away.Store(true)
	for what, ask := range map[string]func() reply{
		"a read before the tools are known": func() reply { return must(d.ask(1, "tools/call", `{"name":"notes__list","arguments":{}}`)) },
		"a call":                            func() reply { return d.make("x") },
		"an outcome": func() reply {
			return must(d.ask(2, "tools/call", `{"name":"keep_outcome","arguments":{"ref":"mut_1"}}`))
		},
		"the tools": func() reply { return must(d.ask(3, "tools/list", `{}`)) },
	} {
		r := ask()
		if strings.Contains(r.raw, "db.example") || strings.Contains(r.raw, "user=") {
			t.Errorf("%s: the agent is told %s", what, r.raw)
		}
		if what != "the tools" && !strings.Contains(strings.ToLower(r.raw), "the ledger c") {
			t.Errorf("%s: the agent is not told why: %s", what, r.raw)
		}
	}
	store.away.Store(false)
	d.want("once it is back", d.make("x"), "applied", 1)
}
