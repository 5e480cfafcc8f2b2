//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/pin"
	"github.com/keep-run/keep/law/repeat"
)

// A record is what the world knows of a record of the ledger of which something was sent.
type record struct {
	n        int
	ref      string
	owner    *meant      // whose request was sent last
	lanes    []keep.Lane // by which it is known: that of its run, and later ones that were given to it
	out      int         // requests at the server
	effects  int
	at       time.Time         // of the last effect
	made     time.Time         // when it was recorded first
	excused  bool              // a later one may have an effect, too; see beside
	by       *process          // that recorded its last attempt
	attempts []time.Time       // when they were recorded, whatever the clock said
	asking   []context.Context // of requests by which it is sent again, and whose answers are waited for
}

func (r *record) String() string { return fmt.Sprintf("record %d of %s", r.n, r.owner) }

var markOf = regexp.MustCompile(`<!-- keep:(\S+) -->`)

// mutationOf returns the record of a request that arrived at the server. A request without a token is that of the last one of its
// content that is in flight, of those of its names if there are any. mu is held.
func (w *world) mutationOf(p *process, d done, m *meant) (found keep.Mutation) {
	ctx := context.Background()
	if d.tool == toSet {
		return w.setting(d)
	}
	token := d.key
	if mark := markOf.FindStringSubmatch(d.body); mark != nil {
		token = mark[1]
	}
	if token != "" {
		list, _, err := w.store.Mutations(ctx, keep.MutationFilter{}, keep.Page{Limit: keep.MaxPage})
		if err != nil || len(list) == keep.MaxPage {
			w.t.Fatalf("%d records, %v", len(list), err)
		}
		i := slices.IndexFunc(list, func(m keep.Mutation) bool { return m.Token == token })
		if i >= 0 {
			found = list[i]
		}
		return found
	}
	open, err := w.store.OpenRuns(ctx, keep.DirectWorkflow)
	if err != nil || m == nil {
		return found
	}
	var newest time.Time
	named := false
	for _, run := range open {
		one, err := w.store.Mutation(ctx, run.Mutation)
		if run.Mutation == "" || err != nil || one.State != keep.InFlight || !strings.HasSuffix(string(one.Tool), "."+m.tool) || one.PayloadHash != m.content() || agentOf(run) != m.agent {
			continue
		}
		is := slices.Contains(p.file.lanes(m), run.Lane)
		if is && !named || is == named && !run.UpdatedAt.Before(newest) {
			found, newest, named = one, run.UpdatedAt, is
		}
	}
	return found
}

// content returns the hash of what a call says.
func (m *meant) content() string {
	text, _ := json.Marshal(map[string]string{"body": m.body, "title": m.title})
	return ledger.Hash(text)
}

func agentOf(run keep.Run) string {
	var p struct{ Data struct{ Agent string } }
	_ = json.Unmarshal(run.Prepared, &p)
	return p.Data.Agent
}

// arrives notes a request that arrived at the server, and returns its record; nil: there is none, which breaks a law. mu is held.
func (w *world) arrives(p *process, d done, call string) *record {
	var m *meant
	for _, one := range w.calls {
		if fmt.Sprint(one.n) == call {
			m = one
		}
	}
	mut := w.mutationOf(p, d, m)
	if mut.Key == "" {
		w.broken("recorded-before-sent", "gateway %d sends %s for call %q, which is not on record", p.n, d.title, call)
		return nil
	}
	rec := w.records[string(mut.Key)]
	if m == nil {
		w.saw("server: asked by the same call again")
		return rec
	}
	if !rec.owner.equals(m) {
		w.broken("once", "%s is sent for %s", rec, m)
	}
	rec.owner = m
	return rec
}

// agreed looks whether a gateway that lists the tool of the server as it is now calls it although nobody agreed to that. mu is held.
func (w *world) agreed(p *process) {
	rows, err := w.store.KVs(context.Background(), keep.DirectWorkflow, pin.Pins(pin.Agreed, p.file.name))
	if err != nil {
		w.t.Fatal(err)
	}
	is := pin.Of(json.RawMessage(toolOf(w.variant)), time.Time{}).Hash
	for _, row := range rows {
		var was pin.Pin
		if json.Unmarshal(row.Value, &was) == nil && row.Key == "create" && was.Hash != is && p.began.After(w.changed) {
			w.broken("no-ambient-power", "gateway %d calls the tool as variant %d, to which nobody agreed", p.n, w.variant)
		}
	}
}

