package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// putNotice writes a notice if its stored revision is the one that was read.
func (t *tx) putNotice(n keep.Notice) error {
	e, ok := t.s.escalations[n.Escalation]
	if !ok || e.v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "escalation", ID: string(n.Escalation)}
	}
	if n.Sink == "" || n.Attempts < 1 || !slices.Contains(keep.NoticeStatuses(), n.Status) ||
		(n.Status == keep.NoticePending) == n.NextAt.IsZero() {
		return fmt.Errorf("notice of %s to %q: status %q, attempts %d, next at %s", n.Escalation, n.Sink, n.Status, n.Attempts, n.NextAt)
	}
	key := noticeKey{n.Escalation, n.Sink}
	old, exists := t.s.notices[key]
	switch {
	case exists != (n.Rev != 0), exists && old.Rev != n.Rev:
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrStale)
	case !exists && !e.v.ClosedAt.IsZero():
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrDecided)
	}
	n.Rev++
	put(t, t.s.notices, key, n)
	return nil
}

// cancelNotices ends the pending notices of a question that is closed now.
func (t *tx) cancelNotices(id keep.EscalationID) {
	for key, n := range t.s.notices {
		if key.escalation == id && n.Status == keep.NoticePending {
			n.Status, n.NextAt, n.UpdatedAt = keep.NoticeMoot, time.Time{}, t.at
			n.Rev++
			put(t, t.s.notices, key, n)
		}
	}
}

// Owed returns up to limit of the open questions that a sink has not taken;
// see store.Notices.
func (s *Store) Owed(ctx context.Context, sink keep.Sink, limit int) ([]keep.Owed, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var fresh []row[keep.Escalation]
	var pending []keep.Owed
	for id, e := range s.escalations {
		n, tried := s.notices[noticeKey{id, sink}]
		switch {
		case !e.v.ClosedAt.IsZero():
		case !tried:
			fresh = append(fresh, e)
		case n.Status == keep.NoticePending:
			pending = append(pending, keep.Owed{Escalation: copyEscalation(e.v), Notice: n})
		}
	}
	slices.SortFunc(fresh, func(a, b row[keep.Escalation]) int { return cmp.Compare(a.n, b.n) })
	slices.SortFunc(pending, func(a, b keep.Owed) int {
		return cmp.Or(a.Notice.NextAt.Compare(b.Notice.NextAt), cmp.Compare(s.escalations[a.Escalation.ID].n, s.escalations[b.Escalation.ID].n))
	})
	owed := make([]keep.Owed, 0, len(fresh)+len(pending))
	for _, e := range fresh {
		owed = append(owed, keep.Owed{Escalation: copyEscalation(e.v), Notice: keep.Notice{Escalation: e.v.ID, Sink: sink}})
	}
	owed = append(owed, pending...)
	return owed[:min(limit, len(owed))], context.Cause(ctx)
}

// Notices returns what became of telling people of a question, sorted by sink.
func (s *Store) Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []keep.Notice
	for key, n := range s.notices {
		if key.escalation == id {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b keep.Notice) int { return cmp.Compare(a.Sink, b.Sink) })
	return out, context.Cause(ctx)
}

// copyNotice cuts the times of a notice.
// GivenUp returns up to limit of the notices of open questions that are not tried
// again, those of the newest question first, then by sink.
func (s *Store) GivenUp(ctx context.Context, limit int) ([]keep.Notice, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []keep.Notice
	for key, n := range s.notices {
		if n.Status == keep.NoticeGivenUp && s.escalations[key.escalation].v.ClosedAt.IsZero() {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b keep.Notice) int {
		return cmp.Or(cmp.Compare(s.escalations[b.Escalation].n, s.escalations[a.Escalation].n), cmp.Compare(a.Sink, b.Sink))
	})
	return out[:min(limit, len(out))], context.Cause(ctx)
}

func copyNotice(n keep.Notice) keep.Notice {
	n.NextAt, n.UpdatedAt = clean(n.NextAt), clean(n.UpdatedAt)
	return n
}
