package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

var questionPromises = []promise{
	{"open questions are grouped by what they have in common", func(w *world) {
		runs, calls := manyQuestions(w)
		all := page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: keep.MaxPage}))
		type key struct {
			keep.QuestionCause
			workflow keep.WorkflowName
		}
		var order []key
		want := make(map[key]keep.QuestionGroup)
		like := make(map[keep.QuestionCause][]keep.Escalation)
		for _, q := range all { // newest first
			c := q.CauseOf(runs[q.Run], calls[q.Mutation])
			k := key{c, q.Workflow}
			g, known := want[k]
			if !known {
				order, g = append(order, k), keep.QuestionGroup{QuestionCause: c, Workflow: q.Workflow, Newest: q.ID}
			}
			g.Count++
			want[k], like[c] = g, append(like[c], q)
		}
		var groups []keep.QuestionGroup
		for _, k := range order {
			groups = append(groups, want[k])
		}
		if len(groups) < 8 {
			w.Fatalf("%d groups: too few to tell", len(groups))
		}
		w.same("QuestionGroups", get[[]keep.QuestionGroup](w)(w.QuestionGroups(w.ctx, 100)), groups)
		w.same("QuestionGroups, cut", get[[]keep.QuestionGroup](w)(w.QuestionGroups(w.ctx, 3)), groups[:3])
		for c, qs := range like {
			w.same(fmt.Sprintf("QuestionsLike %v", c), get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "", c, 0, 100)), qs)
			w.same(fmt.Sprintf("QuestionsLike %v, passed over", c), len(get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "", c, 1, 1))), min(1, len(qs)-1))
			w.same(fmt.Sprintf("QuestionsLike %v, of another workflow", c), len(get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "none", c, 0, 100))), 0)
		}
		w.same("QuestionsLike of no question", len(get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "", keep.QuestionCause{Kind: keep.AskLogic, Tool: "none"}, 0, 100))), 0)
	}},
	{"questions and runs of many workflows that are of one moment have one order", func(w *world) {
		at := w.now()
		cause := keep.QuestionCause{Kind: keep.AskPermission, Tool: "consume"}
		var runs []keep.RunID
		var ids []keep.EscalationID
		for i := range 24 {
			name := keep.WorkflowName(fmt.Sprintf("w%02d", i))
			r := w.newRun(name)
			q := keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: cause.Kind, Workflow: name, Run: r.ID, CreatedAt: at, Choices: []keep.Choice{}}
			if err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: at, Changes: []keep.Change{keep.PutRun{Run: r}, keep.OpenEscalation{Escalation: q}}}); err != nil {
				w.Fatal(err)
			}
			runs, ids = append(runs, r.ID), append(ids, q.ID)
		}
		all := page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: keep.MaxPage}))
		w.same("QuestionsLike", get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "", cause, 0, 100)), all)
		w.same("QuestionsAbout", get[[]keep.Escalation](w)(w.QuestionsAbout(w.ctx, runs)), all)
		w.same("QuestionsByID", get[[]keep.Escalation](w)(w.QuestionsByID(w.ctx, ids)), all)
		groups := get[[]keep.QuestionGroup](w)(w.QuestionGroups(w.ctx, 100))
		for i, q := range all {
			w.same("QuestionsLike, one of them", get[[]keep.Escalation](w)(w.QuestionsLike(w.ctx, "", cause, i, 1)), all[i:i+1])
			w.same("QuestionGroups", groups[i].Newest, q.ID)
			w.same("QuestionGroups, cut", get[[]keep.QuestionGroup](w)(w.QuestionGroups(w.ctx, i+1)), groups[:i+1])
		}
		open := page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true}))
		w.same("OpenOf", get[[]keep.Run](w)(w.OpenOf(w.ctx, runs)), open)
		for i := range open {
			w.same("Unasked", get[[]keep.Run](w)(w.Unasked(w.ctx, i+1)), open[:i+1])
		}
	}},
	{"questions are listed by kind, by item, and by whether they are open", func(w *world) {
		manyQuestions(w)
		all := page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{}, keep.Page{Limit: keep.MaxPage}))
		filters := []keep.EscalationFilter{{Closed: true}, {Open: true, Closed: true}, {Workflow: "w1", Closed: true}, {Workflow: "w1", Item: "i1"}, {Workflow: "w1", Item: "i1", Open: true}}
		for _, kind := range keep.EscalationKinds() {
			filters = append(filters, keep.EscalationFilter{Kind: kind}, keep.EscalationFilter{Kind: kind, Open: true}, keep.EscalationFilter{Kind: kind, Closed: true, Workflow: "w1"})
		}
		for _, f := range filters {
			want := slices.DeleteFunc(slices.Clone(all), func(q keep.Escalation) bool {
				return f.Kind != "" && q.Kind != f.Kind || f.Workflow != "" && q.Workflow != f.Workflow || f.Item != "" && q.Item != f.Item ||
					f.Open && !q.ClosedAt.IsZero() || f.Closed && q.ClosedAt.IsZero()
			})
			var got []keep.Escalation
			for p := (keep.Page{Limit: 2}); ; {
				list, next, err := w.Escalations(w.ctx, f, p)
				if err != nil {
					w.Fatal(err)
				}
				if got = append(got, list...); next == "" {
					break
				}
				p.After = next
			}
			w.same(fmt.Sprintf("Escalations %+v", f), len(got), len(want))
			if len(want) > 0 {
				w.same(fmt.Sprintf("Escalations %+v", f), got, want)
			}
			counted(w, "Escalations", w.Escalations, w.CountEscalations, f, func(q keep.Escalation) keep.EscalationKind { return q.Kind })
		}
	}},
	{"runs with a question of their own are told from the others", func(w *world) {
		runs, _ := manyQuestions(w)
		ids := slices.Collect(maps.Keys(runs))
		open := page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: keep.MaxPage}))
		about := slices.DeleteFunc(open, func(q keep.Escalation) bool { return q.Run == "" })
		w.same("QuestionsAbout", get[[]keep.Escalation](w)(w.QuestionsAbout(w.ctx, append(ids, "", "run_none", ids[0]))), about)
		w.same("QuestionsAbout one", get[[]keep.Escalation](w)(w.QuestionsAbout(w.ctx, []keep.RunID{about[0].Run})), about[:1])
		w.same("QuestionsByID", get[[]keep.Escalation](w)(w.QuestionsByID(w.ctx, []keep.EscalationID{about[2].ID, "esc_none", about[0].ID, about[2].ID})), []keep.Escalation{about[0], about[2]})
		w.same("QuestionsAbout none", len(get[[]keep.Escalation](w)(w.QuestionsAbout(w.ctx, nil))), 0)
		want := page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true}))
		most := len(want)
		chains := []keep.RunID{"none", want[3].Chain, want[1].Chain, want[3].Chain}
		w.same("OpenOf", get[[]keep.Run](w)(w.OpenOf(w.ctx, chains)), []keep.Run{want[1], want[3]})
		again := want[1]
		w.commit(again.Workflow, keep.PutRun{Run: closedRun(again)}, keep.PutRun{Run: attemptAfter(again)})
		got := get[[]keep.Run](w)(w.OpenOf(w.ctx, chains))
		w.same("OpenOf another attempt", []keep.RunID{got[0].ID, got[1].ID}, []keep.RunID{attemptAfter(again).ID, want[3].ID})
		want = page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true}))
		want = slices.DeleteFunc(want, func(r keep.Run) bool {
			return r.Kind == keep.Consumer && r.Lane != keep.WorkflowLane && slices.ContainsFunc(about, func(q keep.Escalation) bool { return q.Run == r.ID })
		})
		if len(want) < 3 || len(want) > most-3 {
			w.Fatalf("%d of %d runs: too few, or too many, to tell", len(want), most)
		}
		w.same("Unasked", get[[]keep.Run](w)(w.Unasked(w.ctx, 100)), want)
		w.same("Unasked, cut", get[[]keep.Run](w)(w.Unasked(w.ctx, 2)), want[:2])
	}},
}

