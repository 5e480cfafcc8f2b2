package storetest

import (
	"fmt"
	"strings"

	"github.com/keep-run/keep"
)

// alike are names of which each two are two: a store that takes two for one loses what the second one has. They differ in case, in
// spaces, in zeros, in how a letter is composed, in what a store may write in the place of a zero, and in their last byte.
var alike = []string{
	"a", "A", "a ", " a", "a\t", "a\x00", "a\x00b", "a\x00B", "a\x1a", "a\x1a00", "a\x1a1a", "\u00e4", "a\u0308", "\u00e5", "\u212b", "i", "\u0131", "\u0130", "ss", "\u00df", "0", "00", "1", "1.0",
	strings.Repeat("a", 200) + "1", strings.Repeat("a", 200) + "2",
}

var namePromises = []promise{
	{"events whose ids are alike are two", func(w *world) {
		var ids []keep.MessageID
		for _, name := range alike {
			e := event("w", "t", keep.MessageID(name))
			e.Payload = fmt.Appendf(nil, "%q", fmt.Sprintf("%x", name))
			w.commit("w", keep.Publish{Event: e})
			ids = append(ids, e.MessageID)
		}
		events := get[[]keep.Event](w)(w.EventsByID(w.ctx, "w", "t", ids))
		w.same("events", len(events), len(ids))
		for i, e := range events {
			w.same("EventsByID", e.MessageID, ids[i])
			w.same("its payload", string(e.Payload), fmt.Sprintf("%q", fmt.Sprintf("%x", alike[i])))
			w.same("Event", get[keep.Event](w)(w.Event(w.ctx, "w", "t", e.MessageID)), e)
		}
		w.same("TopicCounts", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), []keep.TopicCount{{Workflow: "w", Topic: "t", Pending: len(alike)}})
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: ids[:1]})
		w.same("TopicCounts", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), []keep.TopicCount{{Workflow: "w", Topic: "t", Pending: len(alike) - 1, Skipped: 1}})
	}},
	{"topics, items, inputs and keys of checkpoints whose names are alike are two", func(w *world) {
		for i, name := range alike {
			id := keep.InputID(fmt.Sprint("in_", i))
			w.commit("w", keep.PutItem{Item: keep.Item{Workflow: "w", ID: name, Title: fmt.Sprint(i), Status: keep.ItemDone, Attempt: 1}},
				keep.PutInput{Input: keep.Input{ID: id, Workflow: "w", Source: "s", Type: "t", ExternalID: name}},
				keep.SetKV{Producer: "p", Key: name, Value: fmt.Append(nil, i)})
			w.publish("w", keep.TopicName(name), "m")
		}
		for i, name := range alike {
			w.same("Item", get[keep.Item](w)(w.Item(w.ctx, "w", name)).Title, fmt.Sprint(i))
			w.same("InputByKey", get[keep.Input](w)(w.InputByKey(w.ctx, "w", "s", "t", name)).ID, keep.InputID(fmt.Sprint("in_", i)))
			w.same("KV", string(get[[]byte](w)(w.KV(w.ctx, "w", "p", name))), fmt.Sprint(i))
		}
		w.same("KVs", len(get[[]keep.SetKV](w)(w.KVs(w.ctx, "w", "p"))), len(alike))
		w.same("topics", len(get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w"))), len(alike))
	}},
	{"gates, accounts and hooks whose names are alike are two", func(w *world) {
		for i, name := range alike {
			one := anAccount(name)
			one.Subject = fmt.Sprint(i)
			w.put(one)
			if err := w.PutGate(w.ctx, keep.Gate{Connection: name, State: fmt.Append(nil, i)}); err != nil {
				w.Error(err)
			}
			if err := w.CountHook(w.ctx, keep.HookCount{Name: name, Accepted: 1, LastAt: oddTime}); err != nil {
				w.Error(err)
			}
		}
		for i, name := range alike {
			w.same("account", w.account(name).Subject, fmt.Sprint(i))
			w.same("gate", string(get[keep.Gate](w)(w.Gate(w.ctx, name)).State), fmt.Sprint(i))
		}
		w.same("accounts", len(get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected))), len(alike))
		w.same("hooks", len(get[[]keep.HookCount](w)(w.HookCounts(w.ctx))), len(alike))
	}},
}
