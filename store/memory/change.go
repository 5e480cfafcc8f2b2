package memory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// apply makes one change. What it refuses is said at the types in keep.
func (t *tx) apply(change keep.Change) error {
	switch c := change.(type) {
	case keep.PutRun:
		return t.putRun(copyRun(c.Run))
	case keep.PutMutation:
		return t.putMutation(copyMutation(c.Mutation), c.Moves)
	case keep.Unlike:
		return t.unlike(c)
	case keep.Setting:
		return t.setting(c)
	case keep.Within:
		return t.within(c)
	case keep.Reserve:
		return t.reserve(c)
	case keep.Release:
		return t.release(c)
	case keep.Finish:
		return t.finish(c)
	case keep.Publish:
		return t.publish(copyEvent(c.Event), c.New)
	case keep.SkipEvents:
		return t.skipEvents(c)
	case keep.UnskipEvents:
		return t.unskipEvents(c)
	case keep.RedoEvents:
		return t.redoEvents(c)
	case keep.PutInput:
		return t.putInput(copyInput(c.Input))
	case keep.SkipInput:
		return t.skipInput(c.Input)
	case keep.UnskipInput:
		return t.unskipInput(c.Input)
	case keep.SetKV:
		return t.setKV(c)
	case keep.ResetKV:
		return t.resetKV(c.Producer)
	case keep.IfKV:
		return t.ifKV(c)
	case keep.PutHandler:
		return t.putHandler(c)
	case keep.RequestRun:
		return t.requestRun(c.Handler)
	case keep.LookAgain:
		return t.lookAgain(c.Handler)
	case keep.Deploy:
		return t.deploy(copyDeployment(c.Deployment))
	case keep.SetPaused:
		return t.setPaused(c)
	case keep.AppendLogs:
		return t.appendLogs(c.Lines)
	case keep.AppendTrace:
		return t.appendTrace(c.Part)
	case keep.OpenEscalation:
		return t.openEscalation(copyEscalation(c.Escalation))
	case keep.CloseEscalation:
		return t.closeEscalation(c)
	case keep.PutNotice:
		return t.putNotice(copyNotice(c.Notice))
	case keep.PutItem:
		return t.putItem(copyItem(c.Item))
	case keep.Sweep:
		return t.sweep(c)
	}
	return t.applyConsent(change)
}

// applyConsent makes one change of what the workflow may do, or records what a person decided.
func (t *tx) applyConsent(change keep.Change) error {
	switch c := change.(type) {
	case keep.AppendDecision:
		return t.appendDecision(c.Decided)
	case keep.PutGrant:
		return t.putGrant(copyGrant(c.Grant))
	case keep.UnderGrant:
		return t.underGrant(c)
	case keep.PutProposal:
		return t.putProposal(copyProposal(c.Proposal))
	case keep.EndProposal:
		return t.endProposal(c)
	}
	return fmt.Errorf("unknown change %T", change)
}

// putRun writes a run if its stored revision is the one that was read, and keeps
// one run of each lane open at most.
func (t *tx) putRun(r keep.Run) error {
	if err := t.own("run", r.ID, r.Workflow); err != nil {
		return err
	}
	if err := soundRun(r); err != nil {
		return err
	}
	old, exists := t.s.runs[r.ID]
	lane := laneKey{r.Workflow, r.Lane}
	open, isOpen := t.s.open[lane]
	switch {
	case exists != (r.Rev != 0), exists && old.v.Rev != r.Rev:
		return fmt.Errorf("run %s: %w", r.ID, keep.ErrStale)
	case exists && (old.v.Workflow != r.Workflow || old.v.Chain != r.Chain ||
		old.v.Handler != r.Handler || old.v.Kind != r.Kind):
		return fmt.Errorf("run %s: workflow, chain, handler and kind are fixed", r.ID)
	case isOpen && open != r.ID && (!exists || !r.Closed):
		return fmt.Errorf("run %s: %w: %s", r.ID, keep.ErrRunOpen, open)
	}
	n := old.n
	if !exists {
		n = t.next()
	}
	r.Rev++
	put(t, t.s.runs, r.ID, row[keep.Run]{n, r})
	if was := (laneKey{r.Workflow, old.v.Lane}); exists && t.s.open[was] == r.ID {
		drop(t, t.s.open, was)
	}
	if !r.Closed {
		put(t, t.s.open, lane, r.ID)
	}
	return nil
}

