package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
)

// A Repairer writes scripts in the place of those that failed. *repair.Keeper is one.
type Repairer interface {
	// Repair makes attempts as far as the budget of the failure lasts, and returns what is known of it
	// then. What was found out before is returned as it is. The error is keep.ErrStale if another
	// host repairs the same.
	Repair(ctx context.Context, failed keep.Run) (law.Record, error)

	// Proposed returns the script of a proposal, or why it may not be one any more.
	Proposed(ctx context.Context, failed keep.Run, source string) (w *Workflow, refused []string, err error)
}

// Repairs says who repairs scripts that fail, and what then becomes current by itself.
type Repairs struct {
	Repairer Repairer
	Activate law.Activate
}

const (
	// repairsEvery is how often a host looks for runs that nobody is asked about: another process
	// may have decided something.
	repairsEvery = 5 * time.Second

	// repairAgain is how long it waits after the store failed.
	repairAgain = time.Second

	// lookAgain is how long it waits after somebody else was faster.
	lookAgain = 50 * time.Millisecond

	// maxRepairing bounds the workflows that are repaired at the same time.
	maxRepairing = 4
)

// A mender has the scripts repaired of the runs that fail by logic. A failure ends with another
// version, or with one question: about a version that a person must agree to, or about the run. While
// it is not known which, nothing but the store says how far it came, so that a host which dies
// leaves to the next one what is left to do.
type mender struct {
	h     *Host
	wake  chan struct{}
	slots chan struct{} // of repairs under way

	mu      sync.Mutex
	with    *Repairs                   // nil: nothing is repaired
	all     bool                       // any workflow may have runs that failed: the next look asks the store
	due     map[keep.WorkflowName]bool // that may have runs that failed since they were worked on
	looking bool                       // at which workflows are to be worked on
	busy    map[keep.WorkflowName]bool // that are worked on
	turns   int                        // how often one was worked on
	moved   chan struct{}              // is closed when one of these changes
	only    map[keep.WorkflowName]bool // nil: all workflows
}

func newMender(h *Host, cfg Config) *mender {
	m := &mender{
		h: h, with: cfg.Repairs, all: true, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxRepairing),
		due: make(map[keep.WorkflowName]bool), busy: make(map[keep.WorkflowName]bool), moved: make(chan struct{}),
	}
	if cfg.Only != nil {
		m.only = make(map[keep.WorkflowName]bool, len(cfg.Only))
		for _, w := range cfg.Only {
			m.only[w] = true
		}
	}
	return m
}

// SetRepairs replaces who repairs scripts; nil: nobody does, and what is under way ends as it would
// have.
func (h *Host) SetRepairs(r *Repairs) {
	h.mender.change(func(m *mender) { m.with, m.all = r, true })
	h.mender.kick()
}

// repairing reports whether runs that fail by logic are left to the mender.
func (m *mender) repairing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.with != nil
}

// change changes the state, and wakes those who wait for that.
func (m *mender) change(f func(*mender)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
	close(m.moved)
	m.moved = make(chan struct{})
}

// kick makes run look now.
func (m *mender) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// committed notices runs that failed, and questions that ended, before who commits continues: a host
// that repairs something is not idle.
func (m *mender) committed(c keep.Commit) {
	failed, asked, answered := false, false, false
	for _, change := range c.Changes {
		switch change := change.(type) {
		case keep.PutRun:
			failed = failed || lifecycle.NeedsScript(change.Run)
		case keep.OpenEscalation:
			asked = true
		case keep.CloseEscalation:
			answered = true
		}
	}
	if failed && !asked || answered {
		m.change(func(m *mender) { m.due[c.Workflow] = true })
		m.kick()
	}
}

// run works until ctx is done.
func (m *mender) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.change(func(m *mender) { m.all = true })
		case <-m.wake:
		}
		wait := repairsEvery
		if err := m.look(ctx, &working); err != nil {
			if ctx.Err() != nil {
				return
			}
			m.h.log.WarnContext(ctx, "look for scripts that failed", "err", err)
			wait = repairAgain
		}
		tick.Reset(wait)
	}
}

