package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"pgregory.net/rapid"
)

// Compare makes random commits, most of which make some sense and many of which
// must be refused, in two stores. Both must give the same answers and end in the
// same state, and their Checks must find the same broken laws: the commits are
// not those of an engine.
//
// Every kind of change must have been made, and every kind of refusal returned,
// at least once in the whole sample.
//
// Open returns two empty stores; dir is theirs.
func Compare(t *testing.T, open func(tb testing.TB, dir string) (a, b store.Store)) {
	seen := make(map[string]int)
	missing := wanted()
	for range maxSamples {
		sample(t, open, seen)
		missing = slices.DeleteFunc(missing, func(what string) bool { return seen[what] > 0 })
		t.Logf("missing after a sample: %q", missing)
		if len(missing) == 0 || t.Failed() {
			return
		}
	}
	t.Errorf("in no commit of %d samples was %q", maxSamples, missing)
}

// maxSamples is how often rapid is asked for its sequences until everything was
// seen. A few times are enough, unless nothing makes a kind of change any more.
const maxSamples = 100

// sample makes as many sequences of commits as -rapid.checks says.
func sample(t *testing.T, open func(tb testing.TB, dir string) (a, b store.Store), seen map[string]int) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		tb := &scope{TB: t}
		defer tb.end()
		c := comparison{T: rt, tb: tb, seen: seen}
		c.a, c.b = open(tb, dir)
		c.prelude()
		for range rapid.IntRange(1, 60).Draw(rt, "commits") {
			c.step()
		}
		c.compare()
	})
}

// wanted returns what a sample must contain.
func wanted() (list []string) {
	for _, c := range []keep.Change{
		keep.PutRun{}, keep.PutMutation{}, keep.Reserve{}, keep.Release{}, keep.Finish{}, keep.Publish{}, keep.SkipEvents{}, keep.UnskipEvents{}, keep.RedoEvents{},
		keep.PutInput{}, keep.SkipInput{}, keep.UnskipInput{}, keep.SetKV{}, keep.IfKV{}, keep.ResetKV{}, keep.PutHandler{}, keep.RequestRun{}, keep.LookAgain{}, keep.Deploy{},
		keep.SetPaused{}, keep.AppendDecision{}, keep.AppendLogs{}, keep.AppendTrace{}, keep.OpenEscalation{}, keep.CloseEscalation{}, keep.PutItem{}, keep.Sweep{},
	} {
		list = append(list, fmt.Sprintf("%T", c))
	}
	for _, err := range refusals {
		list = append(list, err.Error())
	}
	return list
}

// refusals are the errors by which a store refuses a commit.
var refusals = []error{keep.ErrStale, keep.ErrRunOpen, keep.ErrMutationExists, keep.ErrDecided}

// A scope runs cleanups at the end of one random sequence, not of the test.
type scope struct {
	testing.TB
	cleanups []func()
}

// Context outlives the sequence: stores are closed by cleanups.
func (s *scope) Context() context.Context { return context.Background() }

// Cleanup keeps f for the end of the scope.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// A comparison is two stores that got the same commits.
type comparison struct {
	*rapid.T
	tb   testing.TB
	a, b store.Store
	at   int64
	seen map[string]int // changes that were made and answers that were given, in all sequences
}

// prelude makes, most of the time, what later commits are about.
func (c *comparison) prelude() {
	if !c.likely("prelude") {
		return
	}
	c.at++
	w := names[0]
	commit := keep.Commit{Workflow: w, At: c.time(), Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: w, Topics: topics[:1], Handlers: c.handlers()}, CreatedAt: c.time()}},
		keep.PutInput{Input: keep.Input{ID: inputs[0], Workflow: w, Source: "s", Type: "t", ExternalID: string(inputs[0]), CreatedAt: c.time()}},
	}}
	for _, h := range handlers {
		commit.Changes = append(commit.Changes, keep.PutHandler{State: keep.HandlerState{Workflow: w, Handler: h, Kind: keep.Job}})
	}
	for _, id := range asked[:2] {
		commit.Changes = append(commit.Changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskUnknownOutcome,
			Workflow: w, Run: runs[0], Mutation: keys[0], CreatedAt: c.time()}})
	}
	decided := keep.Commit{Workflow: w, At: c.time(), Changes: []keep.Change{
		keep.CloseEscalation{ID: asked[1], Decision: &keep.Decision{Action: keep.Skip, By: "ann", At: c.time()}},
	}}
	for _, s := range []store.Store{c.a, c.b} {
		for _, commit := range []keep.Commit{commit, decided} {
			if err := s.Commit(context.Background(), commit); err != nil {
				c.Fatalf("prelude of %s: %v", w, err)
			}
		}
	}
}