// manyQuestions asks about runs of several workflows that stopped for several reasons, and returns these runs and the
// calls of which some have one.
func manyQuestions(w *world) (map[keep.RunID]keep.Run, map[keep.MutationKey]keep.Mutation) {
	w.Helper()
	runs, calls := make(map[keep.RunID]keep.Run), make(map[keep.MutationKey]keep.Mutation)
	for _, name := range []keep.WorkflowName{"w1", "w2"} {
		w.deploy(name)
		for i := range 12 {
			r := w.newRun(name)
			r.ID = keep.RunID(fmt.Sprintf("%s_%d", r.ID, i))
			r.Chain, r.Lane, r.Status = r.ID, keep.ChainLane(r.ID), keep.StatusPerson
			m := w.newMutation(r)
			m.Key = keep.MutationKey(fmt.Sprintf("mut_%s_%d", name, i))
			m.Token = string(m.Key)
			q := keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_%s_%d", name, i)), Kind: keep.AskUnknownOutcome, Workflow: name, Run: r.ID, CreatedAt: w.at, Choices: []keep.Choice{}}
			stopFor(w, i, &r, &m, &q)
			changes := []keep.Change{keep.PutRun{Run: r}}
			if q.Mutation != "" {
				m.Tool += odd
				changes = append(changes, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
				calls[m.Key] = m
			}
			runs[r.ID] = r
			if i%6 != 5 {
				changes = append(changes, keep.OpenEscalation{Escalation: q})
			}
			w.commit(name, changes...)
			if i == 9 {
				w.commit(name, keep.CloseEscalation{ID: q.ID})
			}
		}
	}
	w.commit("", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_account", Kind: keep.AskReconnect, CreatedAt: w.at, Choices: []keep.Choice{}}})
	return runs, calls
}

// codeInJSON is a code, as a connector in Go may have it, that JSON has with other letters.
const codeInJSON = "card \"declined\" <a&b> \\\\u003c\n\u2028é"

// closedRun is r once another attempt took over.
func closedRun(r keep.Run) keep.Run {
	r.Closed = true
	return r
}

// attemptAfter is the attempt that takes over from r.
func attemptAfter(r keep.Run) keep.Run {
	r.RetryOf, r.ID, r.Rev, r.Status, r.Error, r.RetryAt = r.ID, r.ID+"_again", 0, keep.StatusActive, nil, time.Time{}
	return r
}

// stopFor gives the run of a question the i-th reason to stop.
func stopFor(w *world, i int, r *keep.Run, m *keep.Mutation, q *keep.Escalation) {
	switch i % 6 {
	case 0: // the tool of the call, and the code of the run
		q.Mutation, r.Mutation, r.Error = m.Key, m.Key, &keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Message: `"tool":"not.this"`, Tool: "other.tool"}
	case 1: // both of the call
		q.Mutation, r.Mutation, m.Error = m.Key, m.Key, &keep.Failure{Class: keep.ClassUnknown, Code: codeInJSON, Message: "500", Tool: m.Tool}
	case 2: // of the run
		q.Kind, r.Error = keep.AskPermission, &keep.Failure{Class: keep.ClassPermission, Code: "http-403", Message: `no "tool":"not.this"`, Tool: "crm.create"}
	case 3: // of its script: there is no tool
		q.Kind, r.Error, q.Item = keep.AskLogic, &keep.Failure{Class: keep.ClassLogic, Code: codeInJSON + "\x1a\\u0000", Message: "oops\x00"}, "i1"
	case 4: // another has the same
		q.Kind, r.Error = keep.AskPermission, &keep.Failure{Class: keep.ClassPermission, Code: "http-403", Message: "no", Tool: "crm.create"}
	case 5: // nobody is asked about it
		r.Error = &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Message: "no", Tool: "crm.create"}
	}
	if i%6 == 5 || i == 9 { // nothing is asked, or not any more
		r.Status, r.RetryAt = keep.StatusTransient, w.at
	}
	if i == 8 {
		r.Lane = keep.WorkflowLane
	}
}