// look begins to work on each workflow that is due. One that is worked on is looked at again when
// that ends.
func (m *mender) look(ctx context.Context, working *sync.WaitGroup) error {
	var (
		names []keep.WorkflowName
		all   bool
		err   error
	)
	m.change(func(m *mender) {
		names, all = slices.Collect(maps.Keys(m.due)), m.all
		m.all, m.looking = false, true
		clear(m.due)
	})
	names = slices.DeleteFunc(names, func(w keep.WorkflowName) bool { return !m.ours(w) })
	if all {
		var more []keep.WorkflowName
		more, err = m.failed(ctx)
		names = append(names, more...)
	}
	m.change(func(m *mender) {
		m.looking, m.all = false, m.all || err != nil
		for _, w := range names {
			switch {
			case m.busy[w]:
				m.due[w] = true
			default:
				m.busy[w] = true
				delete(m.due, w)
				working.Go(func() { m.work(ctx, w) })
			}
		}
	})
	return err
}

// ours reports whether this host works on a workflow.
func (m *mender) ours(w keep.WorkflowName) bool {
	_, ours := m.h.Engine.Epoch(w)
	return ours && (m.only == nil || m.only[w])
}

// failed returns the workflows of this host that have runs which failed by logic.
func (m *mender) failed(ctx context.Context) (names []keep.WorkflowName, err error) {
	for r, err := range store.All(ctx, m.h.store.Runs, keep.RunFilter{Status: keep.StatusLogic, Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return nil, err
		}
		if lifecycle.NeedsScript(r) && !slices.Contains(names, r.Workflow) && m.ours(r.Workflow) {
			names = append(names, r.Workflow)
		}
	}
	return names, nil
}

