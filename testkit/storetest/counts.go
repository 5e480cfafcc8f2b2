package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

var countPromises = []promise{
	{"counts agree with the list of the same filter", func(w *world) {
		populate(w)
		for _, name := range []keep.WorkflowName{"", "w1", "none"} {
			countRuns(w, name)
			countMutations(w, name)
			for _, text := range []string{"", "mail", "none"} {
				for _, status := range append(keep.InputStatuses(), "") {
					counted(w, "Inputs", w.Inputs, w.CountInputs, keep.InputFilter{Workflow: name, Status: status, Text: text},
						func(in keep.Input) keep.InputStatus { return in.Status })
				}
				for _, status := range append(keep.ItemStatuses(), "") {
					counted(w, "Items", w.Items, w.CountItems, keep.ItemFilter{Workflow: name, Status: status, Text: text},
						func(it keep.Item) keep.ItemStatus { return it.Status })
				}
			}
			for _, q := range page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{}, keep.Page{})) {
				for _, run := range []keep.RunID{"", q.Run} {
					for _, open := range []bool{false, true} {
						counted(w, "Escalations", w.Escalations, w.CountEscalations,
							keep.EscalationFilter{Workflow: name, Run: run, Open: open},
							func(q keep.Escalation) keep.EscalationKind { return q.Kind })
					}
				}
			}
		}
	}},
	{"ids are found by how they begin or end", func(w *world) {
		populate(w)
		runs := page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{Limit: keep.MaxPage}))
		mutations := page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{}, keep.Page{Limit: keep.MaxPage}))
		inputs := page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{Limit: keep.MaxPage}))
		questions := page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{}, keep.Page{Limit: keep.MaxPage}))
		byPart(w, keep.NounRun, runs, func(r keep.Run) string { return string(r.ID) })
		byPart(w, keep.NounMutation, mutations, func(m keep.Mutation) string { return string(m.Key) })
		byPart(w, keep.NounInput, inputs, func(in keep.Input) string { return string(in.ID) })
		byPart(w, keep.NounQuestion, questions, func(q keep.Escalation) string { return string(q.ID) })
		if _, err := w.IDsWith(w.ctx, "item", "a", 10); err == nil {
			w.Errorf("items, whose ids are unique in their workflow only, are searched as if they were")
		}
		placesByPart(w)
	}},
	{"ids that scripts make are found by any part, whatever is in them", func(w *world) {
		populate(w)
		for _, id := range []string{"\x00a00\x1a\x00", "\x00\u00fc\x1a", "\x01a00\x1a\x00", "\x01\x00a00\x1a\x00", "\ta00\x1a\x00", "\x1aa00\x1a\x00", "\x1ba00\x1a\x00"} {
			w.commit("a", keep.Publish{Event: keep.Event{Workflow: "a", Topic: "t\x00", MessageID: keep.MessageID(id)}},
				keep.PutItem{Item: keep.Item{Workflow: "a", ID: id, Status: keep.ItemDone, Attempt: 1}})
		}
		placesByPart(w)
	}},
	{"a bare page leaves out what may be large, and nothing else", func(w *world) {
		populate(w)
		w.deploy("w3")
		r, m := w.call("w3")
		r.Prepared = json.RawMessage(`{"data":{"n":1}}`)
		m.Identity, m.Result, m.State, m.ResolvedBy = json.RawMessage(`{"id":1}`), json.RawMessage(`{}`), keep.Applied, "call"
		w.commit("w3", keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
		bare(w, "Runs", w.Runs, func(r keep.Run) keep.Run { r.Prepared = nil; return r })
		bare(w, "Mutations", w.Mutations, func(m keep.Mutation) keep.Mutation {
			m.Identity, m.Payload, m.Result = nil, nil, nil
			return m
		})
		bare(w, "Events", w.Events, func(e keep.Event) keep.Event { e.Payload = nil; return e })
		bare(w, "Inputs", w.Inputs, func(in keep.Input) keep.Input { return in })
		bare(w, "Items", w.Items, func(it keep.Item) keep.Item { return it })
		bare(w, "Escalations", w.Escalations, func(q keep.Escalation) keep.Escalation { return q })
	}},
}