// soundRun refuses a run that no history could have led to.
func soundRun(r keep.Run) error {
	ofConsumer := r.Kind == keep.Consumer
	switch {
	case r.ID == "" || r.Chain == "" || r.Handler == "":
		return fmt.Errorf("run %s: id, chain and handler required", r.ID)
	case !slices.Contains(keep.Kinds(), r.Kind):
		return fmt.Errorf("run %s: unknown kind %q", r.ID, r.Kind)
	case !slices.Contains(keep.Phases(), r.Phase):
		return fmt.Errorf("run %s: unknown phase %q", r.ID, r.Phase)
	case !slices.Contains(keep.RunStatuses(), r.Status):
		return fmt.Errorf("run %s: unknown status %q", r.ID, r.Status)
	case ofConsumer && r.Phase == keep.Running, !ofConsumer && r.Phase != keep.Running && r.Phase != keep.Committed:
		return fmt.Errorf("run %s: a %s is never %s", r.ID, r.Kind, r.Phase)
	case (r.Status == keep.StatusCommitted) != (r.Phase == keep.Committed):
		return fmt.Errorf("run %s: status %s in phase %s", r.ID, r.Status, r.Phase)
	case !r.Closed && (r.Status == keep.StatusCommitted || r.Status == keep.StatusAborted):
		return fmt.Errorf("run %s: %s and not closed", r.ID, r.Status)
	case r.Closed && r.Status == keep.StatusActive:
		return fmt.Errorf("run %s: closed and active", r.ID)
	case r.Idle && r.Status != keep.StatusCommitted:
		return fmt.Errorf("run %s: idle and %s", r.ID, r.Status)
	case r.Retries < 0 || r.Crashes < 0:
		return fmt.Errorf("run %s: negative count", r.ID)
	}
	return nil
}

// putMutation writes a record if its stored revision is the one that was read,
// and appends its moves. A key is never used for another record.
func (t *tx) putMutation(m keep.Mutation, moves []keep.Move) error {
	if err := t.own("mutation", m.Key, m.Workflow); err != nil {
		return err
	}
	if err := soundMutation(m); err != nil {
		return err
	}
	old, exists := t.s.mutations[m.Key]
	switch {
	case m.Rev == 0 && exists:
		return fmt.Errorf("mutation %s: %w", m.Key, keep.ErrMutationExists)
	case m.Rev != 0 && (!exists || old.v.Rev != m.Rev):
		return fmt.Errorf("mutation %s: %w", m.Key, keep.ErrStale)
	case exists && (old.v.Workflow != m.Workflow || old.v.Tool != m.Tool ||
		old.v.Item != m.Item || old.v.Attempt != m.Attempt):
		return fmt.Errorf("mutation %s: workflow, tool, item and attempt are fixed", m.Key)
	}
	n := old.n
	if !exists {
		n = t.next()
	}
	m.Rev++
	put(t, t.s.mutations, m.Key, row[keep.Mutation]{n, m})
	history := slices.Clone(t.s.moves[m.Key])
	for _, move := range moves {
		history = append(history, copyMove(move))
	}
	put(t, t.s.moves, m.Key, history)
	return nil
}

// unlike refuses a call if another one of the same identity may have had its effect.
func (t *tx) unlike(c keep.Unlike) error {
	if m, found := t.s.rival(c); found {
		return &keep.RivalError{Key: c.Key, Rival: m.Key}
	}
	return nil
}

// setting refuses a call that would undo a later one of its identity, or come into one that is being sent again.
func (t *tx) setting(c keep.Setting) error {
	if m, found := t.s.barring(c, t.at); found {
		return &keep.RivalError{Key: c.Key, Rival: m.Key}
	}
	return nil
}

// soundMutation refuses a record that no history could have led to.
func soundMutation(m keep.Mutation) error {
	switch err := m.Validate(); {
	case err != nil:
		return err
	case !slices.Contains(keep.MutationStates(), m.State):
		return fmt.Errorf("mutation %s: unknown state %q", m.Key, m.State)
	case !slices.Contains(keep.Levels(), m.Level):
		return fmt.Errorf("mutation %s: unknown level %q", m.Key, m.Level)
	case (m.Item == "") != (m.Attempt == 0) || m.Attempt < 0:
		return fmt.Errorf("mutation %s: attempt %d of item %q", m.Key, m.Attempt, m.Item)
	case m.ReconcileAttempts < 0:
		return fmt.Errorf("mutation %s: negative count", m.Key)
	}
	return nil
}