// step makes one random commit in both stores.
func (c *comparison) step() {
	c.at++
	commit := keep.Commit{Workflow: pick(c, "workflow", names), At: c.time()}
	for range pick(c, "changes", []int{0, 1, 1, 1, 1, 1, 2, 2, 3, 4}) {
		change := c.change(commit.Workflow)
		if m, ok := change.(keep.PutMutation); ok && m.Mutation.Item != "" && c.likely("with its item") {
			commit.Changes = append(commit.Changes, c.itemOf(m.Mutation))
		}
		commit.Changes = append(commit.Changes, change)
	}
	if len(commit.Changes) == 0 { // a sweep is alone
		commit.Changes = append(commit.Changes, keep.Sweep{Chain: pick(c, "run", runs), Before: c.time()})
	}
	errA, errB := c.a.Commit(context.Background(), commit), c.b.Commit(context.Background(), commit)
	a, b := answer(errA), answer(errB)
	if c.seen[a]++; errA == nil {
		for _, change := range commit.Changes {
			c.seen[fmt.Sprintf("%T", change)]++
		}
	}
	if a == unnamed && errB != nil || b == unnamed && errA != nil {
		return // a commit that is wrong in two ways may be refused for either
	}
	if a != b {
		c.Fatalf("commit %+v:\none store says    %s (%v)\nthe other says   %s (%v)", commit, a, errA, b, errB)
	}
}

// answer returns what a caller can tell of an error.
func answer(err error) string {
	var reservation *keep.ReservationError
	var missing *keep.NotFoundError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &reservation):
		return fmt.Sprintf("%+v", *reservation)
	case errors.As(err, &missing):
		return fmt.Sprintf("%+v", *missing)
	}
	for _, known := range refusals {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return unnamed
}

// unnamed is the answer to what no engine should ask.
const unnamed = "refused without a name"

// compare wants the same state and the same broken laws in both stores.
func (c *comparison) compare() {
	a, b := Snapshot(c.tb, c.a), Snapshot(c.tb, c.b)
	rank(a.Events, a.Backlogs)
	rank(b.Events, b.Backlogs)
	if diff := cmp.Diff(a, b); diff != "" {
		c.Fatalf("the stores differ (-one +other):\n%s", diff)
	}
	for _, name := range names {
		allA, errA := c.a.KVs(context.Background(), name, "p")
		allB, errB := c.b.KVs(context.Background(), name, "p")
		same := func(a, b keep.SetKV) bool {
			return a.Producer == b.Producer && a.Key == b.Key && string(a.Value) == string(b.Value)
		}
		if errA != nil || errB != nil || !slices.EqualFunc(allA, allB, same) {
			c.Fatalf("KVs(%s) = %q, %v in one, %q, %v in the other", name, allA, errA, allB, errB)
		}
		for _, key := range []string{"k1", "k2"} {
			a, errA := c.a.KV(context.Background(), name, "p", key)
			b, errB := c.b.KV(context.Background(), name, "p", key)
			if errA != nil || errB != nil || !slices.Equal(a, b) || (a == nil) != (b == nil) {
				c.Fatalf("KV(%s, %s) = %q, %v in one, %q, %v in the other", name, key, a, errA, b, errB)
			}
		}
	}
	for _, text := range []string{"", "new", "ne item"} {
		c.counts(text)
	}
	lawsA, lawsB := Violations(c.tb, c.a), Violations(c.tb, c.b)
	slices.Sort(lawsA)
	slices.Sort(lawsB)
	if diff := cmp.Diff(lawsA, lawsB); diff != "" {
		c.Fatalf("the Checks differ (-one +other):\n%s", diff)
	}
}

// counts wants the same counts in both stores.
func (c *comparison) counts(text string) {
	for _, name := range append(names, "") {
		a, b := countAll(c.tb, c.a, name, text), countAll(c.tb, c.b, name, text)
		if diff := cmp.Diff(a, b); diff != "" {
			c.Fatalf("the counts of %q with %q differ (-one +other):\n%s", name, text, diff)
		}
	}
}