// byPart looks for ids by every beginning and ending of one of them, and for what none has.
func byPart[T any](w *world, n keep.Noun, rows []T, id func(T) string) {
	w.Helper()
	if len(rows) < 2 {
		w.Fatalf("%d rows of noun %s: too few to tell", len(rows), n)
	}
	first := id(rows[0])[min(len(n.Prefix()), len(id(rows[0]))):]
	parts := []string{n.Prefix(), "%", "none", "_" + first}
	for i := range first {
		parts = append(parts, first[:i+1], first[i:])
	}
	for _, part := range parts {
		var want []string
		for _, r := range rows {
			rest := id(r)[min(len(n.Prefix()), len(id(r))):]
			if strings.HasPrefix(rest, part) || strings.HasSuffix(rest, part) {
				want = append(want, id(r))
			}
		}
		slices.Sort(want)
		slices.Reverse(want)
		for _, limit := range []int{1, keep.MaxPage} {
			got, err := w.IDsWith(w.ctx, n, part, limit)
			if err != nil || !slices.Equal(got, want[:min(limit, len(want))]) {
				w.Errorf("IDsWith %s %q, %d at most = %q, %v, want %q", n, part, limit, got, err, want)
			}
		}
	}
}

// placesByPart looks for events and items by every beginning and ending of the id of one.
func placesByPart(w *world) {
	w.Helper()
	events := page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{Limit: keep.MaxPage}))
	items := page[keep.Item](w)(w.Items(w.ctx, keep.ItemFilter{}, keep.Page{Limit: keep.MaxPage}))
	var all []keep.Place
	for _, e := range events {
		all = append(all, keep.Place{Workflow: e.Workflow, Topic: e.Topic, ID: string(e.MessageID)})
	}
	for _, it := range items {
		all = append(all, keep.Place{Workflow: it.Workflow, ID: it.ID})
	}
	if len(events) < 2 || len(items) < 2 {
		w.Fatalf("%d events, %d items: too few to tell", len(events), len(items))
	}
	slices.SortFunc(all, func(a, b keep.Place) int {
		return slices.Compare([]string{string(a.Workflow), string(a.Topic), a.ID}, []string{string(b.Workflow), string(b.Topic), b.ID})
	})
	e, it := all[slices.IndexFunc(all, func(p keep.Place) bool { return p.Topic != "" })], all[slices.IndexFunc(all, func(p keep.Place) bool { return p.Topic == "" })]
	parts := []string{"%", "_", "none", "0", "00", "1a"}
	for _, id := range []string{e.ID, it.ID} {
		for i := range id {
			parts = append(parts, id[:i+1], id[i:])
		}
	}
	for _, in := range []keep.Place{{}, {Workflow: e.Workflow}, {Workflow: e.Workflow, Topic: e.Topic}, {Topic: e.Topic}, {Workflow: it.Workflow}, {Workflow: "none"}} {
		for _, part := range parts {
			want := slices.DeleteFunc(slices.Clone(all), func(p keep.Place) bool {
				return in.Workflow != "" && p.Workflow != in.Workflow || !strings.HasPrefix(p.ID, part) && !strings.HasSuffix(p.ID, part)
			})
			wantEvents := slices.DeleteFunc(slices.Clone(want), func(p keep.Place) bool { return p.Topic == "" || in.Topic != "" && p.Topic != in.Topic })
			wantItems := slices.DeleteFunc(want, func(p keep.Place) bool { return p.Topic != "" })
			for _, limit := range []int{1, keep.MaxPage} {
				evs, err := w.EventsWith(w.ctx, in.Workflow, in.Topic, part, limit)
				if err != nil || !slices.Equal(evs, wantEvents[:min(limit, len(wantEvents))]) {
					w.Errorf("EventsWith %q in %v, %d at most = %v, %v, want %v", part, in, limit, evs, err, wantEvents)
				}
				its, err := w.ItemsWith(w.ctx, in.Workflow, part, limit)
				if err != nil || !slices.Equal(its, wantItems[:min(limit, len(wantItems))]) {
					w.Errorf("ItemsWith %q in %v, %d at most = %v, %v, want %v", part, in, limit, its, err, wantItems)
				}
			}
		}
	}
}

