//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/repeat"
)

// More tools. In some worlds the server has one that sets a value, which agents share, and one whose calls are unique. Each call of them has an intent,
// since two contents for one identity are two calls only so (docs/gateway.md).

// Tools of the server.
const (
	toCreate = "create"
	toSet    = "set"
	toClaim  = "claim"
)

// A toolKind is what a world with more tools is like.
type toolKind struct {
	rng    *rand.Rand // of who edits
	people *rand.Rand
}

func newToolKind(seed uint64) *toolKind {
	if r := rand.New(rand.NewPCG(seed, 6)); chance(r, 0.6) {
		return nil
	}
	return &toolKind{rng: rand.New(rand.NewPCG(seed, 7)), people: rand.New(rand.NewPCG(seed, 8))}
}

// more are the other tools as the server lists them.
func (w *world) more() string {
	if w.tools == nil {
		return ""
	}
	properties := `"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}`
	return fmt.Sprintf(`,{"name":"set","inputSchema":{%s}}},{"name":"claim","inputSchema":{%s,"key":{"type":"string"}}}}`, properties, properties)
}

// moreRules are what a keep.toml says of them: of a claim what it says of what is created.
func (f keepFile) moreRules(w *world, rules map[keep.ToolName]gateway.Rule) {
	if w.tools == nil {
		return
	}
	claim := rules[keep.ToolName(f.name+".create")]
	claim.Tool, claim.Identity, claim.Unique = toClaim, []string{"title"}, true
	rules[keep.ToolName(f.name+".claim")] = claim
	rules[keep.ToolName(f.name+".set")] = gateway.Rule{Pairing: mcp.Pairing{Tool: toSet, Identity: []string{"title"}, Sets: true, KeyLasts: f.setLasts, Timeout: f.timeout, Approve: f.approve}}
}

// edit changes what a file says of the other tools.
func (k *toolKind) edit(f *keepFile) {
	if k != nil {
		f.setLasts = pick(k.rng, 30*time.Second, 2*time.Minute, time.Hour)
	}
}

// other makes a call one of another tool, perhaps. mu is held.
func (k *toolKind) other(a *worldAgent, m *meant) {
	if k == nil {
		return
	}
	switch a.tools.IntN(4) {
	case 0, 1:
		m.tool, m.title = toSet, pick(a.tools, "s1", "s2")
		m.setsAnew()
	case 2:
		m.tool, m.title, m.body = toClaim, pick(a.tools, "c1", "c2", "c3", "c4"), fmt.Sprintf("for %d", m.n)
	default:
		return
	}
	m.intent = fmt.Sprintf("intent %d", m.n)
	a.w.saw("agent: means to " + m.tool)
}

// setsAnew has a call that sets something set another value than any other. When it is sent again, the server is not told which one it is, but by that.
func (m *meant) setsAnew() {
	if m.tool == toSet {
		m.body = fmt.Sprint("value ", m.n)
	}
}

// knowsName reports whether a gateway knows a record by the name of its tool.
func (p *process) knowsName(tool keep.ToolName) bool {
	return p != nil && slices.Contains(append([]string{p.file.name}, p.file.was...), tool.Connection())
}

// sameThing returns the records other than rec of the same tool and title, whoever made them, which a gateway knows, with what the ledger has of them. mu is held.
func (w *world) sameThing(p *process, rec *record) map[*record]keep.Mutation {
	all := make(map[*record]keep.Mutation)
	for _, other := range w.records {
		if other == rec || other.owner.tool != rec.owner.tool || other.owner.title != rec.owner.title {
			continue
		}
		if mut := w.mutation(other); p.knowsName(mut.Tool) {
			all[other] = mut
		}
	}
	return all
}

func (w *world) mutation(rec *record) keep.Mutation {
	mut, err := w.store.Mutation(context.Background(), keep.MutationKey(rec.ref))
	if err != nil {
		w.t.Fatal(err)
	}
	return mut
}

func (w *world) history(rec *record) []keep.Move {
	moves, err := w.store.History(context.Background(), keep.MutationKey(rec.ref))
	if err != nil {
		w.t.Fatal(err)
	}
	return moves
}

