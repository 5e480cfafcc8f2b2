package storetest

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

var noticePromises = []promise{
	{"an open question is owed to every sink until the sink takes it", func(w *world) {
		ask(w, "esc_1", "esc_2")
		n := keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: w.at.Add(time.Minute), UpdatedAt: w.at}
		w.commit("w", keep.PutNotice{Notice: n})
		n.Rev = 1
		owed := get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))
		w.same("Owed", notices(owed), []keep.Notice{{Escalation: "esc_2", Sink: "webhook"}, n})
		w.same("its question", owed[1].Escalation, get[keep.Escalation](w)(w.Escalation(w.ctx, "esc_1")))
		w.same("the other sink", notices(get[[]keep.Owed](w)(w.Owed(w.ctx, "on_escalation", 10))),
			[]keep.Notice{{Escalation: "esc_1", Sink: "on_escalation"}, {Escalation: "esc_2", Sink: "on_escalation"}})
		w.same("limited", notices(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 1))), []keep.Notice{{Escalation: "esc_2", Sink: "webhook"}})
		n.Status, n.NextAt, n.Error = keep.NoticeDelivered, time.Time{}, odd
		w.commit("w", keep.PutNotice{Notice: n})
		n.Rev = 2
		w.same("delivered", notices(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))), []keep.Notice{{Escalation: "esc_2", Sink: "webhook"}})
		w.same("Notices", get[[]keep.Notice](w)(w.Notices(w.ctx, "esc_1")), []keep.Notice{n})
		gone := keep.Notice{Escalation: "esc_2", Sink: "webhook", Status: keep.NoticeGivenUp, Attempts: 3, UpdatedAt: w.at}
		w.commit("w", keep.PutNotice{Notice: gone})
		w.same("given up", notices(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))), []keep.Notice{})
		gone.Rev = 1
		w.same("GivenUp", get[[]keep.Notice](w)(w.GivenUp(w.ctx, 10)), []keep.Notice{gone})
		w.commit("w", keep.CloseEscalation{ID: "esc_2"})
		w.same("of a closed question", len(get[[]keep.Notice](w)(w.GivenUp(w.ctx, 10))), 0)
	}},
	{"what is pending is owed in the order of its next attempts", func(w *world) {
		for i, minutes := range []int{3, 1, 2} {
			id := keep.EscalationID(fmt.Sprintf("esc_%d", i))
			ask(w, id)
			w.commit("w", keep.PutNotice{Notice: keep.Notice{Escalation: id, Sink: "webhook", Status: keep.NoticePending, Attempts: 1,
				NextAt: w.at.Add(time.Duration(minutes) * time.Minute), UpdatedAt: w.at}})
		}
		var ids []keep.EscalationID
		for _, o := range get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10)) {
			ids = append(ids, o.Escalation.ID)
		}
		w.same("Owed", ids, []keep.EscalationID{"esc_1", "esc_2", "esc_0"})
	}},
	{"a closed question is owed to no sink", func(w *world) {
		ask(w, "esc_1", "esc_2")
		n := keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: w.at, UpdatedAt: w.at}
		told := keep.Notice{Escalation: "esc_1", Sink: "on_escalation", Status: keep.NoticeDelivered, Attempts: 1, UpdatedAt: w.at}
		w.commit("w", keep.PutNotice{Notice: n}, keep.PutNotice{Notice: told})
		w.commit("w", keep.CloseEscalation{ID: "esc_1"}, keep.CloseEscalation{ID: "esc_2"})
		w.same("Owed", notices(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))), []keep.Notice{})
		moot := n
		moot.Status, moot.NextAt, moot.UpdatedAt, moot.Rev = keep.NoticeMoot, time.Time{}, w.at, 2
		told.Rev = 1
		w.same("Notices", get[[]keep.Notice](w)(w.Notices(w.ctx, "esc_1")), []keep.Notice{told, moot})
		n.Rev, n.Status, n.NextAt = 1, keep.NoticeDelivered, time.Time{}
		w.refuse("w", is(keep.ErrStale), keep.PutNotice{Notice: n})
		fresh := keep.Notice{Escalation: "esc_2", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: w.at}
		w.refuse("w", is(keep.ErrDecided), keep.PutNotice{Notice: fresh})
	}},
	{"a notice is written only on top of the revision that was read", func(w *world) {
		ask(w, "esc_1")
		n := keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: w.at}
		w.commit("w", keep.PutNotice{Notice: n})
		w.refuse("w", is(keep.ErrStale), keep.PutNotice{Notice: n})
		n.Rev = 2
		w.refuse("w", is(keep.ErrStale), keep.PutNotice{Notice: n})
		n.Rev = 1
		w.refuse("other", notFound("escalation", "esc_1"), keep.PutNotice{Notice: n})
		n.Escalation, n.Rev = "esc_0", 0
		w.refuse("w", notFound("escalation", "esc_0"), keep.PutNotice{Notice: n})
	}},
	{"a notice that makes no sense is refused", func(w *world) {
		ask(w, "esc_1")
		for _, spoil := range []func(*keep.Notice){
			func(n *keep.Notice) { n.Sink = "" },
			func(n *keep.Notice) { n.Attempts = 0 },
			func(n *keep.Notice) { n.Status = "shouted" },
			func(n *keep.Notice) { n.NextAt = time.Time{} },
			func(n *keep.Notice) { n.Status = keep.NoticeDelivered },
		} {
			n := keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: w.at}
			spoil(&n)
			w.refuse("w", invalid, keep.PutNotice{Notice: n})
		}
		n := keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1}
		w.refuse("w", invalid, keep.PutNotice{Notice: n}, keep.CloseEscalation{ID: "esc_1"}) // although it ends with it
	}},
}

// ask opens questions of workflow w.
func ask(w *world, ids ...keep.EscalationID) {
	w.Helper()
	for _, id := range ids {
		w.commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskLogic, Workflow: "w"}})
	}
}

func notices(owed []keep.Owed) []keep.Notice {
	out := make([]keep.Notice, 0, len(owed))
	for _, o := range owed {
		out = append(out, o.Notice)
	}
	return out
}