// counted compares a count with what the list of the same filter has.
func counted[F, T any, S comparable](w *world, what string, list func(context.Context, F, keep.Page) ([]T, string, error),
	count func(context.Context, F) (map[S]int, error), f F, state func(T) S) {
	w.Helper()
	want := make(map[S]int)
	for _, v := range page[T](w)(list(w.ctx, f, keep.Page{Limit: keep.MaxPage})) {
		want[state(v)]++
	}
	got, err := count(w.ctx, f)
	if b, ok := any(f).(interface{ Bounded() bool }); ok && b.Bounded() && sum(got) == search.MaxCount+1 && sum(want) > search.MaxCount {
		for s, n := range got { // it stopped: there are more
			if n > want[s] {
				w.Errorf("Count%s %+v: %d are %v, and the list has %d", what, f, n, s, want[s])
			}
		}
		return
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		w.Errorf("Count%s %+v: %v (-list +count):\n%s", what, f, err, diff)
	}
}

// sum adds up counts.
func sum[S comparable](counts map[S]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// bare compares bare pages with full ones.
func bare[F, T any](w *world, what string, list func(context.Context, F, keep.Page) ([]T, string, error), strip func(T) T) {
	w.Helper()
	var all F
	full := page[T](w)(list(w.ctx, all, keep.Page{Limit: keep.MaxPage}))
	for i := range full {
		full[i] = strip(full[i])
	}
	w.same("bare "+what, page[T](w)(list(w.ctx, all, keep.Page{Limit: keep.MaxPage, Bare: true})), full)
}

func countRuns(w *world, name keep.WorkflowName) {
	w.Helper()
	chains := []keep.RunID{"", "run_0"}
	for _, r := range page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{})) {
		if r.RetryOf != "" {
			chains = append(chains, r.Chain)
		}
	}
	for _, handler := range []keep.HandlerName{"", "consume", "none"} {
		for _, status := range append(keep.RunStatuses(), "") {
			for _, chain := range chains {
				for _, open := range []bool{false, true} {
					f := keep.RunFilter{Workflow: name, Handler: handler, Status: status, Chain: chain, Open: open}
					counted(w, "Runs", w.Runs, w.CountRuns, f, func(r keep.Run) keep.RunStatus { return r.Status })
				}
			}
		}
	}
}

func countMutations(w *world, name keep.WorkflowName) {
	w.Helper()
	state := func(m keep.Mutation) keep.MutationState { return m.State }
	all := page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{}, keep.Page{}))
	inputs := page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{}))
	last := make(map[keep.ToolName]keep.Mutation)
	for _, m := range slices.Backward(page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{State: keep.Applied}, keep.Page{Bare: true}))) {
		last[m.Tool] = m
	}
	if len(last) == 0 {
		w.Fatalf("no call was applied")
	}
	tools := append(slices.Collect(maps.Keys(last)), "none", "mail.send0")
	w.same("LastApplied", get[map[keep.ToolName]keep.Mutation](w)(w.LastApplied(w.ctx, tools)), last)
	used := make(map[keep.WorkflowName][]keep.ToolName)
	for _, m := range all {
		if !slices.Contains(used[m.Workflow], m.Tool) {
			used[m.Workflow] = append(used[m.Workflow], m.Tool)
			slices.Sort(used[m.Workflow])
		}
	}
	w.same("UsedTools", get[map[keep.WorkflowName][]keep.ToolName](w)(w.UsedTools(w.ctx)), used)
	for _, s := range append(keep.MutationStates(), "") {
		for _, tool := range []keep.ToolName{"", "crm.create", "none"} {
			counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Workflow: name, State: s, Tool: tool}, state)
		}
		counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Workflow: name, State: s, Run: all[0].Run}, state)
		counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Workflow: name, State: s, Item: all[0].Item}, state)
		ref := keep.ItemRef{Workflow: all[0].Workflow, ID: all[0].Item}
		var keys []keep.MutationKey
		for _, m := range page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{Workflow: ref.Workflow, Item: ref.ID}, keep.Page{})) {
			keys = append(keys, m.Key)
		}
		if ref.ID != "" {
			w.same("ItemCalls", get[map[keep.ItemRef][]keep.MutationKey](w)(w.ItemCalls(w.ctx, []keep.ItemRef{ref, ref}, 100)), map[keep.ItemRef][]keep.MutationKey{ref: keys})
		}
		counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Workflow: name, State: s, Input: inputs[len(inputs)-1].ID}, state)
	}
}

