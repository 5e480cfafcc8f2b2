package commit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// putRun keeps one run of each lane open at most (law: one-at-a-time). A run that is
// new is refused beside an open one of its lane even if it is closed itself: whoever made
// it had not seen that run. The order of the cases is that of what a caller must do: read again
// first, and only then wait for the other run.
func (d *decision) putRun(r keep.Run) error {
	if err := d.own("run", string(r.ID), r.Workflow); err != nil {
		return err
	}
	old := d.Runs.Get(r.ID)
	lane := LaneKey{r.Workflow, r.Lane}
	open := d.Open.Get(lane)
	switch {
	case old == nil && r.Rev != 0, old != nil && old.Rev != r.Rev:
		return fmt.Errorf("run %s: %w", r.ID, keep.ErrStale)
	case old != nil && (old.Workflow != r.Workflow || old.Chain != r.Chain || old.Handler != r.Handler || old.Kind != r.Kind):
		return fmt.Errorf("run %s: workflow, chain, handler and kind are fixed", r.ID)
	case open != "" && open != r.ID && (old == nil || !r.Closed):
		return fmt.Errorf("run %s: %w: %s", r.ID, keep.ErrRunOpen, open)
	case old == nil:
		old = d.Runs.Put(r.ID, &Run{Row: Row{New: true}, Workflow: r.Workflow, Chain: r.Chain, Handler: r.Handler, Kind: r.Kind})
	}
	revise(&old.Row, &old.Rev)
	r.Rev = old.Rev
	old.Put = &r
	plan(&d.p.Runs, old, &old.Row)
	d.leaveLane(r)
	if !r.Closed {
		d.Open.Put(lane, r.ID)
	}
	return nil
}

// leaveLane frees the lane in which the run was open. A run whose prepare names other
// events than its trigger gets another lane.
func (d *decision) leaveLane(r keep.Run) {
	for _, e := range d.Open.list {
		if e.value == r.ID && e.key.Workflow == r.Workflow {
			d.Open.Put(e.key, "")
		}
	}
}