// countAll returns what a store counts of each noun.
func countAll(tb testing.TB, s store.Store, w keep.WorkflowName, text string) []any {
	r := reader{tb: tb, ctx: context.Background(), s: s}
	return []any{
		read1(r, s.CountRuns, keep.RunFilter{Workflow: w, Text: text}),
		read1(r, s.CountMutations, keep.MutationFilter{Workflow: w, Text: text}),
		read1(r, s.CountInputs, keep.InputFilter{Workflow: w, Text: text}),
		read1(r, s.CountItems, keep.ItemFilter{Workflow: w, Text: text}),
		read1(r, s.CountEscalations, keep.EscalationFilter{Workflow: w}),
	}
}

// rank replaces each Seq by its place: a store may skip numbers.
func rank(events []keep.Event, backlogs []keep.Backlog) {
	place := map[int64]int64{0: 0}
	for i := range events { // newest first
		place[events[i].Seq] = int64(len(events) - i)
		events[i].Seq = place[events[i].Seq]
	}
	for i, b := range backlogs {
		backlogs[i].Oldest.Seq, backlogs[i].Newest = place[b.Oldest.Seq], place[b.Newest]
	}
}

// The names are few, so that commits meet.
var (
	names    = []keep.WorkflowName{"w1", "w2"}
	topics   = []keep.TopicName{"t1", "t2"}
	messages = []keep.MessageID{"m1", "m2", "m3", "m4"}
	inputs   = []keep.InputID{"in_1", "in_2", "in_3", "in_4"}
	runs     = []keep.RunID{"run_1", "run_2", "run_3", "run_4", "run_5", "run_6"}
	keys     = []keep.MutationKey{"key_1", "key_2", "key_3"}
	items    = []string{"", "i1", "i2"}
	asked    = []keep.EscalationID{"esc_1", "esc_2", "esc_3"}
	handlers = []keep.HandlerName{"p", "c", "j"}
	entitled = []string{"", "New item", "item, renewed", "old"}
)

func pick[T any](c *comparison, label string, list []T) T {
	return rapid.SampledFrom(list).Draw(c.T, label)
}

func (c *comparison) time() time.Time { return time.UnixMilli(1_800_000_000_000 + c.at).UTC() }

// likely is true most of the time: what makes sense is done more often.
func (c *comparison) likely(label string) bool { return rapid.IntRange(0, 9).Draw(c.T, label) > 0 }

// owner returns w, and seldom another workflow.
func (c *comparison) owner(w keep.WorkflowName) keep.WorkflowName {
	if c.likely("own") {
		return w
	}
	return pick(c, "owner", names)
}

func (c *comparison) change(w keep.WorkflowName) keep.Change {
	makers := []func(keep.WorkflowName) keep.Change{
		c.putRun, c.putRun, c.putRun, c.putMutation, c.putMutation, c.publish, c.publish, c.publish,
		c.reserve, c.reserve, c.finish, c.putItem, c.putInput, c.putInput, c.ask, c.ask, c.tell, c.tell, c.small, c.small, c.small, c.small,
	}
	return pick(c, "change", makers)(w)
}

func (c *comparison) putRun(w keep.WorkflowName) keep.Change {
	id := pick(c, "run", runs)
	r, err := c.a.Run(context.Background(), id)
	if err != nil || !c.likely("known") {
		r = keep.Run{ID: id, Chain: id, Workflow: c.owner(w), Handler: "c", Kind: keep.Consumer, CreatedAt: c.time()}
		if !c.likely("first") {
			r.Chain, r.RetryOf = pick(c, "chain", runs), pick(c, "retry of", runs)
		}
		r.Reservations = c.reservations()
	}
	r.Lane = pick(c, "lane", []keep.Lane{r.Lane, r.Lane, r.Lane, keep.WorkflowLane, keep.KeyLane("c", "k"), keep.HandlerLane("c")})
	r.Kind = pick(c, "kind", []keep.Kind{r.Kind, r.Kind, r.Kind, r.Kind, keep.Job})
	r.Phase, r.Status = pick(c, "phase", keep.Phases()), pick(c, "status", keep.RunStatuses())
	r.Closed = rapid.Bool().Draw(c.T, "closed")
	if c.likely("consistent") {
		r.Closed = r.Closed || r.Status == keep.StatusCommitted || r.Status == keep.StatusAborted
		switch {
		case r.Status == keep.StatusCommitted:
			r.Phase = keep.Committed
		case r.Kind != keep.Consumer:
			r.Phase = keep.Running
		case r.Phase == keep.Committed || r.Phase == keep.Running:
			r.Phase = keep.Mutating
		}
	}
	if rapid.Bool().Draw(c.T, "with mutation") {
		r.Mutation = pick(c, "mutation", keys)
	}
	r.Title, r.UpdatedAt = pick(c, "title", entitled), c.time()
	return keep.PutRun{Run: r}
}