var searchPromises = []promise{
	{"a text finds the titles that have words which begin so", func(w *world) {
		entitle(w)
		for _, text := range []string{"", "?", "invoice", "INVOICE 7", "inv", "voice", "alice@ex", "jörg", "jor", "7 alice", "w2", "odd", "x\u0301y",
			`"`, `* OR invoice`, "NEAR(a b)", "-invoice", "words:invoice", "nothing"} {
			finds(w, text)
		}
	}},
	{"a text finds targets, identities, keys, message ids and external ids, whole or in parts", func(w *world) {
		identify(w)
		for _, text := range []string{"O00070", "o0007", "order=O00070", "order:17", "order 17", "ada@example.com", "example", "a-7", "de 12", "17.25",
			"mut", "cafe", "Café", "CAFE\u0301 o00070", "ΣΊΣΥΦΟΣ"} {
			finds(w, text)
			if list, _, err := w.Events(w.ctx, keep.EventFilter{Text: text}, keep.Page{}); err != nil || len(list) > 4 {
				w.Errorf("%q finds %d events, %v", text, len(list), err)
			}
		}
		for text, want := range map[string][]int{"O00070": {1, 1, 1, 1, 1}, "order=O00070": {0, 0, 0, 0, 1}, "ada@example.com": {1, 1, 1, 0, 1}} {
			w.same("found by "+text, amounts(w, text), want)
		}
	}},
	{"a text finds many titles, old and new ones, and those that changed", func(w *world) {
		var changes []keep.Change
		for i := range 1200 {
			id := w.id("in")
			changes = append(changes, keep.PutInput{Input: keep.Input{ID: keep.InputID(id), Workflow: "w", ExternalID: id,
				Title: fmt.Sprintf("Mail %d of %s", i, []string{"ann", "bob", "cyd"}[i%3]), CreatedAt: w.at}})
			it := keep.Item{Workflow: "w", ID: w.id("item"), Title: fmt.Sprint("Item ", i), Status: keep.ItemProcessing, Attempt: 1}
			changes = append(changes, keep.PutItem{Item: it})
			if i == 100 || i == 1190 {
				it.Rev, it.Title, it.Status = 1, "Renamed", keep.ItemDone
				defer func() { // when some are old
					w.commit("w", keep.PutItem{Item: it})
					finds(w, "item 1")
					finds(w, "renamed")
					w.commit("w", keep.PutItem{Item: keep.Item{Workflow: "w", ID: it.ID, Status: keep.ItemDone, Attempt: 1, Rev: 2}})
					finds(w, "renamed")
				}()
			}
			if i%100 == 99 {
				w.commit("w", changes...)
				changes = nil
			}
		}
		for _, text := range []string{"mail", "bob", "mail 11", "ann 1197", "it"} {
			finds(w, text)
		}
		pages(w, "searched Inputs", w.Inputs, keep.InputFilter{Text: "ma 119"}, func(in keep.Input) string { return string(in.ID) })
	}},
	{"a text finds what a plain filter of random titles finds", func(w *world) {
		t := newTitles(w)
		for range 4 {
			t.grow()
			t.change()
			for range 6 {
				t.compare()
			}
		}
	}},
	{"a text and other filters select what both select", func(w *world) {
		entitle(w)
		for _, name := range []string{"consume", "none"} {
			filtered(w, "Runs", w.Runs, keep.RunFilter{Handler: keep.HandlerName(name), Text: "mail"}, func(v keep.Run) bool {
				return string(v.Handler) == name && search.OfRun(v).Has([]string{"mail"})
			})
		}
		for _, tool := range []keep.ToolName{"crm.create", "none"} {
			for _, state := range append(keep.MutationStates(), "") {
				filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Tool: tool, State: state, Text: "mail"}, func(v keep.Mutation) bool {
					return v.Tool == tool && want(state, v.State) && search.OfMutation(v).Has([]string{"mail"})
				})
			}
		}
		w.call("w2") // an open run
		runs := page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{}))
		ins := page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{}))
		for _, text := range []string{"invoice", "a", "mail"} {
			words := search.Terms(text)
			for _, name := range []keep.WorkflowName{"", "w1", "w2"} {
				for _, r := range runs[:6] {
					filtered(w, "Runs", w.Runs, keep.RunFilter{Workflow: name, Chain: r.Chain, Text: text}, func(v keep.Run) bool {
						return want(name, v.Workflow) && v.Chain == r.Chain && search.OfRun(v).Has(words)
					})
				}
				filtered(w, "Runs", w.Runs, keep.RunFilter{Workflow: name, Open: true, Text: text}, func(v keep.Run) bool {
					return want(name, v.Workflow) && !v.Closed && search.OfRun(v).Has(words)
				})
				for _, in := range ins {
					outputs := get[[]keep.MutationKey](w)(w.Outputs(w.ctx, in.ID))
					filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Workflow: name, Input: in.ID, Text: text}, func(m keep.Mutation) bool {
						return want(name, m.Workflow) && slices.Contains(outputs, m.Key) && search.OfMutation(m).Has(words)
					})
				}
			}
		}
	}},
	{"a period and an error select what was made in it and stopped by it, with any other filter", periods},
	{"an error selects runs and calls in every state that can have one", everyError},
	{"what is searched survives a restart", func(w *world) {
		s, ok := w.Store.(Reopener)
		if !ok {
			w.Skip("the store ends with its process")
		}
		entitle(w)
		w.Store = s.Reopen(w)
		finds(w, "invoice")
		finds(w, "jörg")
	}},
}