// closedFirst sorts runs: of two that change places in a lane one is open at a time. New
// runs keep their order.
func closedFirst(runs []*Run) {
	place := func(r *Run) int {
		if r.Put.Closed && !r.New {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(runs, func(a, b *Run) int { return cmp.Compare(place(a), place(b)) })
}

// appendLogs adds lines after those that the run has.
func (d *decision) appendLogs(lines []keep.LogLine) error {
	for _, l := range lines {
		if r := d.Runs.Get(l.Run); r == nil || r.Workflow != d.w {
			return &keep.NotFoundError{What: "run", ID: string(l.Run)}
		}
	}
	d.p.Logs = append(d.p.Logs, lines...)
	return nil
}

// appendDecision records what a person decided. What that is about need not be known: the change beside it says whether it is there.
func (d *decision) appendDecision(c keep.Decided) error {
	if c.About.Workflow == "" {
		return errors.New("a decision about what is of no workflow is recorded with what it changes, and in no commit")
	}
	if err := d.own("decision about "+string(c.About.Kind), c.About.ID, c.About.Workflow); err != nil {
		return err
	}
	d.p.Decisions = append(d.p.Decisions, c)
	return c.Validate()
}

// appendTrace adds a part after those that the run has.
func (d *decision) appendTrace(p keep.TracePart) error {
	if r := d.Runs.Get(p.Run); r == nil || r.Workflow != d.w {
		return &keep.NotFoundError{What: "run", ID: string(p.Run)}
	}
	d.p.Traces = append(d.p.Traces, p)
	return nil
}

// putMutation validates, too: a record that claims a result without being applied
// must not reach the disk by any path. A key that exists is an error of its own
// (law: once): reading again does not help, the call was made.
func (d *decision) putMutation(m keep.Mutation, moves []keep.Move) error {
	if err := d.own("mutation", string(m.Key), m.Workflow); err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return err
	}
	old := d.Mutations.Get(m.Key)
	switch {
	case old != nil && m.Rev == 0:
		return fmt.Errorf("mutation %s: %w", m.Key, keep.ErrMutationExists)
	case m.Rev != 0 && (old == nil || old.Rev != m.Rev):
		return fmt.Errorf("mutation %s: %w", m.Key, keep.ErrStale)
	case old != nil && (old.Workflow != m.Workflow || old.Tool != m.Tool || old.Item != m.Item || old.Attempt != m.Attempt):
		return fmt.Errorf("mutation %s: workflow, tool, item and attempt are fixed", m.Key)
	case old == nil:
		old = d.Mutations.Put(m.Key, &Mutation{Row: Row{New: true}, Workflow: m.Workflow, Tool: m.Tool, Item: m.Item, Attempt: m.Attempt})
	}
	revise(&old.Row, &old.Rev)
	m.Rev = old.Rev
	old.Put = &m
	plan(&d.p.Mutations, old, &old.Row)
	d.noteRival(m)
	d.noteSetting(m)
	if len(m.Spent) > 0 && m.State == keep.InFlight {
		d.AddSpending(m) // the next commit of a group is judged by what this one takes; what it gives back, by none of them
	}
	for _, move := range moves {
		if old.New {
			old.moves++
		}
		d.p.Moves = append(d.p.Moves, Move{old, old.moves, move})
	}
	return nil
}

// putItem leaves to the schema what makes an item invalid.
func (d *decision) putItem(it keep.Item) error {
	if err := d.own("item", it.ID, it.Workflow); err != nil {
		return err
	}
	key := ItemKey{it.Workflow, it.ID}
	old := d.Items.Get(key)
	if (old != nil) != (it.Rev != 0) || old != nil && old.Rev != it.Rev {
		return fmt.Errorf("item %q: %w", it.ID, keep.ErrStale)
	}
	if old == nil {
		old = d.Items.Put(key, &Item{Row: Row{New: true}})
	}
	if was := (keep.Item{Status: old.Status}); was.Over() && !it.Over() && it.Attempt == old.Attempt {
		if old.Swept >= it.Attempt || d.swept.Get(d.w) {
			return fmt.Errorf("item %q, of which calls were swept, would be done again in attempt %d: %w", it.ID, it.Attempt, keep.ErrStale)
		}
		d.reopened.Put(d.w, true)
	}
	it.Swept = max(it.Swept, old.Swept)
	old.Status, old.Attempt, old.Swept = it.Status, it.Attempt, it.Swept
	revise(&old.Row, &old.Rev)
	old.Put, old.Put.Rev = it, old.Rev
	plan(&d.p.Items, old, &old.Row)
	return nil
}

// openEscalation asks a question.
func (d *decision) openEscalation(e keep.Escalation) error {
	if err := d.own("escalation", string(e.ID), e.Workflow); err != nil {
		return err
	}
	if !e.ClosedAt.IsZero() || e.Decision != nil {
		return fmt.Errorf("escalation %s: must be open", e.ID)
	}
	if d.Escalations.Get(e.ID) != nil {
		return fmt.Errorf("escalation %s: %w", e.ID, keep.ErrStale)
	}
	q := d.Escalations.Put(e.ID, &Escalation{Row: Row{New: true}, Workflow: e.Workflow, Open: true, Put: e})
	plan(&d.p.Escalations, q, &q.Row)
	return nil
}

// closeEscalation ends an open question once, so that of two people who decide at
// once one gets keep.ErrDecided. It cancels the notices that are still to be sent.
func (d *decision) closeEscalation(c keep.CloseEscalation) error {
	if c.Decision != nil && c.Decision.Action == "" {
		return errors.New("decision without an action")
	}
	e := d.Escalations.Get(c.ID)
	if e == nil || e.Workflow != d.w {
		return &keep.NotFoundError{What: "escalation", ID: string(c.ID)}
	}
	if !e.Open {
		return fmt.Errorf("escalation %s: %w", c.ID, keep.ErrDecided)
	}
	e.Open, e.Closed, e.Put.ID = false, true, c.ID
	if c.Decision != nil {
		e.Decision = *c.Decision
	}
	plan(&d.p.Escalations, e, &e.Row)
	d.cancelNotices(c.ID)
	return nil
}

// cancelNotices ends the pending notices of a question. Their revisions rise, so that
// who is delivering one learns it when recording the outcome.
func (d *decision) cancelNotices(id keep.EscalationID) {
	for _, e := range d.Notices.list {
		if n := e.value; e.key.Escalation == id && n.Status == keep.NoticePending {
			revise(&n.Row, &n.Rev)
			n.Status, n.NextAt, n.UpdatedAt = keep.NoticeMoot, time.Time{}, d.at
			plan(&d.p.Notices, n, &n.Row)
		}
	}
}

// putNotice leaves to the schema what makes a notice invalid, but for a pending one without a time:
// the schema would not see that if the same commit closes the question.
func (d *decision) putNotice(n keep.Notice) error {
	e := d.Escalations.Get(n.Escalation)
	if e == nil || e.Workflow != d.w {
		return &keep.NotFoundError{What: "escalation", ID: string(n.Escalation)}
	}
	if (n.Status == keep.NoticePending) == n.NextAt.IsZero() {
		return fmt.Errorf("notice of %s to %s: it is %s, and its next time is %s", n.Escalation, n.Sink, n.Status, n.NextAt)
	}
	key := NoticeKey{n.Escalation, n.Sink}
	old := d.Notices.Get(key)
	switch {
	case (old != nil) != (n.Rev != 0), old != nil && old.Rev != n.Rev:
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrStale)
	case old == nil && !e.Open:
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrDecided)
	case old == nil:
		old = d.Notices.Put(key, &Notice{Row: Row{New: true}})
	}
	revise(&old.Row, &old.Rev)
	n.Rev = old.Rev
	old.Notice = n
	plan(&d.p.Notices, old, &old.Row)
	return nil
}

