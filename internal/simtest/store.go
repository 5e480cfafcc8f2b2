package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	contract "github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A Store is what the simulation needs of a store: what the engine needs, and
// what it compares with the truth. It is wide because that is every noun.
type Store interface {
	engine.Store
	contract.Proposals
	contract.Decisions
	contract.Sweeper
	contract.Checker
}

// An Opener opens the store of a world, the same data each time, and returns it
// with what closes it. What a store starts ends when it is closed: a world opens
// its store once in each bubble, and once more to look at it.
type Opener func() (Store, func() error)

// inMemory is the Opener of a store in memory.
func inMemory() Opener {
	s := memory.New()
	return func() (Store, func() error) { return s, func() error { return nil } }
}

// withStore opens the store of the world for f.
func (w *world) withStore(f func()) {
	store, closeStore := w.open()
	w.store = store
	defer func() {
		w.store = nil
		w.must("close the store", closeStore())
	}()
	f()
}

// errDisk is the error of a store that fails.
var errDisk = errors.New("disk I/O error")

// A store stands between one process and the store of the world. It survives no
// death: what a dead process still wanted to write is never written.
type store struct {
	Store
	p *process
}

// A byPerson context marks what people do, beside what the engine does.
type byPerson struct{}

// name returns who does something to what.
func name(ctx context.Context, what ...string) string {
	s := "engine"
	if ctx.Value(byPerson{}) != nil {
		s = "person"
	}
	for _, part := range what {
		s += " " + part
	}
	return s
}

// Commit passes c on, unless the seed has another fate for it.
func (s *store) Commit(ctx context.Context, c keep.Commit) error {
	w, who := s.p.w, name(ctx, "commit", string(c.Workflow), brief(c))
	began := w.hostTime()
	s.p.point("before " + who)
	w.consentBeside(ctx, c)
	w.skipBeside(ctx, c)
	w.doRunBeside(ctx, c)
	s.p.endIfDead() // whoever did something beside it waited for turns of its own
	w.watchStopped(s.p, c)
	if s.p.cut {
		return s.p.noRoute(ctx, who)
	}
	fate := ""
	if w.maybe(w.rates.commit) {
		fate = []string{"lost", "unknown", "slow"}[w.below(3)]
		w.fault("commit is " + fate)
		w.forget()
	}
	switch fate {
	case "lost":
		return errDisk
	case "slow":
		s.p.sleep(context.Background(), w.span(20*time.Second), "slow "+who)
	}
	if w.does(dropsCommit) {
		return nil
	}
	if w.fileGone {
		return w.commitNowhere(c, func() error { return s.commit(ctx, c, began) })
	}
	if err := s.commit(ctx, c, began); err != nil {
		return err
	}
	s.p.mayDie("after " + who)
	if fate == "unknown" {
		return errDisk
	}
	return nil
}

// commit passes c on, and watches it. It began at a time by the clock of the host, which may
// have been set back since.
func (s *store) commit(ctx context.Context, c keep.Commit, began time.Time) error {
	w := s.p.w
	keepIt := w.keepSwept(c)
	err := s.Store.Commit(ctx, w.tampered(c))
	w.watchCommit(c, began, err)
	if err != nil {
		w.note(fmt.Sprintf("refused %v", err))
		return err
	}
	keepIt()
	w.watchFailures(s.p, c)
	w.noteTreated(c)
	w.result.Commits++
	return nil
}

// brief names the run and the mutation that a commit moves.
func brief(c keep.Commit) string {
	var b []byte
	for _, change := range c.Changes {
		switch v := change.(type) {
		case keep.PutRun:
			b = fmt.Appendf(b, "%s=%s,%s ", v.Run.Handler, v.Run.Phase, v.Run.Status)
		case keep.PutMutation:
			b = fmt.Appendf(b, "%s=%s ", v.Mutation.Tool, v.Mutation.State)
		case keep.OpenEscalation:
			b = fmt.Appendf(b, "ask:%s ", v.Escalation.Kind)
		case keep.CloseEscalation:
			b = append(b, "close "...)
		}
	}
	return string(b)
}

// read is a turn before a read, which may fail. It does if nobody waits for it
// any more: some stores look at that and others do not.
func (s *store) read(ctx context.Context, what ...string) error {
	s.p.point(name(ctx, what...))
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.p.cut {
		return errCut
	}
	if s.p.w.maybe(s.p.w.rates.read) {
		s.p.w.fault("read fails")
		s.p.w.forget()
		return errDisk
	}
	return nil
}