// entitle makes rows with titles in two workflows.
func entitle(w *world) {
	w.Helper()
	titles := []string{"Invoice 7 from alice@example.com", "invoice 71: Jörg", "Voice mail", "", odd, "x\u0301y", "W2 w2 w2", "a"}
	for _, name := range []keep.WorkflowName{"w1", "w2"} {
		w.deploy(name, "t")
		for i, title := range titles {
			in := keep.Input{ID: keep.InputID(w.id("in")), Workflow: name, Source: "s", ExternalID: fmt.Sprint(i), Title: title, CreatedAt: w.at}
			id := keep.MessageID(fmt.Sprint(i))
			w.commit(name, keep.PutInput{Input: in}, keep.Publish{Event: event(name, "t", id, in.ID)})
			r := w.newRun(name)
			m := w.newMutation(r)
			r.Title, m.Title, r.Mutation, m.State = title, title, m.Key, keep.Failed
			r.Reservations = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{id}}}
			it := keep.Item{Workflow: name, ID: w.id("item"), Title: title, Status: keep.ItemStatuses()[i%5], Attempt: 1}
			w.commit(name, keep.PutRun{Run: r}, keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]},
				keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Failed)}}, keep.PutItem{Item: it})
			if r.Rev = 1; i%2 == 0 {
				r.Title += " again"
			}
			m.Rev, m.State, m.ResolvedBy, m.Attempts = 1, keep.Applied, "call", 2
			moves := []keep.Move{w.move(keep.Failed, keep.InFlight), w.move(keep.InFlight, keep.Applied)}
			w.commit(name, keep.PutMutation{Mutation: m, Moves: moves}, keep.Finish{Chain: r.Chain, Status: keep.EventConsumed}, keep.PutRun{Run: done(r)})
		}
	}
}