// recorded notes a record that a gateway made. Its owner is the last call that it can be, until a request says which it is. mu is held.
func (w *world) recorded(p *process, mut keep.Mutation, paused bool) {
	run, err := w.store.Run(context.Background(), mut.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	rec := w.records[string(mut.Key)]
	if rec == nil {
		rec = &record{n: len(w.records) + 1, ref: string(mut.Key), lanes: []keep.Lane{run.Lane}, made: time.Now()}
		w.records[rec.ref] = rec
	}
	if !slices.Contains(rec.lanes, run.Lane) {
		rec.lanes = append(rec.lanes, run.Lane)
	}
	for _, m := range w.calls {
		if m.agent == agentOf(run) && m.content() == mut.PayloadHash && m.tries > 0 && slices.Contains(p.file.lanes(m), run.Lane) {
			rec.owner = m
		}
	}
	if rec.owner == nil {
		w.broken("explained", "gateway %d records %s, which nobody meant", p.n, mut.Key)
		rec.owner = &meant{agent: agentOf(run)}
	}
	rec.by, rec.attempts = p, append(rec.attempts, time.Now())
	if p.file.denied == rec.owner.agent {
		w.broken("permitted", "gateway %d records %s of an agent that may not call it", p.n, rec)
	}
	if m := rec.owner; m.end == "failed" && m.ref == "" && m.by != p { // which could not know of the request that is here still
		w.saw("excused: recorded by another gateway that was asked before the one that said that nothing was sent")
		w.excuse(rec)
	}
	w.beside(p, rec, rec.owner)
	w.recordedOther(p, rec)
	w.recordedWithin(p, rec, paused)
}

// knows reports whether a gateway knows a record of a call by one of its names. mu is held.
func (p *process) knows(rec *record, m *meant) bool {
	return slices.ContainsFunc(p.file.lanes(m), func(l keep.Lane) bool { return slices.Contains(rec.lanes, l) })
}

// beside looks whether a call is to be sent beside an equal one that may have happened. mu is held.
func (w *world) beside(p *process, rec *record, m *meant) {
	for _, other := range w.records {
		if other == rec || !other.owner.equals(m) {
			continue
		}
		mut, err := w.store.Mutation(context.Background(), keep.MutationKey(other.ref))
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case !p.knows(other, m) && other.made.After(m.asked[p]): // two keep.toml at once; see docs/gaps.md
			w.saw("excused: recorded by another gateway that has another name for it, after this one looked")
			w.excuse(other)
		case lifecycle.Unknown(mut.State):
			w.broken("once", "gateway %d records %s while %s is %s", p.n, rec, other, mut.State)
		case other.owner != m || mut.State == keep.Failed || other.excused:
		case p.knows(other, m) && time.Since(mut.UpdatedAt) < worldRejoin:
			w.broken("once", "gateway %d records %s, of which %s is %s, and its answer was not delivered", p.n, rec, other, mut.State)
		default:
			w.excuse(other)
		}
	}
}

// excuse notes that the answer of a call is known by another name, or that it is too old. mu is held.
func (w *world) excuse(rec *record) {
	if !rec.excused {
		w.saw("excused: an answer under another name, or too old")
		rec.excused = true
		rec.owner.excused++
	}
}

// learns notes what a commit stored. mu is not held.
func (w *world) learns(p *process, c keep.Commit, paused bool) {
	for _, change := range c.Changes {
		if put, ok := change.(keep.PutMutation); ok && put.Mutation.State == keep.InFlight {
			w.mu.Lock()
			w.recorded(p, put.Mutation, paused)
			w.mu.Unlock()
		}
		kv, ok := change.(keep.SetKV)
		if !ok || kv.Key != "delivered" {
			continue
		}
		var d struct{ Run keep.RunID }
		if json.Unmarshal(kv.Value, &d) == nil {
			w.mu.Lock()
			w.stored[d.Run] = true
			w.mu.Unlock()
		}
	}
}