func (c *comparison) reservations() (list []keep.Reservation) {
	for range rapid.IntRange(0, 2).Draw(c.T, "reservations") {
		list = append(list, c.reservation())
	}
	return list
}

func (c *comparison) reservation() keep.Reservation {
	r := keep.Reservation{Topic: pick(c, "topic", topics), IDs: c.someMessages()}
	r.Attempts = c.attempts(pick(c, "workflow", names), r.Topic, r.IDs)
	return r
}

func (c *comparison) someMessages() (list []keep.MessageID) {
	for range rapid.IntRange(0, 2).Draw(c.T, "messages") {
		list = append(list, pick(c, "message", messages))
	}
	return list
}

func (c *comparison) putMutation(w keep.WorkflowName) keep.Change {
	key := pick(c, "key", keys)
	m, err := c.a.Mutation(context.Background(), key)
	if err != nil || !c.likely("known") {
		m = keep.Mutation{Key: key, Workflow: c.owner(w), Run: pick(c, "run", runs), Tool: "crm.create", Level: keep.LevelNone,
			Token: "t", Pin: json.RawMessage(`{}`), PinHash: "00", CallDeadline: c.time(), CreatedAt: c.time()}
		if m.Item = pick(c, "item", items); m.Item != "" {
			m.Attempt = rapid.IntRange(1, 2).Draw(c.T, "attempt")
		}
	}
	if !c.likely("same run") {
		m.Run = pick(c, "run", runs)
	}
	from := m.State
	m.State = pick(c, "state", keep.MutationStates())
	m.Doubted = m.Doubted || m.State == keep.NeedsReconcile
	m.Result, m.ResolvedBy = nil, "somebody"
	if m.State == keep.Applied {
		m.Result = json.RawMessage(`{}`)
	}
	if m.State == keep.InFlight || m.Attempts == 0 {
		m.Attempts++
	}
	var moves []keep.Move
	if c.likely("with history") {
		moves = []keep.Move{{At: c.time(), By: "call", From: from, To: m.State}}
	}
	return keep.PutMutation{Mutation: m, Moves: moves}
}

func (c *comparison) publish(w keep.WorkflowName) keep.Change {
	e := keep.Event{Workflow: c.owner(w), Topic: pick(c, "topic", topics), MessageID: pick(c, "message", messages),
		Payload: json.RawMessage(fmt.Sprint(c.at)), CreatedBy: keep.Publisher(pick(c, "run", runs))}
	for range rapid.IntRange(0, 2).Draw(c.T, "causes") {
		e.CausedBy = append(e.CausedBy, pick(c, "cause", inputs))
	}
	return keep.Publish{Event: e, New: !c.likely("over another")}
}

func (c *comparison) reserve(w keep.WorkflowName) keep.Change {
	topic, ids := pick(c, "topic", topics), c.someMessages()
	if rapid.IntRange(0, 2).Draw(c.T, "reserve") == 0 {
		switch rapid.IntRange(0, 3).Draw(c.T, "unskip") {
		case 0:
			return c.unskip(w, topic, ids)
		case 1:
			return c.redo(w, topic, ids)
		}
		return keep.SkipEvents{Topic: topic, IDs: ids}
	}
	return keep.Reserve{Chain: pick(c, "chain", runs), Reservation: keep.Reservation{Topic: topic, IDs: ids, Attempts: c.attempts(w, topic, ids)}}
}

// attempts returns those at which events are, or others.
func (c *comparison) attempts(w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID) (list []int) {
	known := c.likely("known attempts")
	for _, id := range ids {
		ev, err := c.a.Event(context.Background(), w, topic, id)
		if n := ev.Attempt(); err == nil && known {
			list = append(list, n)
		} else {
			list = append(list, rapid.IntRange(1, 3).Draw(c.T, "attempt"))
		}
	}
	return keep.AttemptsOf(list)
}