// recordedOther looks at a call of another tool that was recorded. mu is held.
func (w *world) recordedOther(p *process, rec *record) {
	switch rec.owner.tool {
	case toClaim:
		for other, mut := range w.sameThing(p, rec) {
			if mut.State != keep.Failed && mut.State != keep.Skipped && !w.again[rec.ref+" "+other.ref] {
				w.broken("once", "gateway %d records %s, and %s, of the same %s, is %s: nobody said that it is to be done again", p.n, rec, other, rec.owner.title, mut.State)
			}
		}
	case toSet:
		for other, mut := range w.sameThing(p, rec) {
			if other.owner.body != rec.owner.body && slices.ContainsFunc(other.asking, func(c context.Context) bool { return c.Err() == nil }) {
				w.broken("once", "gateway %d records %s while %s (%s) is being sent again", p.n, rec, other, mut.State)
			}
		}
		moves := w.history(rec)
		last := len(moves) - 1
		for ; last > 0 && ledger.Evidence(moves[last].Evidence) != ledger.NewAttempt; last-- {
		}
		if _, doubted := ledger.LastAttempt(moves[:max(last, 0)]); doubted && len(rec.attempts) > 1 {
			w.undone(p, rec, rec.attempts[len(rec.attempts)-2], "makes again")
		}
	}
}

// undone looks whether to send a call that sets something again undoes a later one. mu is held.
func (w *world) undone(p *process, rec *record, since time.Time, does string) {
	for other, mut := range w.sameThing(p, rec) {
		at := other.attempts[len(other.attempts)-1]
		if other.owner.body != rec.owner.body && mut.State != keep.Failed && at.After(since) && !w.again[rec.ref+" "+other.ref] && other.by.knowsName(w.mutation(rec).Tool) {
			w.broken("once", "gateway %d %s %s, of %s, and %s (%s) set something else since, at %s", p.n, does, rec, since.Sub(w.began), other, mut.State, at.Sub(w.began))
		}
	}
}

// sentAgain notes that a gateway sends a call again to know what became of it, while it waits for the answer. mu is held.
func (w *world) sentAgain(ctx context.Context, p *process, rec *record) {
	if rec.owner.tool != toSet || w.mutation(rec).State == keep.InFlight {
		return
	}
	w.saw("server: a setting is sent again")
	rec.asking = append(slices.DeleteFunc(rec.asking, func(c context.Context) bool { return c.Err() != nil }), ctx)
	w.undone(p, rec, rec.attempts[len(rec.attempts)-1], "sends again")
}

// setting returns the record of a request that sets something: the newest one of its content whose outcome is unknown. mu is held.
func (w *world) setting(d done) (found keep.Mutation) {
	list, _, err := w.store.Mutations(context.Background(), keep.MutationFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil || len(list) == keep.MaxPage {
		w.t.Fatalf("%d records, %v", len(list), err)
	}
	is := (&meant{title: d.title, body: d.body}).content()
	for _, one := range list {
		if one.PayloadHash == is && strings.HasSuffix(string(one.Tool), "."+toSet) && (one.State == keep.InFlight || one.State == keep.NeedsReconcile || one.State == keep.Indeterminate) && !one.CreatedAt.Before(found.CreatedAt) {
			found = one
		}
	}
	return found
}

// alreadyDone decides about a call that another one may have made. mu is held.
func (k *toolKind) alreadyDone(w *world, q keep.Escalation) keep.Action {
	run, err := w.store.Run(context.Background(), q.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	action := pick(k.people, keep.DoAgain, keep.TreatAsDone, keep.DoAgain, keep.Skip, keep.Reject)
	if !q.Allows(action) {
		action = keep.DoAgain
	}
	switch ref := repeat.Ref(run); action {
	case keep.DoAgain:
		w.again[ref+" "+string(q.Mutation)] = true
	case keep.TreatAsDone:
		w.treated[ref] = true
	}
	return action
}

// identity returns what says which call it is, by a file.
func (m *meant) identity(f keepFile) json.RawMessage {
	is := map[string]string{"title": m.title, "body": m.body}
	names := f.identity
	if m.tool != toCreate {
		names = []string{"title"}
	}
	for k := range is {
		if len(names) > 0 && !slices.Contains(names, k) {
			delete(is, k)
		}
	}
	text, _ := json.Marshal(is)
	return text
}