// told compares what an agent is told with the truth, and returns how its call ended; empty: it has no last answer. mu is held.
func (w *world) told(p *process, m *meant, r reply) (end, ref string) {
	ref, state, text := refOf(r), r.state(), r.text()
	if r.Error != nil {
		text, state = r.Error.Message, "error"
	}
	m.told = fmt.Sprintf("%s (%s)", state, text)
	w.note("%s is told %s: %.150s", m, state, text)
	rec := w.records[ref]
	switch {
	case ref == "" && state == "failed": // nothing was sent
		w.nothingSent(p, m)
		return "failed", ""
	case ref == "":
		w.saw("told: an error")
		return "", ""
	}
	w.saw("told: " + state)
	w.says(p, m, ref, state)
	switch state {
	case "applied":
		if w.treated[ref] && (rec == nil || rec.effects == 0) {
			return "treated as done", ref
		}
		if r.Result.IsError || rec == nil {
			break
		}
		if rec.owner == m {
			return "applied", ref
		}
		return w.givenAgain(p, m, rec, r), ref
	case "failed", "rejected", "skipped":
		if rec != nil && rec.owner != m && state == "skipped" {
			return w.givenAgain(p, m, rec, r), ref
		}
		return state, ref
	}
	return "", ref
}

// givenAgain notes that a call gets the answer of another one, which was equal. mu is held.
func (w *world) givenAgain(p *process, m *meant, rec *record, r reply) string {
	was := rec.owner
	if r.Result.Meta["keep/replayed"] != true && r.state() == "applied" {
		w.broken("explained", "%s gets the answer of %s, and is not told so", m, was)
	}
	if p.file.repeat == repeat.Replay {
		return "replayed"
	}
	run := keep.RunID(strings.Replace(rec.ref, "mut_", "run_", 1))
	// What was delivered is kept under the name by which a call was known then.
	if len(rec.lanes) == 1 && (was.shownTo == p || w.stored[run]) {
		w.broken("nothing-lost", "%s gets the answer of %s, which was delivered (stored %t)", m, was, w.stored[run])
	}
	w.saw("told: an answer again whose delivery was lost")
	return "given again"
}

// nothingSent looks whether a call of which an agent is told that nothing was sent may have been. mu is held.
func (w *world) nothingSent(p *process, m *meant) {
	for _, rec := range w.records {
		mut, err := w.store.Mutation(context.Background(), keep.MutationKey(rec.ref))
		if err != nil {
			w.t.Fatal(err)
		}
		if rec.owner != m || mut.State == keep.Failed || rec.excused {
			continue
		}
		if p.knows(rec, m) && time.Since(mut.UpdatedAt) < worldRejoin || lifecycle.Unknown(mut.State) {
			w.broken("nothing-lost", "%s is told that nothing was sent, and %s is %s", m, rec, mut.State)
		} else {
			w.excuse(rec)
		}
	}
}

// says compares what is said of a reference with the truth. mu is held.
func (w *world) says(p *process, m *meant, ref, state string) {
	rec := w.records[ref]
	n := 0
	if rec != nil {
		n = rec.effects
		if !rec.owner.equals(m) {
			w.broken("permitted", "%s gets what is known of %s", m, rec)
			return
		}
		if !p.knows(rec, m) {
			rec.lanes = append(rec.lanes, p.file.lanes(m)[0]) // it is known by that from now on
		}
	}
	switch {
	case w.treated[ref] && n == 0:
	case state == "applied" && n != 1 && (n == 0 || rec.owner.tool != toSet) || (state == "failed" || state == "rejected") && n != 0:
		w.broken("truth", "%s is told that %s is %s, and there are %d effects", m, ref, state, n)
	case state == "failed" && rec != nil && rec.out > 0:
		w.broken("truth", "%s is told that %s failed, and a request of it is at the server", m, rec)
	}
}

// decideAll has a person decide until the world ends.
func (w *world) decideAll(gone chan struct{}) {
	r := rand.New(rand.NewPCG(w.seed, 3))
	for {
		wait := span(r, 10*time.Second)
		if len(w.gatewaysNow()) == 0 {
			wait += 5 * time.Minute
		}
		select {
		case <-gone:
			return
		case <-time.After(wait):
		}
		list, _, err := w.store.Escalations(context.Background(), keep.EscalationFilter{Open: true}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			w.t.Error(err)
			return
		}
		slices.SortFunc(list, func(a, b keep.Escalation) int { return a.CreatedAt.Compare(b.CreatedAt) })
		if len(list) > 0 {
			w.decide(r, pick(r, list...))
		}
	}
}

