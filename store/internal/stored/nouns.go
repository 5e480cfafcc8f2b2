package stored

import (
	"github.com/keep-run/keep"
)

// The nouns that both SQL stores keep in tables of the same columns. What may be large comes
// last, as in the tables: SQLite finds a column by walking over those before it.
var (
	Workflows = newNoun(`name major minor paused pause_note granted created_at updated_at`, func(w *keep.Workflow) []any {
		return []any{(*string)(&w.Name), &w.Version.Major, &w.Version.Minor, &w.Paused, &w.PauseNote, &w.Granted, &w.CreatedAt, &w.UpdatedAt}
	})

	Deployments = newNoun(`workflow major minor hash entry definition created_at *code *map`, func(d *keep.Deployment) []any {
		return []any{(*string)(&d.Workflow), &d.Version.Major, &d.Version.Minor, &d.Hash, &d.Entry, &d.Definition, &d.CreatedAt, &d.Code, &d.Map}
	})

	Grants = newNoun(`workflow n major minor tools given_by given_from given_at taken_by taken_at`, func(g *keep.Grant) []any {
		return []any{(*string)(&g.Workflow), &g.N, &g.Version.Major, &g.Version.Minor, &g.Tools, &g.GivenBy, &g.From, &g.GivenAt, &g.TakenBy, &g.TakenAt}
	})

	Proposals = newNoun(`workflow major minor over_major over_minor tools proposed_by proposed_from question state ended_at
		hash entry definition created_at *code *map`, func(p *keep.Proposal) []any {
		return []any{(*string)(&p.Workflow), &p.Version.Major, &p.Version.Minor, &p.Over.Major, &p.Over.Minor, &p.Tools, &p.By, &p.From,
			(*string)(&p.Question), (*string)(&p.State), &p.EndedAt, &p.Hash, &p.Entry, &p.Definition, &p.CreatedAt, &p.Code, &p.Map}
	})

	Handlers = newNoun(`workflow name kind idle_seq wake_at next_at requested_at last_run last_at`, func(h *keep.HandlerState) []any {
		return []any{(*string)(&h.Workflow), (*string)(&h.Handler), (*string)(&h.Kind), &h.IdleSeq, &h.WakeAt, &h.NextAt,
			&h.RequestedAt, (*string)(&h.LastRun), &h.LastAt}
	})

	Inputs = newNoun(`id workflow source type external_id title status created_at`, func(in *keep.Input) []any {
		return []any{(*string)(&in.ID), (*string)(&in.Workflow), &in.Source, &in.Type, &in.ExternalID, &in.Title, (*string)(&in.Status), &in.CreatedAt}
	})

	Events = newNoun(`seq workflow topic message_id status reserved_by created_by created_at updated_at caused_by redone *payload`, func(e *keep.Event) []any {
		return []any{&e.Seq, (*string)(&e.Workflow), (*string)(&e.Topic), (*string)(&e.MessageID), (*string)(&e.Status),
			(*string)(&e.ReservedBy), (*string)(&e.CreatedBy), &e.CreatedAt, &e.UpdatedAt, &e.CausedBy, &e.Redone, &e.Payload}
	})

	Runs = newNoun(`id chain retry_of workflow major minor handler kind phase status closed rev
		trigger_topic trigger_message mutation title wake_at seen_seq retry_at retries crashes
		created_at updated_at error reservations *prepared lane idle`, func(r *keep.Run) []any {
		return []any{
			(*string)(&r.ID), (*string)(&r.Chain), (*string)(&r.RetryOf), (*string)(&r.Workflow), &r.Version.Major, &r.Version.Minor,
			(*string)(&r.Handler), (*string)(&r.Kind), (*string)(&r.Phase), (*string)(&r.Status), &r.Closed, &r.Rev,
			(*string)(&r.Trigger.Topic), (*string)(&r.Trigger.MessageID), (*string)(&r.Mutation), &r.Title, &r.WakeAt, &r.SeenSeq,
			&r.RetryAt, &r.Retries, &r.Crashes, &r.CreatedAt, &r.UpdatedAt, &r.Error, &r.Reservations, &r.Prepared, (*string)(&r.Lane), &r.Idle,
		}
	})

	Decisions = newNoun(`workflow kind topic id at action who source note`, func(c *keep.Decided) []any {
		d := &c.Decision
		return []any{(*string)(&c.About.Workflow), (*string)(&c.About.Kind), (*string)(&c.About.Topic), &c.About.ID, &d.At, (*string)(&d.Action), &d.By, &d.From, &d.Note}
	})

	LogLines = newNoun(`run at level text place`, func(l *keep.LogLine) []any {
		return []any{(*string)(&l.Run), &l.At, &l.Level, &l.Text, &l.Where}
	})

	TraceParts = newNoun(`run at *data`, func(p *keep.TracePart) []any {
		return []any{(*string)(&p.Run), &p.At, &p.Data}
	})

	Counters = newNoun(`step at workflow committed idle failed waiting asked took`, func(c *keep.Counter) []any {
		return []any{(*string)(&c.Step), &c.At, (*string)(&c.Workflow), &c.Committed, &c.Idle, &c.Failed, &c.Waiting, &c.Asked, &c.Took}
	})

	Items = newNoun(`workflow id title status attempt swept rev created_at updated_at`, func(it *keep.Item) []any {
		return []any{(*string)(&it.Workflow), &it.ID, &it.Title, (*string)(&it.Status), &it.Attempt, &it.Swept, &it.Rev, &it.CreatedAt, &it.UpdatedAt}
	})

	Mutations = newNoun(`key workflow run item attempt tool connector level target subkey
		payload_hash token title state warning attempts reconcile_attempts next_reconcile_at
		call_deadline settle_after can_reconcile resolved_by rev created_at updated_at pin_hash doubted spent_at spent
		error *identity *payload *result *sent_as`, func(m *keep.Mutation) []any {
		return []any{
			(*string)(&m.Key), (*string)(&m.Workflow), (*string)(&m.Run), &m.Item, &m.Attempt, (*string)(&m.Tool), &m.Connector,
			(*string)(&m.Level), &m.Target, &m.Subkey, &m.PayloadHash, &m.Token, &m.Title, (*string)(&m.State), &m.Warning,
			&m.Attempts, &m.ReconcileAttempts, &m.NextReconcileAt, &m.CallDeadline, (*int64)(&m.SettleAfter), &m.CanReconcile,
			&m.ResolvedBy, &m.Rev, &m.CreatedAt, &m.UpdatedAt, &m.PinHash, &m.Doubted, &m.SpentAt, &m.Spent,
			&m.Error, &m.Identity, &m.Payload, &m.Result, &m.Pin,
		}
	})

	Moves = newNoun(`at who from_state to_state evidence detail`, func(m *keep.Move) []any {
		return []any{&m.At, &m.By, (*string)(&m.From), (*string)(&m.To), &m.Evidence, &m.Detail}
	})

	Escalations = newNoun(`id kind workflow run mutation item title question attempted why
		can_verify verify_by_hand choices payload_hash created_at connection budget approval expires_at
		closed_at decision decided_by decided_from decision_note decided_at *decided_result`, func(e *Escalation) []any {
		d := &e.Decided
		return []any{
			(*string)(&e.ID), (*string)(&e.Kind), (*string)(&e.Workflow), (*string)(&e.Run), (*string)(&e.Mutation), &e.Item,
			&e.Title, &e.Question, &e.Attempted, &e.Why, &e.CanVerify, &e.VerifyByHand, &e.Choices, &e.PayloadHash, &e.CreatedAt, &e.Connection, &e.Budget, &e.Approval, &e.ExpiresAt,
			&e.ClosedAt, (*string)(&d.Action), &d.By, &d.From, &d.Note, &d.At, &d.Result,
		}
	})

	Notices = newNoun(`escalation sink status attempts next_at error updated_at rev`, func(n *keep.Notice) []any {
		return []any{(*string)(&n.Escalation), (*string)(&n.Sink), (*string)(&n.Status), &n.Attempts, &n.NextAt, &n.Error, &n.UpdatedAt, &n.Rev}
	})

	Credentials = newNoun(`id kind hash name role parent created_at expires_at used_at`, func(c *keep.Credential) []any {
		return []any{&c.ID, (*string)(&c.Kind), &c.Hash, &c.Name, &c.Role, &c.Parent, &c.CreatedAt, &c.ExpiresAt, &c.UsedAt}
	})

	Accounts = newNoun(`kind name pack style subject scopes generation renews status expires_at lifetime error
		connected_by connected_at last_refresh_at last_used_at sealed refreshes lease_host lease_until rev`, func(a *keep.Account) []any {
		return []any{(*string)(&a.Kind), &a.Name, &a.Pack, &a.Style, &a.Subject, &a.Scopes, &a.Generation, &a.Renews, (*string)(&a.Status), &a.ExpiresAt,
			&a.Lifetime, &a.Error, &a.ConnectedBy, &a.ConnectedAt, &a.LastRefreshAt, &a.LastUsedAt, &a.Sealed, &a.Refreshes, &a.LeaseHost, &a.LeaseUntil, &a.Rev}
	})

	Gates = newNoun(`connection state rev`, func(g *keep.Gate) []any { return []any{&g.Connection, (*Text)(&g.State), &g.Rev} })

	Repairs = newNoun(`id workflow created_at rev state`, func(r *keep.Repair) []any {
		return []any{&r.ID, (*string)(&r.Workflow), &r.CreatedAt, &r.Rev, (*Text)(&r.State)}
	})

	Hooks = newNoun(`name accepted repeated refused last_at last_refused_at last_refusal`, func(c *keep.HookCount) []any {
		return []any{&c.Name, &c.Accepted, &c.Repeated, &c.Refused, &c.LastAt, &c.LastRefusedAt, &c.LastRefusal}
	})
)

// An Escalation is a row of a question: its decision has columns, which are empty without
// one.
type Escalation struct {
	keep.Escalation
	Decided keep.Decision
}

// Plain returns the question.
func (e Escalation) Plain() keep.Escalation {
	if e.Decided.Action != "" {
		e.Decision = &e.Decided
	}
	return e.Escalation
}