// Workflows is read by every actor under the same name, so it takes no turn: the
// next read does.

// OpenRuns implements store.Runs.
func (s *store) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	if err := s.read(ctx, "open-run", string(w)); err != nil {
		return nil, err
	}
	return s.Store.OpenRuns(ctx, w)
}

// FreeAfter implements store.Topics.
func (s *store) FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error) {
	if err := s.read(ctx, "free-after", string(w)); err != nil {
		return nil, err
	}
	return s.Store.FreeAfter(ctx, w, topics, after, limit)
}

// Handlers implements store.Workflows.
func (s *store) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	if err := s.read(ctx, "handlers", string(w)); err != nil {
		return nil, err
	}
	return s.Store.Handlers(ctx, w)
}

// Deployment implements store.Workflows.
func (s *store) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	if err := s.read(ctx, "deployment", string(w), v.String()); err != nil {
		return keep.Deployment{}, err
	}
	return s.Store.Deployment(ctx, w, v)
}

// Backlog implements store.Events.
func (s *store) Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (keep.Backlog, error) {
	if err := s.read(ctx, "backlog", string(w)); err != nil {
		return keep.Backlog{}, err
	}
	return s.Store.Backlog(ctx, w, topics)
}

// EventsByID implements store.Events.
func (s *store) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	if err := s.read(ctx, "events", string(w), string(t)); err != nil {
		return nil, err
	}
	return s.Store.EventsByID(ctx, w, t, ids)
}

// Peek implements store.Events.
func (s *store) Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error) {
	if err := s.read(ctx, "peek", string(w), string(t)); err != nil {
		return nil, err
	}
	return s.Store.Peek(ctx, w, t, limit)
}

// Mutation implements store.Mutations.
func (s *store) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	if err := s.read(ctx, "mutation", string(key)); err != nil {
		return keep.Mutation{}, err
	}
	m, err := s.Store.Mutation(ctx, key)
	s.p.meets(ctx, m)
	return m, err
}

// ItemDoubts implements store.Doubts. A process may die, or another one go ahead, before each of the two states is read.
func (s *store) ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error) {
	for _, state := range lifecycle.Doubts() {
		if err := s.read(ctx, "mutations", string(w), string(state)); err != nil {
			return nil, err
		}
	}
	ms, err := s.Store.ItemDoubts(ctx, w)
	for _, m := range ms {
		s.p.meets(ctx, m)
	}
	return ms, err
}

// Mutations implements store.Mutations.
func (s *store) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	if err := s.read(ctx, "mutations", string(f.Workflow), string(f.State)); err != nil {
		return nil, "", err
	}
	ms, next, err := s.Store.Mutations(ctx, f, p)
	for _, m := range ms {
		s.p.meets(ctx, m)
	}
	return ms, next, err
}

// Decided implements store.Decisions.
func (s *store) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	if err := s.read(ctx, "decided", about.ID); err != nil {
		return nil, err
	}
	return s.Store.Decided(ctx, about)
}

// Item implements store.Runs.
func (s *store) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	if err := s.read(ctx, "item", string(w), id); err != nil {
		return keep.Item{}, err
	}
	return s.Store.Item(ctx, w, id)
}

// Escalations implements store.Runs.
func (s *store) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	if err := s.read(ctx, "questions", string(f.Workflow), string(f.Run)); err != nil {
		return nil, "", err
	}
	return s.Store.Escalations(ctx, f, p)
}

// Run implements store.Runs.
func (s *store) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	if err := s.read(ctx, "run", string(id)); err != nil {
		return keep.Run{}, err
	}
	return s.Store.Run(ctx, id)
}

// KV implements store.Workflows.
func (s *store) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error) {
	if err := s.read(ctx, "kv", string(w), string(producer)); err != nil {
		return nil, err
	}
	return s.Store.KV(ctx, w, producer, key)
}

// InputByKey implements store.Events.
func (s *store) InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, id string) (keep.Input, error) {
	if err := s.read(ctx, "input", string(w), id); err != nil {
		return keep.Input{}, err
	}
	return s.Store.InputByKey(ctx, w, source, typ, id)
}

// Causes implements store.Events.
func (s *store) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	if err := s.read(ctx, "causes", string(chain)); err != nil {
		return nil, err
	}
	return s.Store.Causes(ctx, chain)
}