// decide answers a question. What happened a person says truly, when it is over.
func (w *world) decide(r *rand.Rand, q keep.Escalation) {
	w.mu.Lock()
	refuses := chance(r, w.rough(0.2))
	action := keep.Approve
	if q.Kind == keep.AskAlreadyDone && w.tools != nil {
		action = w.tools.alreadyDone(w, q)
	}
	if q.Kind == keep.AskBudget {
		action = w.held.spent(w, q)
	}
	rec := w.records[string(q.Mutation)]
	switch {
	case q.Kind == keep.AskAlreadyDone && w.tools != nil, q.Kind == keep.AskBudget:
	case q.Kind == keep.AskUnknownOutcome && rec != nil && rec.out > 0:
		w.mu.Unlock()
		return
	case q.Kind == keep.AskUnknownOutcome && refuses && chance(r, 0.3):
		action = keep.Skip
	case q.Kind == keep.AskUnknownOutcome && refuses && q.Allows(keep.CheckAgain):
		action = keep.CheckAgain
	case q.Kind == keep.AskUnknownOutcome && rec != nil && rec.effects > 0:
		action = keep.Happened
	case q.Kind == keep.AskUnknownOutcome:
		action = keep.DidNotHappen
	case refuses && q.Allows(keep.Reject):
		action = keep.Reject
	case !q.Allows(keep.Approve):
		action = q.Choices[0].Action
	}
	w.note("person: %s to %s about %v", action, q.Kind, rec)
	w.saw(fmt.Sprintf("person: %s to %s", action, q.Kind))
	w.mu.Unlock()
	if err := w.op.Decide(context.Background(), q.ID, keep.Decision{Action: action, By: "pat"}); err != nil {
		w.notes("person: %v", err)
	}
}

// verify compares the end with the truth.
func (w *world) verify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for err := range w.store.Check(context.Background()) {
		w.broken("store", "%v", err)
	}
	for _, m := range w.calls {
		n := 0
		for _, rec := range w.records {
			if rec.owner == m && m.tool == toSet {
				n += min(rec.effects, 1)
			} else if rec.owner == m {
				n += rec.effects
			}
		}
		if n > 1+m.excused {
			w.broken("once", "%s has %d effects, of which %d are excused", m, n, m.excused)
		}
		if rec := w.records[m.ref]; m.ref != "" && (rec == nil || rec.owner == m) {
			w.says(w.last(), m, m.ref, m.end)
		}
		if m.ref == "" && m.end == "failed" && n > m.excused {
			w.broken("truth", "%s was told that nothing was sent, and there are %d effects", m, n)
		}
		if m.end == "" {
			w.broken("nothing-lost", "%s has no answer", m)
		}
	}
}

// last returns a process to compare with at the end.
func (w *world) last() *process { return &process{} }

// worldSights are what a hundred seeds have to contain.
func worldSights() []string {
	return []string{
		"gateway killed", "killed at " + string(engine.BeforeCall), "killed at " + string(engine.Recorded), "killed at " + string(engine.Answered), "killed at " + string(engine.AfterCommit),
		"commit is lost", "commit is made, and its answer lost", "commit is slow", "tool changed",
		"keep.toml edited: identity", "keep.toml edited: level", "keep.toml edited: name, with was", "keep.toml edited: name, without was",
		"keep.toml edited: key_lasts and timeout", "keep.toml edited: rule", "keep.toml edited: approve", "keep.toml edited: agents",
		"server: lost before", "server: lost after", "server: error before", "server: error after", "server: refused", "server: late", "server: knows the key",
		"server: asked by the same call again", "agent: goes away", "agent: cancels", "agent: loses the answer", "agent: loses the answer, and stays", "agent: cancels what was answered", "agent: an equal call",
		"agent: an intent beside a doubt", "told: applied", "told: failed", "told: indeterminate", "told: needs_reconcile", "told: waiting", "told: rejected",
		"agent: by sessions of HTTP", "agent: by HTTP without sessions", "agent: begins anew on its connection", "agent: continues a session by another connection",
		"agent: does not wait for the answer, and loses it", "agent: ends a session", "agent: hangs up when it is told something", "agent: has no session any more",
		"agent: loses an answer, and another message comes before the call again", "agent: loses an answer, and begins anew on its connection", "agent: reads a part",
		"agent: reads late", "agent: sends a batch", "agent: sends on another connection", "told: how far it is",
		"agent: means to set", "agent: means to claim", "server: a setting is sent again", "person: do-again to already_done", "person: treat-as-done to already_done", "end: treated as done",
		"clock: set back", "clock: jumps ahead",
		"person: pauses the calls of agents", "person: allow to budget", "person: skip to budget",
		"end: applied", "end: failed", "end: rejected", "end: replayed", "outcome: applied",
		"person: happened to unknown_outcome", "person: did-not-happen to unknown_outcome", "person: approve to approval", "person: reject to approval", "person: approve to tool_changed",
	}
}