// work settles the failures of a workflow.
func (m *mender) work(ctx context.Context, w keep.WorkflowName) {
	err := m.settle(ctx, w)
	if err != nil && ctx.Err() == nil {
		wait := lookAgain
		if !errors.Is(err, keep.ErrStale) { // the store failed, or the sandbox
			m.h.log.WarnContext(ctx, "repair", "workflow", w, "err", err)
			wait = repairAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	again := false
	m.change(func(m *mender) {
		if err != nil {
			m.due[w] = true
		}
		again = m.due[w]
		delete(m.busy, w)
		m.turns++
	})
	if again {
		m.kick()
	}
}

// settle leaves no run of a workflow that failed by logic without another version, a proposal or a
// question. Failures with the same signature have one of them.
func (m *mender) settle(ctx context.Context, w keep.WorkflowName) error {
	m.mu.Lock()
	with := m.with
	m.mu.Unlock()
	asked, err := m.asked(ctx, w)
	if err != nil {
		return err
	}
	runs, err := m.waiting(ctx, w)
	if err != nil {
		return err
	}
	settled := make(map[law.Signature]bool)
	for _, r := range runs {
		if s, ok := law.SignatureOf(r); ok && asked[r.ID] {
			settled[s] = true
		}
	}
	for _, r := range runs {
		s, ok := law.SignatureOf(r)
		if !ok || asked[r.ID] || settled[s] {
			continue
		}
		together, err := m.settleRun(ctx, with, r.ID)
		if err != nil {
			return err
		}
		settled[s] = together
	}
	return nil
}

// waiting returns the runs of a workflow that failed by logic, oldest first.
func (m *mender) waiting(ctx context.Context, w keep.WorkflowName) (out []keep.Run, err error) {
	for r, err := range store.All(ctx, m.h.store.Runs, keep.RunFilter{Workflow: w, Status: keep.StatusLogic, Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return nil, err
		}
		if lifecycle.NeedsScript(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b keep.Run) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// asked returns the runs of a workflow about which a question is open.
func (m *mender) asked(ctx context.Context, w keep.WorkflowName) (map[keep.RunID]bool, error) {
	out := make(map[keep.RunID]bool)
	for q, err := range store.All(ctx, m.h.store.Escalations, keep.EscalationFilter{Workflow: w, Open: true}, keep.Page{Limit: keep.MaxPage}) {
		if err != nil {
			return nil, err
		}
		out[q.Run] = true
	}
	return out, nil
}

// settleRun settles one failure. Others that are alike are then settled as well if together is true.
func (m *mender) settleRun(ctx context.Context, with *Repairs, id keep.RunID) (together bool, err error) {
	run, err := m.h.store.Run(ctx, id) // whole: it is written
	s, ok := law.SignatureOf(run)
	if err != nil || !ok || !lifecycle.NeedsScript(run) {
		return false, err
	}
	stored, rec, err := m.record(ctx, s)
	none := errors.Is(err, keep.ErrNotFound)
	if err != nil && !none {
		return true, err
	}
	if current, tried, err := m.newer(ctx, run); err != nil || tried {
		return false, err
	} else if current.After(run.Version) { // and would execute the run with its own version again
		why, err := m.replaced(ctx, stored, rec, current)
		if err != nil {
			return true, err
		}
		return true, m.h.AskAbout(ctx, run, why)
	}
	switch {
	case none && with == nil:
		return false, m.h.AskAbout(ctx, run, "")
	case with != nil && (none || rec.Stage == law.Trying):
		if rec, err = m.attempts(ctx, with, run); err != nil {
			return true, err
		}
		if rec.Stage == law.Replaced {
			m.h.Engine.Wake(run.Workflow) // another process may have deployed
			return true, keep.ErrStale    // the version that came lets the run continue
		}
		if rec.Stage == law.Proposed { // and is stored, so that it can be changed
			if stored, rec, err = m.record(ctx, s); err != nil {
				return true, err
			}
		}
	}
	if rec.Stage == law.Proposed {
		why, err := m.land(ctx, with, run, rec)
		if err != nil || why == "" {
			return true, err
		}
		rec = rec.Refuse(why)
		if err := m.put(ctx, stored, rec); err != nil {
			return true, err
		}
	}
	return true, m.h.AskAbout(ctx, run, Tried(rec))
}

// attempts has a model try, beside at most a few others.
func (m *mender) attempts(ctx context.Context, with *Repairs, run keep.Run) (law.Record, error) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return law.Record{}, context.Cause(ctx)
	}
	defer func() { <-m.slots }()
	return with.Repairer.Repair(ctx, run)
}

// newer returns the version that is current. A run that failed with another one is tried again with it,
// if it has the handler.
func (m *mender) newer(ctx context.Context, run keep.Run) (current keep.Version, tried bool, err error) {
	w, err := m.h.store.Workflow(ctx, run.Workflow)
	if err != nil || !w.Version.After(run.Version) {
		return w.Version, false, err
	}
	d, err := m.h.store.Deployment(ctx, run.Workflow, w.Version)
	if err != nil {
		return w.Version, false, err
	}
	if _, has := d.Definition.Handler(run.Handler); !has {
		return w.Version, false, nil
	}
	return w.Version, true, m.h.TryCurrent(ctx, run.ID)
}

// replaced ends a repair of a version that is not current any more, and returns what was tried; empty:
// nothing was.
func (m *mender) replaced(ctx context.Context, stored keep.Repair, rec law.Record, current keep.Version) (string, error) {
	if stored.ID == "" {
		return "", nil
	}
	if after := rec.Under(current, time.Now().UTC().Truncate(time.Millisecond)); after.Stage != rec.Stage {
		rec = after
		if err := m.put(ctx, stored, rec); err != nil {
			return "", err
		}
	}
	return Tried(rec), nil
}

// record reads what was done about a failure.
func (m *mender) record(ctx context.Context, s law.Signature) (keep.Repair, law.Record, error) {
	stored, err := m.h.store.Repair(ctx, s.ID())
	if err != nil {
		return stored, law.Record{}, err
	}
	rec, err := law.ReadRecord(stored)
	return stored, rec, err
}

// put writes a record over the one that was read.
func (m *mender) put(ctx context.Context, stored keep.Repair, rec law.Record) (err error) {
	if stored.State, err = rec.Encode(); err != nil {
		return err
	}
	return m.h.store.PutRepair(ctx, stored)
}

// land makes a proposal current, or asks a person for that, once. It returns why it is given up; empty: it
// is not.
func (m *mender) land(ctx context.Context, with *Repairs, run keep.Run, rec law.Record) (why string, err error) {
	id := rec.Signature.ID()
	all, err := m.h.store.Proposals(ctx, run.Workflow)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(all, func(p keep.Proposal) bool { return p.IsRepair() && p.By == id }); i >= 0 {
		return m.becameOf(ctx, all[i])
	}
	if with == nil {
		return "repairs were switched off before the proposal became a version", nil
	}
	a := rec.Proposal()
	w, refused, err := with.Repairer.Proposed(ctx, run, a.Source)
	if err != nil {
		return "", err
	}
	if len(refused) > 0 {
		return "the proposal may not be one any more: " + refused[0], nil
	}
	c := operator.Consent{
		Giver: operator.Giver{By: id, From: string(keep.OriginRepair)}, Repair: true, Ask: !with.Activate.Activates(a.Verdict), Why: whyAsked(run, rec),
	}
	out, err := m.h.DeployGranted(ctx, w, &run.Version, c)
	if waits, ok := errors.AsType[*operator.WaitsError](err); ok {
		return waits.Error(), nil
	}
	if _, ok := errors.AsType[*keep.VersionError](err); ok {
		return "", keep.ErrStale // somebody deployed meanwhile, which lets the run continue
	}
	if err != nil {
		return "", err
	}
	if out.Waiting == nil {
		m.h.log.WarnContext(ctx, "repaired", "workflow", run.Workflow, "version", out.Version.String(), "repair", id)
	}
	return "", nil
}

// becameOf returns why a proposal that was made into a version is given up; empty: it waits.
func (m *mender) becameOf(ctx context.Context, p keep.Proposal) (string, error) {
	switch p.State {
	case keep.ProposalWaiting:
		return "", nil
	case keep.ProposalRejected:
		why := fmt.Sprintf("a person rejected version %s", p.Version)
		q, err := m.h.store.Escalation(ctx, p.Question)
		if err == nil && q.Decision != nil {
			why = fmt.Sprintf("%s rejected version %s", q.Decision.By, p.Version)
			if q.Decision.Note != "" {
				why += ": " + q.Decision.Note
			}
		}
		if errors.Is(err, keep.ErrNotFound) {
			err = nil
		}
		return why, err
	case keep.ProposalReplaced:
		return fmt.Sprintf("another version came before %s", p.Version), nil
	}
	return fmt.Sprintf("version %s became current, and is not any more", p.Version), nil
}

// whyAsked says what a person should know who decides about a proposal: a line for each thing. What the error, the model and the
// script say stays in the lines that say so, or it could be taken for the verdict.
func whyAsked(run keep.Run, rec law.Record) string {
	a := rec.Proposal()
	lines := []string{fmt.Sprintf("run %s of %s failed: %s", run.ID, run.Handler, run.Error.Error()), "verdict: " + string(a.Verdict)}
	lines = append(lines, a.Reasons...)
	if a.Note != "" {
		lines = append(lines, "the model says, which nobody checked: "+a.Note)
	}
	return eachOnOneLine(append(lines, rec.Tried()...))
}

// eachOnOneLine joins lines of which parts came from outside.
func eachOnOneLine(lines []string) string {
	for i, line := range lines {
		lines[i] = keep.OneLine(line)
	}
	return strings.Join(lines, "\n")
}

// Tried says what a repair that is over tried, for a question: a line for each attempt, and why there is no
// other.
func Tried(rec law.Record) string {
	lines := []string{"A repair was tried, without success."}
	if len(rec.Attempts) == 0 {
		lines[0] = "No repair was tried."
	}
	lines = append(lines, rec.Tried()...)
	if rec.Why != "" {
		lines = append(lines, rec.Why)
	}
	return eachOnOneLine(lines)
}

// WaitIdle waits until the engine is idle, nothing waits for a budget that changed, and no script is being
// repaired; see engine.Engine.WaitIdle.
func (h *Host) WaitIdle(ctx context.Context) error {
	m := h.mender
	for looked := false; ; looked = true {
		m.mu.Lock()
		turns := m.turns
		m.mu.Unlock()
		if err := h.Engine.WaitIdle(ctx); err != nil {
			return err
		}
		if !looked { // what another host left may have become ours since the last look
			h.settleBudgetsOnce(ctx)
			m.change(func(m *mender) { m.all = true })
			m.kick()
		}
		m.mu.Lock()
		same, idle, moved := m.turns == turns, !m.all && !m.looking && len(m.due) == 0 && len(m.busy) == 0, m.moved
		m.mu.Unlock()
		if idle && same {
			return nil
		}
		if idle {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