// deploy refuses a version that is not later than the current one: whoever deploys it
// has not seen what is running.
func (d *decision) deploy(v keep.Deployment) error {
	if err := d.own("deployment", v.Version.String(), v.Workflow); err != nil {
		return err
	}
	w := d.Workflows.Get(v.Workflow)
	if v.Version.IsZero() || w != nil && !older(w.Version, v.Version) {
		return fmt.Errorf("deploy %s: %w", v.Version, keep.ErrStale)
	}
	for _, e := range d.Proposals.list {
		if p := e.value; e.key.Workflow == d.w && (p.State == keep.ProposalWaiting || v.Version == p.Version && p.State != keep.ProposalApproved) {
			return fmt.Errorf("deploy %s beside the proposal %s (%s): %w", v.Version, p.Version, p.State, keep.ErrStale)
		}
	}
	if w == nil {
		w = d.Workflows.Put(v.Workflow, &Workflow{Row: Row{New: true}, Workflow: keep.Workflow{Name: v.Workflow, CreatedAt: d.at}})
	}
	w.Version, w.UpdatedAt = v.Version, d.at
	d.p.Workflow = w
	d.p.Deployments = append(d.p.Deployments, v)
	for _, e := range d.Unread.list {
		if unread := !v.Definition.Reads(e.key.Topic); e.key.Workflow == d.w && unread != e.value {
			d.p.Flips = append(d.p.Flips, Flip{e.key.Topic, unread})
		}
	}
	for _, f := range d.p.Flips {
		d.Unread.Put(TopicKey{d.w, f.Topic}, f.Unread)
	}
	return nil
}

// older reports whether v comes before w.
func older(v, w keep.Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor)) < 0
}

