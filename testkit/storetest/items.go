package storetest

import (
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
)

var itemPromises = []promise{
	{"an item is read back as it was written, to the byte", func(w *world) {
		it := keep.Item{Workflow: "w", ID: odd, Title: odd, Status: keep.ItemFailed, Attempt: 3, CreatedAt: oddTime, UpdatedAt: oddTime.Add(time.Hour)}
		w.commit("w", keep.PutItem{Item: it})
		it.Rev = 1
		it.CreatedAt, it.UpdatedAt = kept(it.CreatedAt), kept(it.UpdatedAt)
		w.same("Item", get[keep.Item](w)(w.Item(w.ctx, "w", odd)), it)
		it.Title, it.Status, it.Attempt, it.UpdatedAt = "later", keep.ItemDone, 4, w.at
		w.commit("w", keep.PutItem{Item: it})
		it.Rev = 2
		w.same("Item", get[keep.Item](w)(w.Item(w.ctx, "w", odd)), it)
		w.same("Items", page[keep.Item](w)(w.Items(w.ctx, keep.ItemFilter{}, keep.Page{})), []keep.Item{it})
	}},
	{"an item is written only on top of the revision that was read", func(w *world) {
		it := keep.Item{Workflow: "w", ID: "i", Status: keep.ItemProcessing, Attempt: 1}
		w.commit("w", keep.PutItem{Item: it})
		for _, rev := range []int{0, 2, -1} {
			it.Rev = rev
			w.refuse("w", is(keep.ErrStale), keep.PutItem{Item: it})
		}
		w.refuse("w", is(keep.ErrStale), keep.PutItem{Item: keep.Item{Workflow: "w", ID: "unknown", Status: keep.ItemDone, Attempt: 1, Rev: 1}})
		w.commit("other", keep.PutItem{Item: keep.Item{Workflow: "other", ID: "i", Status: keep.ItemDone, Attempt: 1}})
	}},
	{"an item that no history could lead to is refused", func(w *world) {
		for _, it := range []keep.Item{
			{Workflow: "w", ID: "", Status: keep.ItemDone, Attempt: 1},
			{Workflow: "w", ID: "i", Status: "well", Attempt: 1},
			{Workflow: "w", ID: "i", Status: keep.ItemDone},
			{Workflow: "other", ID: "i", Status: keep.ItemDone, Attempt: 1},
		} {
			w.refuse("w", invalid, keep.PutItem{Item: it})
		}
	}},
	{"the items after one are those of its workflow that were made later, oldest first", func(w *world) {
		for _, id := range []string{"c", "a", "b", "d"} {
			w.commit("w", keep.PutItem{Item: keep.Item{Workflow: "w", ID: id, Status: keep.ItemDone, Attempt: 1}})
		}
		w.commit("other", keep.PutItem{Item: keep.Item{Workflow: "other", ID: "e", Status: keep.ItemDone, Attempt: 1}})
		for _, tt := range []struct {
			after string
			limit int
			want  string
		}{{"c", 10, "abd"}, {"b", 10, "d"}, {"c", 2, "ab"}, {"d", 10, ""}, {"unknown", 10, ""}, {"e", 10, ""}} {
			got := ""
			for _, it := range get[[]keep.Item](w)(w.ItemsAfter(w.ctx, "w", tt.after, tt.limit)) {
				got += it.ID
			}
			w.same("ItemsAfter "+tt.after, got, tt.want)
		}
	}},
	{"a call of an item is recorded only with the item as it is stored: at work, and in the attempt of the call", func(w *world) {
		r := jobRun(w, "w")
		it := keep.Item{Workflow: "w", ID: "i", Status: keep.ItemFailed, Attempt: 1}
		w.commit("w", keep.PutItem{Item: it})
		it.Rev = 1
		m := w.newMutation(r)
		m.Item, m.Attempt = it.ID, it.Attempt
		record := keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}}
		w.refuse("w", invalid, record)
		for _, change := range []func(*keep.Item){
			func(it *keep.Item) { it.ID, it.Rev = "other", 0 },
			func(it *keep.Item) { it.Attempt = 2 },
			func(it *keep.Item) { it.Status = keep.ItemSkipped },
			func(it *keep.Item) { it.Status = keep.ItemDone },
		} {
			other := it
			change(&other)
			w.refuse("w", invalid, record, keep.PutItem{Item: other})
		}

		skipped := it
		skipped.Status = keep.ItemSkipped
		w.commit("w", keep.PutItem{Item: skipped})
		w.refuse("w", is(keep.ErrStale), record, keep.PutItem{Item: it})
		again := it
		again.Status, again.Attempt, again.Rev = keep.ItemProcessing, 2, 2
		w.commit("w", keep.PutItem{Item: again})
		w.refuse("w", is(keep.ErrStale), record, keep.PutItem{Item: it})

		again.Rev, m.Attempt = 3, 2
		w.commit("w", keep.PutItem{Item: again}, keep.PutMutation{Mutation: m, Moves: record.Moves})
		again.Status = keep.ItemSkipped
		w.refuse("w", is(keep.ErrStale), keep.PutItem{Item: again}) // whoever decided that had not seen the call
	}},
	{"an item that does not exist is not found", func(w *world) {
		_, err := w.Item(w.ctx, "w", "unknown")
		w.fails("Item", err, notFound("item", "unknown"))
	}},
}