// identify makes records that people know by other names than titles.
func identify(w *world) {
	w.Helper()
	for i, name := range []string{"O00070", "order:17", "ada@example.com", "café-σίσυφος"} {
		in := keep.Input{ID: keep.InputID(w.id("in")), Workflow: "w1", Source: "s", ExternalID: name, CreatedAt: w.at}
		w.commit("w1", keep.PutInput{Input: in}, keep.Publish{Event: event("w1", "t", keep.MessageID(name), in.ID)})
		r := w.newRun("w1")
		m := w.newMutation(r)
		r.Mutation, m.Target, m.State = m.Key, "order="+name, keep.Failed
		m.Identity = json.RawMessage(fmt.Sprintf(`{"account":{"iban":["DE-12","%s"]},"amount":%d.25}`, name, 17+i))
		r.Reservations = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{keep.MessageID(name)}}}
		changes := []keep.Change{keep.PutRun{Run: r}, keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Failed)}}}
		if i != 2 {
			changes = append(changes, keep.PutItem{Item: keep.Item{Workflow: "w1", ID: name, Status: keep.ItemDone, Attempt: 1}})
		}
		w.commit("w1", changes...)
		r.Rev, m.Rev, m.State, m.ResolvedBy, m.Attempts = 1, 1, keep.Applied, "call", 2
		moves := []keep.Move{w.move(keep.Failed, keep.InFlight), w.move(keep.InFlight, keep.Applied)}
		w.commit("w1", keep.PutMutation{Mutation: m, Moves: moves}, keep.Finish{Chain: r.Chain, Status: keep.EventConsumed}, keep.PutRun{Run: done(r)})
	}
}

// amounts returns how many inputs, events, runs, items and mutations a text finds.
func amounts(w *world, text string) []int {
	w.Helper()
	return []int{
		len(page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{Text: text}, keep.Page{}))),
		len(page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{Text: text}, keep.Page{}))),
		len(page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Text: text}, keep.Page{}))),
		len(page[keep.Item](w)(w.Items(w.ctx, keep.ItemFilter{Text: text}, keep.Page{}))),
		len(page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{Text: text}, keep.Page{}))),
	}
}

// finds wants what a text finds in every list, and how much.
func finds(w *world, text string) {
	w.Helper()
	words := search.Terms(text)
	filtered(w, "Inputs", w.Inputs, keep.InputFilter{Text: text}, func(v keep.Input) bool { return search.OfInput(v).Has(words) })
	filtered(w, "Runs", w.Runs, keep.RunFilter{Text: text}, func(v keep.Run) bool { return search.OfRun(v).Has(words) })
	filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Text: text}, func(v keep.Mutation) bool { return search.OfMutation(v).Has(words) })
	filtered(w, "Items", w.Items, keep.ItemFilter{Text: text}, func(v keep.Item) bool { return search.OfItem(v).Has(words) })
	filtered(w, "Events", w.Events, keep.EventFilter{Text: text}, func(v keep.Event) bool { return search.OfEvent(v).Has(words) })
	counted(w, "Inputs", w.Inputs, w.CountInputs, keep.InputFilter{Text: text}, func(v keep.Input) keep.InputStatus { return v.Status })
	counted(w, "Runs", w.Runs, w.CountRuns, keep.RunFilter{Text: text}, func(v keep.Run) keep.RunStatus { return v.Status })
	counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Text: text}, func(v keep.Mutation) keep.MutationState { return v.State })
	counted(w, "Items", w.Items, w.CountItems, keep.ItemFilter{Text: text}, func(v keep.Item) keep.ItemStatus { return v.Status })
}