// redo has an event done again that is finished, if there is one, or any.
func (c *comparison) redo(w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID) keep.Change {
	status := pick(c, "status", []keep.EventStatus{keep.EventConsumed, keep.EventSkipped})
	over, _, err := c.a.Events(context.Background(), keep.EventFilter{Workflow: w, Status: status}, keep.Page{Limit: 10})
	if err != nil {
		c.Fatal(err)
	}
	if len(over) > 0 && c.likely("of one that is finished") {
		ev := pick(c, "finished", over)
		return keep.RedoEvents{Topic: ev.Topic, IDs: []keep.MessageID{ev.MessageID}, Chain: ev.ReservedBy, Attempt: ev.Attempt(), By: "ann", Note: pick(c, "note", entitled)}
	}
	return keep.RedoEvents{Topic: topic, IDs: ids, Chain: pick(c, "chain", append([]keep.RunID{""}, runs...)), Attempt: rapid.IntRange(1, 2).Draw(c.T, "attempt"), By: "ann"}
}

// unskip undoes the skip of an event that was skipped, if there is one, or of any.
func (c *comparison) unskip(w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID) keep.Change {
	skipped, _, err := c.a.Events(context.Background(), keep.EventFilter{Workflow: w, Status: keep.EventSkipped}, keep.Page{Limit: 10})
	if err != nil {
		c.Fatal(err)
	}
	if len(skipped) > 0 && c.likely("of one that is skipped") {
		ev := pick(c, "skipped", skipped)
		return keep.UnskipEvents{Topic: ev.Topic, IDs: []keep.MessageID{ev.MessageID}, Chain: ev.ReservedBy}
	}
	return keep.UnskipEvents{Topic: topic, IDs: ids, Chain: pick(c, "chain", append([]keep.RunID{""}, runs...))}
}

func (c *comparison) finish(keep.WorkflowName) keep.Change {
	chain := pick(c, "chain", runs)
	if rapid.Bool().Draw(c.T, "release") {
		var tried []keep.EventRef
		for _, id := range c.someMessages() {
			tried = append(tried, keep.EventRef{Topic: pick(c, "topic", topics), MessageID: id})
		}
		return keep.Release{Chain: chain, Tried: tried}
	}
	return keep.Finish{Chain: chain, Status: pick(c, "status", keep.EventStatuses())}
}

func (c *comparison) putItem(w keep.WorkflowName) keep.Change {
	id := pick(c, "item", items)
	it, err := c.a.Item(context.Background(), w, id)
	if err != nil || !c.likely("known") {
		it = keep.Item{Workflow: c.owner(w), ID: id, Attempt: 1, CreatedAt: c.time()}
	}
	it.Status, it.UpdatedAt = pick(c, "status", keep.ItemStatuses()), c.time()
	it.Title = pick(c, "title", entitled)
	return keep.PutItem{Item: it}
}

// itemOf returns the item of a call, at work on it.
func (c *comparison) itemOf(m keep.Mutation) keep.Change {
	it, err := c.a.Item(context.Background(), m.Workflow, m.Item)
	if err != nil {
		it = keep.Item{Workflow: m.Workflow, ID: m.Item, CreatedAt: c.time()}
	}
	it.Status, it.Attempt, it.UpdatedAt = keep.ItemProcessing, m.Attempt, c.time()
	return keep.PutItem{Item: it}
}

func (c *comparison) putInput(w keep.WorkflowName) keep.Change {
	id := pick(c, "input", inputs)
	in := keep.Input{ID: id, Workflow: c.owner(w), Source: "s", Type: "t", ExternalID: string(id), CreatedAt: c.time()}
	if !c.likely("own key") {
		in.ExternalID = string(pick(c, "key of", inputs))
	}
	return keep.PutInput{Input: in}
}

func (c *comparison) ask(w keep.WorkflowName) keep.Change {
	id := pick(c, "escalation", asked)
	if _, err := c.a.Escalation(context.Background(), id); err == nil == c.likely("answer what is asked") {
		return keep.CloseEscalation{ID: id, Decision: &keep.Decision{Action: keep.Skip, By: "ann", At: c.time()}}
	}
	return keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskUnknownOutcome, Workflow: c.owner(w),
		Run: pick(c, "run", runs), Mutation: pick(c, "mutation", keys), CreatedAt: c.time()}}
}