var escalationPromises = []promise{
	{"a question is read back as it was asked, to the byte", func(w *world) {
		r := w.start("w", "t")
		e := keep.Escalation{ID: "esc_1", Kind: keep.AskApproval, Workflow: "w", Run: r.ID, Mutation: "key", Item: odd, Title: odd,
			Question: odd, Attempted: odd, Why: odd, CanVerify: true, VerifyByHand: odd,
			Choices:     []keep.Choice{{Action: keep.Approve, Label: odd, Effect: odd}, {Action: keep.Reject}},
			PayloadHash: "00ff", ExpiresAt: oddTime, CreatedAt: oddTime, Approval: &keep.Approval{
				Tool: "bank.pay", Target: odd, Key: "key", Payload: []byte(`{"a":"<b>&\u2028","n":1.0}`), Version: keep.Version{Major: 1, Minor: 2},
				View:  keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "to", Param: odd, Text: odd}}},
				Claim: []byte(`{"title":"<b>"}`), Now: []byte(`[1]`), NowWhy: odd}}
		plain := keep.Escalation{ID: "esc_2", Kind: keep.AskLogic, Workflow: "w", Choices: []keep.Choice{}}
		w.commit("w", keep.OpenEscalation{Escalation: e}, keep.OpenEscalation{Escalation: plain})
		e.CreatedAt, e.ExpiresAt = kept(oddTime), kept(oddTime)
		w.same("Escalation", get[keep.Escalation](w)(w.Escalation(w.ctx, e.ID)), e)
		w.same("Escalations", page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{}, keep.Page{})), []keep.Escalation{plain, e})
		w.same("EscalationsOf", get[[]keep.Escalation](w)(w.EscalationsOf(w.ctx, r.Chain, 1)), []keep.Escalation{e})
		d := &keep.Decision{Action: keep.Approve, By: odd, From: "cli", Note: odd, At: oddTime}
		w.commit("w", keep.CloseEscalation{ID: e.ID, Decision: d})
		e.ClosedAt, e.Decision = w.at, &keep.Decision{Action: keep.Approve, By: odd, From: "cli", Note: odd, At: kept(oddTime)}
		w.same("decided", get[keep.Escalation](w)(w.Escalation(w.ctx, e.ID)), e)
		w.commit("w", keep.CloseEscalation{ID: plain.ID})
		plain.ClosedAt = w.at
		w.same("closed by the host", get[keep.Escalation](w)(w.Escalation(w.ctx, plain.ID)), plain)
	}},
	{"a decision keeps the result that it says, to the byte", func(w *world) {
		for id, result := range map[keep.EscalationID]json.RawMessage{"esc_1": json.RawMessage(`{"a":"<b>&\u2028","n":1.0}`), "esc_2": json.RawMessage("null"), "esc_3": nil} {
			w.commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskApproval, Workflow: "w"}})
			w.commit("w", keep.CloseEscalation{ID: id, Decision: &keep.Decision{Action: keep.TreatAsDone, By: "ann", At: w.at, Result: result}})
			w.same("Result", get[keep.Escalation](w)(w.Escalation(w.ctx, id)).Decision.Result, result)
		}
	}},
	{"what persons said was done is found by its item, newest first", func(w *world) {
		ask := func(id keep.EscalationID, workflow keep.WorkflowName, item string, kind keep.EscalationKind, a keep.Action) keep.Escalation {
			q := keep.Escalation{ID: id, Kind: kind, Workflow: workflow, Item: item, Choices: []keep.Choice{}, Approval: &keep.Approval{Tool: "crm.add", Key: "key", Payload: []byte(`{}`)}}
			w.commit(workflow, keep.OpenEscalation{Escalation: q})
			if a != "" {
				w.commit(workflow, keep.CloseEscalation{ID: id, Decision: &keep.Decision{Action: a, By: "ann", At: w.at, Result: []byte("7")}})
			}
			return get[keep.Escalation](w)(w.Escalation(w.ctx, id))
		}
		first := ask("esc_1", "w", odd, keep.AskApproval, keep.TreatAsDone)
		ask("esc_2", "w", "other", keep.AskApproval, keep.TreatAsDone)
		ask("esc_3", "other", odd, keep.AskApproval, keep.TreatAsDone)
		third := ask("esc_4", "w", odd, keep.AskAlreadyDone, keep.TreatAsDone)
		ask("esc_8", "w", odd, keep.AskAlreadyDone, keep.Skip)
		ask("esc_9", "w", odd, keep.AskItem, keep.TreatAsDone)
		fourth := ask("esc_10", "w", odd, keep.AskAlreadyDone, keep.DoAgain)
		ask("esc_5", "w", odd, keep.AskApproval, keep.Approve)
		ask("esc_6", "w", odd, keep.AskApproval, "")
		second := ask("esc_7", "w", odd, keep.AskApproval, keep.TreatAsDone)
		w.same("SaidDone", get[[]keep.Escalation](w)(w.SaidDone(w.ctx, "w", odd)), []keep.Escalation{second, fourth, third, first})
		w.same("SaidDone of none", len(get[[]keep.Escalation](w)(w.SaidDone(w.ctx, "w", "none"))), 0)
	}},
	{"a question is answered once", func(w *world) {
		w.commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_1", Kind: keep.AskLogic, Workflow: "w"}})
		d := &keep.Decision{Action: keep.Retry, By: "ann", At: w.at}
		w.refuse("other", notFound("escalation", "esc_1"), keep.CloseEscalation{ID: "esc_1", Decision: d})
		w.refuse("w", invalid, keep.CloseEscalation{ID: "esc_1", Decision: &keep.Decision{By: "nobody"}})
		w.commit("w", keep.CloseEscalation{ID: "esc_1", Decision: d})
		w.refuse("w", is(keep.ErrDecided), keep.CloseEscalation{ID: "esc_1", Decision: d})
		w.refuse("w", is(keep.ErrDecided), keep.CloseEscalation{ID: "esc_1"})
		w.refuse("w", notFound("escalation", "esc_0"), keep.CloseEscalation{ID: "esc_0"})
	}},
	{"a question may be of no workflow, and nothing else is", func(w *world) {
		w.commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_1", Kind: keep.AskLogic, Workflow: "w"}})
		e := keep.Escalation{ID: "esc_2", Kind: keep.AskReconnect, Question: odd, Choices: []keep.Choice{}}
		w.commit("", keep.OpenEscalation{Escalation: e})
		w.refuse("", is(keep.ErrStale), keep.OpenEscalation{Escalation: e})
		w.same("Escalation", get[keep.Escalation](w)(w.Escalation(w.ctx, e.ID)), e)
		w.same("of all workflows", len(page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{Open: true}, keep.Page{}))), 2)
		w.same("of one workflow", len(page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{Workflow: "w", Open: true}, keep.Page{}))), 1)
		w.same("counted", get[map[keep.EscalationKind]int](w)(w.CountEscalations(w.ctx, keep.EscalationFilter{Open: true}))[keep.AskReconnect], 1)
		w.same("Owed", len(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))), 2)
		w.commit("", keep.PutNotice{Notice: keep.Notice{Escalation: e.ID, Sink: "webhook", Status: keep.NoticeDelivered, Attempts: 1, UpdatedAt: w.at}})
		w.same("Owed after it was told", len(get[[]keep.Owed](w)(w.Owed(w.ctx, "webhook", 10))), 1)
		w.refuse("w", notFound("escalation", "esc_2"), keep.CloseEscalation{ID: e.ID})
		w.refuse("", invalid, keep.SetPaused{Paused: true})
		w.refuse("", invalid, keep.Publish{Event: keep.Event{Topic: "t", MessageID: "m"}})
		w.commit("", keep.CloseEscalation{ID: e.ID})
		w.refuse("", is(keep.ErrDecided), keep.CloseEscalation{ID: e.ID})
	}},
	{"a question is asked once, and open", func(w *world) {
		e := keep.Escalation{ID: "esc_1", Kind: keep.AskLogic, Workflow: "w"}
		w.commit("w", keep.OpenEscalation{Escalation: e})
		w.refuse("w", is(keep.ErrStale), keep.OpenEscalation{Escalation: e})
		e.Workflow = "other"
		w.refuse("other", is(keep.ErrStale), keep.OpenEscalation{Escalation: e})
		w.refuse("w", invalid, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_2", Kind: keep.AskLogic, Workflow: "w", ClosedAt: w.at}})
		w.refuse("w", invalid, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_2", Kind: "gossip", Workflow: "w"}})
		w.refuse("w", invalid, keep.OpenEscalation{Escalation: keep.Escalation{ID: "", Kind: keep.AskLogic, Workflow: "w"}})
		w.refuse("w", invalid, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_2", Kind: keep.AskLogic, Workflow: "other"}})
		_, err := w.Escalation(w.ctx, "esc_2")
		w.fails("Escalation", err, notFound("escalation", "esc_2"))
	}},
}
