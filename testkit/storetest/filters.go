package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store"
)

// Filters fills a store with random rows, many of them of one moment, and reads lists and counts of random filters with any
// of their fields set, in pages of any size. Each must have what a plain filter finds among all rows. No engine made the rows, so that
// Check would find fault with them.
func Filters(t *testing.T, s store.Store) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &filters{world: newWorld(t, s), Rand: rand.New(rand.NewPCG(seed, 0))}
	f.begun = f.at
	for _, name := range filteredNames[:3] {
		f.deploy(name, "t", "u")
	}
	for range 100 {
		f.add()
	}
	for range 50 {
		f.runs()
		f.mutations()
		f.events()
		f.others()
	}
}

// filters are random rows, and random filters of them.
type filters struct {
	*world
	*rand.Rand
	begun  time.Time
	chains []keep.RunID
	inputs []keep.InputID
}

// The values of fields are few, so that filters find something. The last one of each is of no row.
var (
	filteredNames    = []keep.WorkflowName{"w1", "w2", "w3", "none"}
	filteredHandlers = []keep.HandlerName{"a", "b", "none"}
	filteredTools    = []keep.ToolName{"crm.a", "crm.b", "mail.send", "none"}
	filteredItems    = []string{"i1", "i2", "none"}
	filteredTopics   = []keep.TopicName{"t", "u", "none"}
	filteredErrors   = []string{"transient", "logic", "http-422", "budget", "a\"<\x00", "none"}
	filteredWords    = []string{"mail", "m", "invoice", "in", "J\u00f6rg", "jorg", "12", "123", "\x00", "e\u0301a", "\xff\xfe", "\u017ftra\u00dfe", "\u65e5\u672c", "\ud55c\uad6d", "?", "none"}
)

// among returns one of a list that is not the last.
func among[T any](f *filters, list []T) T { return list[f.IntN(len(list)-1)] }

// maybe returns one of a list, or, half of the time, nothing.
func maybe[T any](f *filters, list []T) (v T) {
	if f.IntN(2) == 0 {
		v = list[f.IntN(len(list))]
	}
	return v
}

func (f *filters) title() (title string) {
	for range f.IntN(4) {
		title += among(f, filteredWords) + among(f, []string{" ", "-", "", "\u00a0", ""})
	}
	return title
}

func (f *filters) failure() *keep.Failure {
	if f.IntN(4) == 0 {
		return nil
	}
	return &keep.Failure{Class: keep.Classes()[f.IntN(len(keep.Classes()))], Code: among(f, filteredErrors), Message: f.title()}
}

// add adds a run with its call, an input with its event, items and a question.
func (f *filters) add() {
	f.Helper()
	if f.IntN(2) == 0 {
		f.at = f.at.Add(time.Duration(f.IntN(3)) * time.Millisecond * time.Duration(1+f.IntN(2e6)))
	}
	made := f.at.Add(time.Duration(f.IntN(100)-50) * time.Second)
	r := f.newRun(among(f, filteredNames))
	r.Handler, r.Title, r.Status, r.Error = among(f, filteredHandlers), f.title(), keep.RunStatuses()[f.IntN(len(keep.RunStatuses()))], f.failure()
	r.Lane, r.Phase, r.Closed, r.CreatedAt = keep.ChainLane(r.ID), keep.Mutating, f.IntN(2) == 0, made
	switch r.Status {
	case keep.StatusCommitted:
		r.Phase, r.Closed = keep.Committed, true
	case keep.StatusAborted:
		r.Closed = true
	case keep.StatusActive:
		r.Closed = false
	}
	if f.chains = append(f.chains, r.ID); f.IntN(3) == 0 {
		if c, err := f.Run(f.ctx, f.chains[f.IntN(len(f.chains))]); err == nil { // else it is this one
			r.Workflow, r.Chain = c.Workflow, c.Chain
		}
	}
	in := keep.Input{ID: keep.InputID(f.id("in")), Workflow: r.Workflow, ExternalID: fmt.Sprint(f.ids, f.title()), Title: f.title(), CreatedAt: made}
	f.inputs = append(f.inputs, in.ID)
	changes := append([]keep.Change{keep.PutRun{Run: r}, keep.PutInput{Input: in}}, f.event(r, in.ID)...)
	if f.IntN(6) == 0 {
		changes = append(changes, keep.SkipInput{Input: in.ID})
	}
	changes = append(changes, f.call(r)...)
	q := keep.Escalation{ID: keep.EscalationID(f.id("esc")), Kind: keep.EscalationKinds()[f.IntN(len(keep.EscalationKinds()))], Workflow: r.Workflow,
		Run: maybe(f, []keep.RunID{r.ID}), Item: maybe(f, filteredItems), CreatedAt: made}
	if changes = append(changes, keep.OpenEscalation{Escalation: q}); f.IntN(2) == 0 {
		changes = append(changes, keep.CloseEscalation{ID: q.ID})
	}
	if err := f.Commit(f.ctx, keep.Commit{Workflow: r.Workflow, At: f.at, Changes: changes}); err != nil {
		f.Fatal(err)
	}
}