// sinks are those that notify people.
var sinks = []keep.Sink{"webhook", "on_escalation"}

// tell writes a notice, most often on top of what is stored.
func (c *comparison) tell(w keep.WorkflowName) keep.Change {
	n := keep.Notice{Escalation: pick(c, "escalation", asked), Sink: pick(c, "sink", sinks)}
	known, _ := c.a.Notices(context.Background(), n.Escalation)
	for _, k := range known {
		if k.Sink == n.Sink && c.likely("known") {
			n = k
		}
	}
	n.Status, n.Attempts, n.UpdatedAt = pick(c, "notice", keep.NoticeStatuses()), n.Attempts+1, c.time()
	if n.NextAt = (time.Time{}); (n.Status == keep.NoticePending) == c.likely("with a time") {
		n.NextAt = c.time()
	}
	return keep.PutNotice{Notice: n}
}

// ifKV returns the condition that a value is as it is stored, or another one.
func (c *comparison) ifKV(w keep.WorkflowName, other json.RawMessage) keep.Change {
	is, _ := c.a.KV(context.Background(), w, "p", "k1")
	if !c.likely("as stored") {
		is = pick(c, "other", []json.RawMessage{nil, other})
	}
	return keep.IfKV{Producer: "p", Key: "k1", Value: is}
}

// handlers returns a consumer of the topic that is declared, or of none.
func (c *comparison) handlers() []keep.Handler {
	if !rapid.Bool().Draw(c.T, "read") {
		return nil
	}
	return []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: topics[:1]}}
}

// small returns one of the changes that touch one row of one table.
func (c *comparison) small(w keep.WorkflowName) keep.Change {
	handler := pick(c, "handler", handlers)
	served := time.UnixMilli(1_800_000_000_000 + c.at - int64(rapid.IntRange(0, 5).Draw(c.T, "ago"))).UTC()
	value := json.RawMessage(fmt.Sprint(c.at))
	version := keep.Version{Major: int(c.at), Minor: rapid.IntRange(0, 1).Draw(c.T, "minor")}
	if !c.likely("later") {
		version.Major = 1
	}
	return pick(c, "small", []keep.Change{
		keep.PutHandler{State: keep.HandlerState{Workflow: c.owner(w), Handler: handler, Kind: keep.Job, IdleSeq: c.at, NextAt: c.time()}, Served: served},
		keep.RequestRun{Handler: handler},
		keep.RequestRun{Handler: handler},
		keep.SetKV{Producer: "p", Key: "k1", Value: value},
		keep.SetKV{Producer: "p", Key: "k2", Value: value},
		keep.SetKV{Producer: "p", Key: "k1"},
		c.ifKV(w, value),
		keep.ResetKV{Producer: "p"},
		keep.SkipInput{Input: pick(c, "input", inputs)},
		keep.UnskipInput{Input: pick(c, "input", inputs)},
		keep.LookAgain{Handler: handler},
		keep.SetPaused{Paused: true, Note: rapid.SampledFrom([]string{"", "why"}).Draw(c.T, "note")},
		keep.SetPaused{},
		keep.SetPaused{If: &keep.PauseState{Paused: true, Note: rapid.SampledFrom([]string{"", "why"}).Draw(c.T, "note before")}},
		keep.SetPaused{Paused: true, If: new(keep.PauseState)},
		keep.SetPaused{If: new(keep.PauseState)},
		keep.Deploy{Deployment: keep.Deployment{Workflow: c.owner(w), Version: version, Code: value,
			Definition: keep.Definition{Name: w, Topics: topics[:1], Handlers: c.handlers()}, CreatedAt: c.time()}},
		keep.AppendDecision{Decided: keep.Decided{About: rapid.SampledFrom([]keep.Subject{{Workflow: c.owner(w), Kind: keep.AboutInput, ID: string(pick(c, "input", inputs))},
			w.Subject(), keep.Handler{Name: handler}.Subject(w)}).Draw(c.T, "about"),
			Decision: keep.Decision{Action: keep.Skip, By: "ann", From: "cli", Note: string(value), At: c.time()}}},
		keep.AppendLogs{Lines: []keep.LogLine{{Run: pick(c, "run", runs), At: c.time(), Text: string(value)}}},
		keep.AppendTrace{Part: keep.TracePart{Run: pick(c, "run", runs), At: c.time(), Data: value}},
	})
}