// putGrant refuses a grant that does not follow the one that holds: whoever gives it has
// not seen that one.
func (d *decision) putGrant(g keep.Grant) error {
	if err := d.own("grant", g.ID(), g.Workflow); err != nil {
		return err
	}
	if err := g.Validate(); err != nil {
		return err
	}
	w := d.Workflows.Get(d.w)
	switch {
	case w == nil:
		return &keep.NotFoundError{What: "workflow", ID: string(d.w)}
	case g.N != w.Granted+1:
		return fmt.Errorf("grant %s after %d: %w", g.ID(), w.Granted, keep.ErrStale)
	}
	w.Granted, w.UpdatedAt = g.N, d.at
	d.p.Workflow = w
	d.p.Grants = append(d.p.Grants, g)
	return nil
}

// setKV writes to a checkpoint, by which a later commit of the snapshot may have been decided. It refuses nothing.
func (d *decision) setKV(c KV) error {
	d.p.KV = append(d.p.KV, c)
	if !c.Reset {
		d.KVs.Put(KVKey{d.w, c.Producer, c.Key}, c.Value)
		return nil
	}
	for i, e := range d.KVs.list {
		if e.key.Workflow == d.w && e.key.Producer == c.Producer {
			d.KVs.list[i].value = nil
		}
	}
	return nil
}

// ifKV refuses what was decided by another value.
func (d *decision) ifKV(c keep.IfKV) error {
	if is := d.KVs.Get(KVKey{d.w, c.Producer, c.Key}); (is == nil) != (c.Value == nil) || !bytes.Equal(is, c.Value) {
		return fmt.Errorf("%s of %s is another one: %w", c.Key, c.Producer, keep.ErrStale)
	}
	return nil
}

// underGrant refuses a call that another grant may forbid than the one that allowed it.
func (d *decision) underGrant(c keep.UnderGrant) error {
	w := d.Workflows.Get(d.w)
	if w == nil || w.Granted != c.N {
		return fmt.Errorf("call under grant %s/%d: %w", d.w, c.N, keep.ErrStale)
	}
	if !c.Version.IsZero() && w.Version != c.Version {
		return fmt.Errorf("call approved for version %s of %s: %w", c.Version, d.w, keep.ErrStale)
	}
	return nil
}

// putProposal refuses a version of which the author has not seen what is current, or what
// else waits.
func (d *decision) putProposal(p keep.Proposal) error {
	if err := d.own("proposal", p.ID(), p.Workflow); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	var current keep.Version
	if w := d.Workflows.Get(d.w); w != nil {
		current = w.Version
	}
	for _, e := range d.Proposals.list {
		if before := e.value; e.key.Workflow == d.w && (before.State == keep.ProposalWaiting || before.Version == p.Version) {
			return fmt.Errorf("proposal %s beside %s (%s): %w", p.ID(), before.Version, before.State, keep.ErrStale)
		}
	}
	if p.State != keep.ProposalWaiting || p.Over != current || !older(current, p.Version) {
		return fmt.Errorf("proposal %s after %s: %w", p.ID(), current, keep.ErrStale)
	}
	put := d.Proposals.Put(VersionKey{d.w, p.Version}, &Proposal{Row: Row{New: true}, Version: p.Version, State: p.State, Put: &p})
	plan(&d.p.Proposals, put, &put.Row)
	return nil
}

// endProposal ends the wait of a proposal once: of two people who decide at once one is
// refused.
func (d *decision) endProposal(c keep.EndProposal) error {
	p := d.Proposals.Get(VersionKey{d.w, c.Version})
	if p == nil || p.State != keep.ProposalWaiting || c.State == keep.ProposalWaiting {
		return fmt.Errorf("proposal %s %s becomes %s: %w", d.w, c.Version, c.State, keep.ErrStale)
	}
	if p.State = c.State; p.New {
		p.Put.State, p.Put.EndedAt = c.State, d.at
	}
	plan(&d.p.Proposals, p, &p.Row)
	return nil
}