// event returns the changes that publish an event of an input, for a run or not.
func (f *filters) event(r keep.Run, in keep.InputID) []keep.Change {
	e := event(r.Workflow, among(f, filteredTopics), keep.MessageID(fmt.Sprint(f.ids, " ", filteredWords[f.IntN(10)])), in)
	changes, ids := []keep.Change{keep.Publish{Event: e}}, []keep.MessageID{e.MessageID}
	switch f.IntN(5) {
	case 0:
		return append(changes, keep.SkipEvents{Topic: e.Topic, IDs: ids})
	case 1:
		return append(changes, keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: e.Topic, IDs: ids}})
	case 2:
		return append(changes, keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: e.Topic, IDs: ids}}, keep.Finish{Chain: r.Chain, Status: keep.EventConsumed})
	}
	return changes
}

// call returns the changes that record a call of a run, of an item or not, and an item.
func (f *filters) call(r keep.Run) []keep.Change {
	m := f.newMutation(r)
	m.CreatedAt, m.Tool, m.Title, m.Target, m.Error = r.CreatedAt, among(f, filteredTools), f.title(), f.title(), f.failure()
	if m.State = keep.MutationStates()[f.IntN(len(keep.MutationStates()))]; m.State != keep.InFlight {
		m.ResolvedBy, m.Item = "call", maybe(f, filteredItems[:2])
	}
	if m.State == keep.Applied {
		m.Result = json.RawMessage(`{}`)
	}
	item := keep.Item{Workflow: r.Workflow, ID: f.id("item"), Title: f.title(), Status: keep.ItemStatuses()[f.IntN(5)], Attempt: 1, CreatedAt: r.CreatedAt}
	if m.Item != "" {
		if m.Attempt = 1; !f.has(r.Workflow, m.Item) {
			item.ID = m.Item
		}
	}
	return []keep.Change{keep.PutItem{Item: item}, keep.PutMutation{Mutation: m, Moves: []keep.Move{f.move("", m.State)}}}
}

// has reports whether a workflow has an item.
func (f *filters) has(name keep.WorkflowName, id string) bool {
	_, err := f.Item(f.ctx, name, id)
	return err == nil
}

// period returns none, or one of which the ends may be missing, or in the wrong order.
func (f *filters) period() (p keep.Period) {
	if f.IntN(3) > 0 {
		return p
	}
	some := func() time.Time { return f.begun.Add(time.Duration(f.Int64N(int64(f.at.Sub(f.begun)) + 1))) }
	return keep.Period{Since: maybe(f, []time.Time{some()}), Until: maybe(f, []time.Time{some()})}
}

// few returns a value, seldom.
func few[T any](f *filters, list []T) (v T) {
	if f.IntN(2) == 0 {
		v = maybe(f, list)
	}
	return v
}

func (f *filters) runs() {
	f.Helper()
	by := keep.RunFilter{Workflow: maybe(f, filteredNames), Handler: maybe(f, filteredHandlers), Status: maybe(f, keep.RunStatuses()), Chain: few(f, f.chains), Open: f.IntN(4) == 0,
		Made: f.period(), Error: maybe(f, filteredErrors), Text: maybe(f, filteredWords)}
	paged(f, "Runs", f.Runs, by, func(r keep.Run) bool {
		return want(by.Workflow, r.Workflow) && want(by.Handler, r.Handler) && want(by.Status, r.Status) && want(by.Chain, r.Chain) && (!by.Open || !r.Closed) && by.Made.Has(r.CreatedAt) &&
			(by.Error == "" || r.Status != keep.StatusActive && r.Status != keep.StatusCommitted && r.Error.Named(by.Error)) && search.OfRun(r).Has(search.Terms(by.Text))
	})
	counted(f.world, "Runs", f.Runs, f.CountRuns, by, func(r keep.Run) keep.RunStatus { return r.Status })
}