// putItem writes an item if its stored revision is the one that was read.
func (t *tx) putItem(it keep.Item) error {
	if err := t.own("item", it.ID, it.Workflow); err != nil {
		return err
	}
	if it.ID == "" || it.Attempt < 1 || !slices.Contains(keep.ItemStatuses(), it.Status) {
		return fmt.Errorf("item %q: status %q, attempt %d", it.ID, it.Status, it.Attempt)
	}
	key := itemKey{it.Workflow, it.ID}
	old, exists := t.s.items[key]
	if exists != (it.Rev != 0) || exists && old.v.Rev != it.Rev {
		return fmt.Errorf("item %q: %w", it.ID, keep.ErrStale)
	}
	if over(old.v) && !over(it) && it.Attempt == old.v.Attempt && it.Attempt <= old.v.Swept {
		return fmt.Errorf("item %q: calls of attempt %d were swept: %w", it.ID, it.Attempt, keep.ErrStale)
	}
	it.Swept = max(it.Swept, old.v.Swept)
	n := old.n
	if !exists {
		n = t.next()
	}
	it.Rev++
	put(t, t.s.items, key, row[keep.Item]{n, it})
	return nil
}

// over reports whether nothing more is done for an item by itself.
func over(it keep.Item) bool { return it.Status == keep.ItemDone || it.Status == keep.ItemSkipped }

// appendDecision adds what a person decided.
func (t *tx) appendDecision(d keep.Decided) error {
	if err := t.own("decision", keep.MessageID(d.About.ID), d.About.Workflow); err != nil {
		return err
	}
	if d.About.Workflow == "" {
		return errors.New("a decision about what is of no workflow is in no commit")
	}
	put(t, t.s.decided, d.About, append(slices.Clone(t.s.decided[d.About]), row[keep.Decided]{t.next(), copyDecided(d)}))
	return d.Validate()
}

// copyDecided returns d as stores keep it.
func copyDecided(d keep.Decided) keep.Decided {
	d.Decision = keep.Decision{Action: d.Decision.Action, By: d.Decision.By, From: d.Decision.From, Note: d.Decision.Note, At: clean(d.Decision.At)}
	return d
}

// validActs returns what is wrong with decisions that are recorded with a change which is no commit.
func validActs(acts []keep.Decided) error {
	for _, d := range acts {
		if err := d.Validate(); err != nil {
			return err
		}
		if d.About.Workflow != "" {
			return fmt.Errorf("a decision of workflow %s beside its commits", d.About.Workflow)
		}
	}
	return nil
}

// record adds decisions that are valid; the caller holds mu.
func (s *Store) record(acts []keep.Decided) {
	for _, d := range acts {
		s.rows++
		s.decided[d.About] = append(s.decided[d.About], row[keep.Decided]{s.rows, copyDecided(d)})
	}
}

// appendLogs adds lines to runs of the workflow.
func (t *tx) appendLogs(lines []keep.LogLine) error {
	for _, l := range lines {
		if r, ok := t.s.runs[l.Run]; !ok || r.v.Workflow != t.workflow {
			return &keep.NotFoundError{What: "run", ID: string(l.Run)}
		}
		put(t, t.s.logs, l.Run, append(slices.Clone(t.s.logs[l.Run]), copyLogLine(l)))
	}
	return nil
}

// appendTrace adds a part to what is kept of a run of the workflow.
func (t *tx) appendTrace(p keep.TracePart) error {
	if r, ok := t.s.runs[p.Run]; !ok || r.v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "run", ID: string(p.Run)}
	}
	if p.Data == nil {
		return fmt.Errorf("trace of run %s: nothing was recorded", p.Run)
	}
	p.At, p.Data = clean(p.At), slices.Clone(p.Data)
	put(t, t.s.traces, p.Run, append(slices.Clone(t.s.traces[p.Run]), row[keep.TracePart]{t.next(), p}))
	return nil
}

// openEscalation asks a question whose id is new.
func (t *tx) openEscalation(e keep.Escalation) error {
	if err := t.own("escalation", e.ID, e.Workflow); err != nil {
		return err
	}
	if e.ID == "" || !e.ClosedAt.IsZero() || e.Decision != nil || !slices.Contains(keep.EscalationKinds(), e.Kind) {
		return fmt.Errorf("escalation %s: kind %q, must be open", e.ID, e.Kind)
	}
	if _, exists := t.s.escalations[e.ID]; exists {
		return fmt.Errorf("escalation %s: %w", e.ID, keep.ErrStale)
	}
	put(t, t.s.escalations, e.ID, row[keep.Escalation]{t.next(), e})
	return nil
}

// closeEscalation ends a question, once.
func (t *tx) closeEscalation(c keep.CloseEscalation) error {
	e, ok := t.s.escalations[c.ID]
	if !ok || e.v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "escalation", ID: string(c.ID)}
	}
	if !e.v.ClosedAt.IsZero() {
		return fmt.Errorf("escalation %s: %w", c.ID, keep.ErrDecided)
	}
	if c.Decision != nil && c.Decision.Action == "" {
		return errors.New("decision without an action")
	}
	e.v.ClosedAt = t.at
	e.v.Decision = copyDecision(c.Decision)
	put(t, t.s.escalations, c.ID, e)
	t.cancelNotices(c.ID)
	return nil
}