// setPaused pauses or resumes the workflow. A pause of one that is paused takes the place of
// the note, unless that is to be another.
func (d *decision) setPaused(c keep.SetPaused) error {
	if !c.Paused && c.Note != "" {
		return errors.New("a resume has no note")
	}
	w := d.Workflows.Get(d.w)
	if w == nil {
		return &keep.NotFoundError{What: "workflow", ID: string(d.w)}
	}
	if now := (keep.PauseState{Paused: w.Paused, Note: w.PauseNote}); c.If != nil && *c.If != now {
		return fmt.Errorf("workflow %s is not paused, or resumed, as it was to be: %w", d.w, keep.ErrStale)
	}
	if c.IsCondition() {
		return nil
	}
	w.Paused, w.PauseNote, w.UpdatedAt = c.Paused, c.Note, d.at
	d.p.Workflow = w
	return nil
}

// putHandler clears a request only up to Served: one that came after the run began
// must not get lost with the run's own commit.
func (d *decision) putHandler(c keep.PutHandler) error {
	if err := d.own("handler", string(c.State.Handler), c.State.Workflow); err != nil {
		return err
	}
	key := HandlerKey{c.State.Workflow, c.State.Handler}
	h := d.Handlers.Get(key)
	if h == nil {
		h = d.Handlers.Put(key, &Handler{Row: Row{New: true}})
	}
	requested := h.RequestedAt
	if requested.UnixMilli() <= c.Served.UnixMilli() {
		requested = time.Time{}
	}
	h.HandlerState, h.RequestedAt = c.Merged(h.HandlerState), requested
	plan(&d.p.Handlers, h, &h.Row)
	return nil
}

// requestRun looks at the open run first: "not now" is true of every handler, whether
// it exists or not.
func (d *decision) requestRun(name keep.HandlerName) error {
	for _, lane := range []keep.Lane{keep.WorkflowLane, keep.HandlerLane(name)} {
		if open := d.Open.Get(LaneKey{d.w, lane}); open != "" {
			return fmt.Errorf("run %s now: %w: %s", name, keep.ErrRunOpen, open)
		}
	}
	h := d.Handlers.Get(HandlerKey{d.w, name})
	if h == nil {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	h.RequestedAt = d.requested(h)
	plan(&d.p.Handlers, h, &h.Row)
	return nil
}

// lookAgain makes a consumer forget what it passed over. A run that began before may say
// so once more with its commit, so it also requests one that begins later.
func (d *decision) lookAgain(name keep.HandlerName) error {
	h := d.Handlers.Get(HandlerKey{d.w, name})
	if h == nil {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	h.IdleSeq, h.RequestedAt = 0, d.requested(h)
	plan(&d.p.Handlers, h, &h.Row)
	return nil
}

// requested returns when a request counts as made: after the one before it, also by a clock that is behind, or a run that knows that one
// would serve both.
func (d *decision) requested(h *Handler) time.Time {
	if next := h.RequestedAt.Add(time.Millisecond); !h.RequestedAt.IsZero() && d.at.Before(next) {
		return next
	}
	return d.at
}

// sweep forgets a chain. Whether it is over takes more records than a commit should
// load, so the store answers that with a query and the law takes the answer.
func (d *decision) sweep(c keep.Sweep) error {
	chain := d.Chains.Get(c.Chain)
	switch {
	case chain == nil || chain.swept || chain.Workflow != d.w:
		return fmt.Errorf("sweep %[1]s: %[2]w", c.Chain, &keep.NotFoundError{What: "chain", ID: string(c.Chain)})
	case !chain.Over, d.reopened.Get(d.w):
		return fmt.Errorf("sweep %s: %w", c.Chain, keep.ErrStale)
	}
	chain.swept = true // it is gone for what comes after it
	d.swept.Put(d.w, true)
	d.p.Forget = append(d.p.Forget, c.Chain)
	return d.setKV(KV{SetKV: keep.SetKV{Producer: keep.PaidAnswers(c.Chain)}, Reset: true})
}