func (f *filters) mutations() {
	f.Helper()
	by := keep.MutationFilter{Workflow: maybe(f, filteredNames), State: maybe(f, keep.MutationStates()), Tool: maybe(f, filteredTools), Run: few(f, f.chains), Input: few(f, f.inputs),
		Made: f.period(), Error: maybe(f, filteredErrors), Text: maybe(f, filteredWords)}
	if by.Workflow != "" {
		by.Item = maybe(f, filteredItems)
	}
	outputs := get[[]keep.MutationKey](f.world)(f.Outputs(f.ctx, by.Input))
	paged(f, "Mutations", f.Mutations, by, func(m keep.Mutation) bool {
		return want(by.Workflow, m.Workflow) && want(by.State, m.State) && want(by.Tool, m.Tool) && want(by.Run, m.Run) && want(by.Item, m.Item) && by.Made.Has(m.CreatedAt) &&
			(by.Input == "" || slices.Contains(outputs, m.Key)) && (by.Error == "" || m.State != keep.Applied && m.Error.Named(by.Error)) && search.OfMutation(m).Has(search.Terms(by.Text))
	})
	counted(f.world, "Mutations", f.Mutations, f.CountMutations, by, func(m keep.Mutation) keep.MutationState { return m.State })
}

func (f *filters) events() {
	f.Helper()
	by := keep.EventFilter{Workflow: maybe(f, filteredNames), Topic: maybe(f, filteredTopics), Status: maybe(f, keep.ListedEventStatuses()), Input: few(f, f.inputs),
		Made: f.period(), Text: maybe(f, filteredWords)}
	paged(f, "Events", f.Events, by, func(e keep.Event) bool {
		return want(by.Workflow, e.Workflow) && want(by.Topic, e.Topic) && want(by.Status, e.Listed()) && (by.Input == "" || slices.Contains(e.CausedBy, by.Input)) &&
			by.Made.Has(e.CreatedAt) && search.OfEvent(e).Has(search.Terms(by.Text))
	})
}

func (f *filters) others() {
	f.Helper()
	in := keep.InputFilter{Workflow: maybe(f, filteredNames), Status: maybe(f, keep.InputStatuses()), Made: f.period(), Text: maybe(f, filteredWords)}
	paged(f, "Inputs", f.Inputs, in, func(v keep.Input) bool {
		return want(in.Workflow, v.Workflow) && want(in.Status, v.Status) && in.Made.Has(v.CreatedAt) && search.OfInput(v).Has(search.Terms(in.Text))
	})
	counted(f.world, "Inputs", f.Inputs, f.CountInputs, in, func(v keep.Input) keep.InputStatus { return v.Status })
	it := keep.ItemFilter{Workflow: maybe(f, filteredNames), Status: maybe(f, keep.ItemStatuses()), Made: f.period(), Text: maybe(f, filteredWords)}
	paged(f, "Items", f.Items, it, func(v keep.Item) bool {
		return want(it.Workflow, v.Workflow) && want(it.Status, v.Status) && it.Made.Has(v.CreatedAt) && search.OfItem(v).Has(search.Terms(it.Text))
	})
	counted(f.world, "Items", f.Items, f.CountItems, it, func(v keep.Item) keep.ItemStatus { return v.Status })
	q := keep.EscalationFilter{Workflow: maybe(f, filteredNames), Run: few(f, f.chains), Kind: maybe(f, keep.EscalationKinds()), Open: f.IntN(3) == 0, Closed: f.IntN(3) == 0, Made: f.period()}
	if q.Workflow != "" {
		q.Item = maybe(f, filteredItems)
	}
	paged(f, "Escalations", f.Escalations, q, func(v keep.Escalation) bool {
		return want(q.Workflow, v.Workflow) && want(q.Run, v.Run) && want(q.Kind, v.Kind) && want(q.Item, v.Item) && (!q.Open || v.ClosedAt.IsZero()) && (!q.Closed || !v.ClosedAt.IsZero()) &&
			q.Made.Has(v.CreatedAt)
	})
	counted(f.world, "Escalations", f.Escalations, f.CountEscalations, q, func(v keep.Escalation) keep.EscalationKind { return v.Kind })
}

// paged compares a filtered list, in pages of a random size, with the whole list, filtered here.
func paged[F, T any](f *filters, what string, list func(context.Context, F, keep.Page) ([]T, string, error), by F, match func(T) bool) {
	f.Helper()
	var all F
	var got, want []T
	for _, v := range page[T](f.world)(list(f.ctx, all, keep.Page{Limit: keep.MaxPage})) {
		if match(v) {
			want = append(want, v)
		}
	}
	for p := (keep.Page{Limit: 1 + f.IntN(20)}); ; {
		part, next, err := list(f.ctx, by, p)
		if err != nil || len(part) > p.Limit {
			f.Fatalf("%s %+v: %d rows, %v", what, by, len(part), err)
		}
		if got = append(got, part...); next == "" {
			break
		}
		p.After = next
	}
	f.same(fmt.Sprintf("%s %+v", what, by), got, want)
}
