package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

var decisionPromises = []promise{
	{"decisions about something are kept in their order", func(w *world) {
		for _, kind := range keep.SubjectKinds() {
			if !kind.OfWorkflow() {
				continue
			}
			any := keep.Decided{About: keep.Subject{Workflow: "w", Kind: kind, ID: "x"}, Decision: keep.Decision{Action: keep.Skip, At: kept(oddTime)}}
			w.commit("w", keep.AppendDecision{Decided: any})
			w.same("Decided about a "+string(kind), get[[]keep.Decided](w)(w.Decided(w.ctx, any.About)), []keep.Decided{any})
		}
		about := keep.Subject{Workflow: "w", Kind: keep.AboutEvent, Topic: "t", ID: odd}
		var want []keep.Decided
		for i, d := range []keep.Decision{
			{Action: keep.Skip, By: odd, From: odd, Note: odd, At: oddTime},
			{Action: keep.Unskip, By: "bob", From: "web", At: oddTime.Add(-time.Hour)}, // by a clock that was set back
		} {
			w.commit("w", keep.AppendDecision{Decided: keep.Decided{About: about, Decision: d}})
			d.At = kept(d.At)
			want = append(want, keep.Decided{About: about, Decision: d})
			w.same(fmt.Sprintf("Decided after %d", i+1), get[[]keep.Decided](w)(w.Decided(w.ctx, about)), want)
		}
		for _, other := range []keep.Subject{
			{Workflow: "other", Kind: keep.AboutEvent, Topic: "t", ID: odd}, {Workflow: "w", Kind: keep.AboutItem, Topic: "t", ID: odd},
			{Workflow: "w", Kind: keep.AboutEvent, ID: odd}, {Workflow: "w", Kind: keep.AboutEvent, Topic: "t", ID: odd + "x"},
		} {
			w.same(fmt.Sprintf("Decided about %+v", other), get[[]keep.Decided](w)(w.Decided(w.ctx, other)), []keep.Decided(nil))
		}
	}},
	{"of many decisions about something the newest are read", func(w *world) {
		about := keep.Subject{Workflow: "w", Kind: keep.AboutItem, ID: "i"}
		var changes []keep.Change
		for i := range keep.MaxDecided + 2 {
			changes = append(changes, keep.AppendDecision{Decided: keep.Decided{About: about, Decision: keep.Decision{Action: keep.Skip, Note: fmt.Sprint(i), At: w.at}}})
		}
		w.commit("w", changes...)
		list := get[[]keep.Decided](w)(w.Decided(w.ctx, about))
		w.same("decisions", len(list), keep.MaxDecided)
		w.same("the first", list[0].Decision.Note, "2")
	}},
	{"a decision of another workflow, of nothing, or about nothing is refused", func(w *world) {
		fine := keep.Decided{About: keep.Subject{Workflow: "w", Kind: keep.AboutInput, ID: "in_1"}, Decision: keep.Decision{Action: keep.Skip, At: w.at}}
		for _, spoil := range []func(*keep.Decided){
			func(d *keep.Decided) { d.About.Workflow = "other" },
			func(d *keep.Decided) { d.About.Kind = "run" },
			func(d *keep.Decided) { d.About.Kind = keep.AboutToken },
			func(d *keep.Decided) { d.About.Workflow = "" },
			func(d *keep.Decided) { d.About.ID = "" },
			func(d *keep.Decided) { d.Decision.Action = "" },
		} {
			bad := fine
			spoil(&bad)
			w.refuse("w", invalid, keep.AppendDecision{Decided: fine}, keep.AppendDecision{Decided: bad})
		}
		w.same("decisions", get[[]keep.Decided](w)(w.Decided(w.ctx, fine.About)), []keep.Decided(nil))
		global := keep.Decided{About: keep.Subject{Kind: keep.AboutSecret, ID: "s"}, Decision: keep.Decision{Action: keep.Remove, At: w.at}}
		w.fails("in a commit of no workflow", w.Commit(w.ctx, keep.Commit{At: w.at, Changes: []keep.Change{keep.AppendDecision{Decided: global}}}), invalid)
	}},
	{"what a person does beside workflows is recorded if it is done, and only then", func(w *world) {
		about := func(kind keep.SubjectKind) keep.Decided {
			return keep.Decided{About: keep.Subject{Kind: kind, ID: odd}, Decision: keep.Decision{Action: keep.Revoke, By: odd, From: "cli", Note: odd, At: kept(oddTime)}}
		}
		token := keep.Credential{ID: "t1", Kind: keep.CredentialToken, Hash: make([]byte, 32), Name: "a"}
		secret := keep.Account{Kind: keep.AccountSecret, Name: "s", Status: keep.AccountOK, Generation: 1, Sealed: []byte("x"), ConnectedAt: kept(oddTime)}
		var want []keep.Decided
		for _, change := range []struct {
			what string
			make func(acts ...keep.Decided) error
			kind keep.SubjectKind
			done bool
		}{
			{"a token", func(acts ...keep.Decided) error { return w.AddCredential(w.ctx, token, acts...) }, keep.AboutToken, true},
			{"a token that there is", func(acts ...keep.Decided) error { return w.AddCredential(w.ctx, token, acts...) }, keep.AboutToken, false},
			{"the end of a token", func(acts ...keep.Decided) error { return w.DropCredential(w.ctx, "t1", acts...) }, keep.AboutSession, true},
			{"the end of none", func(acts ...keep.Decided) error { return w.DropCredential(w.ctx, "t1", acts...) }, keep.AboutToken, false},
			{"a secret", func(acts ...keep.Decided) error { return w.PutAccounts(w.ctx, []keep.Account{secret}, acts...) }, keep.AboutAccount, true},
			{"a stale secret", func(acts ...keep.Decided) error { return w.PutAccounts(w.ctx, []keep.Account{secret}, acts...) }, keep.AboutAccount, false},
			{"no account", func(acts ...keep.Decided) error { return w.PutAccounts(w.ctx, nil, acts...) }, keep.AboutAccount, true},
			{"the end of another secret", func(acts ...keep.Decided) error {
				return w.DropAccount(w.ctx, keep.AccountSecret, "s", 7, acts...)
			}, keep.AboutSecret, false},
			{"the end of a secret", func(acts ...keep.Decided) error {
				return w.DropAccount(w.ctx, keep.AccountSecret, "s", 1, acts...)
			}, keep.AboutSecret, true},
			{"the end of one that is gone", func(acts ...keep.Decided) error {
				return w.DropAccount(w.ctx, keep.AccountSecret, "s", 0, acts...)
			}, keep.AboutSecret, false},
		} {
			for _, spoil := range []func(*keep.Decided){
				func(d *keep.Decided) { d.About.Workflow, d.About.Kind = "w", keep.AboutWorkflow },
				func(d *keep.Decided) { d.Decision.Action = "" },
			} {
				bad := about(change.kind)
				if spoil(&bad); change.done {
					w.fails(change.what+" with a wrong decision", change.make(about(change.kind), bad), invalid)
				}
			}
			if err := change.make(about(change.kind)); (err == nil) != change.done {
				w.Errorf("%s: %v", change.what, err)
			}
			if change.done {
				want = append(want, about(change.kind))
			}
			list, _ := beside(w, keep.Page{})
			slices.Reverse(list)
			w.same("decisions after "+change.what, list, want)
		}
		w.same("Decided", get[[]keep.Decided](w)(w.Decided(w.ctx, about(keep.AboutSession).About)), []keep.Decided{about(keep.AboutSession)})
	}},
	{"decisions are listed newest first, of all, of one workflow and of none", func(w *world) {
		at := w.at
		of := func(workflow keep.WorkflowName, i int) keep.Decided {
			d := keep.Decided{About: keep.Subject{Workflow: workflow, Kind: keep.AboutWorkflow, ID: "x"}, Decision: keep.Decision{Action: keep.Pause, Note: fmt.Sprint(i), At: at}}
			if workflow == "" {
				d.About.Kind = keep.AboutHost
			}
			return d
		}
		counts := map[keep.WorkflowName]int{"w": 5, "v": 2, "": 5}
		for workflow, n := range counts {
			for i := range n {
				if workflow != "" {
					w.commit(workflow, keep.AppendDecision{Decided: of(workflow, i)})
				} else if err := w.PutAccounts(w.ctx, nil, of(workflow, i)); err != nil {
					w.Fatal(err)
				}
			}
		}
		seen := map[keep.WorkflowName]int{}
		for _, f := range []keep.DecisionFilter{{Workflow: "w"}, {Workflow: "v"}, {Global: true}, {}, {Workflow: "none"}, {Workflow: "w", Global: true}} {
			left := map[keep.WorkflowName]int{}
			p := keep.Page{Limit: 2}
			for more := true; more; more = p.After != "" {
				var list []keep.Decided
				var err error
				if list, p.After, err = w.Decisions(w.ctx, f, p); err != nil {
					w.Fatal(err)
				}
				for _, d := range list { // those of one workflow in their order
					left[d.About.Workflow]++
					w.same(fmt.Sprintf("of %+v", f), d, of(d.About.Workflow, counts[d.About.Workflow]-left[d.About.Workflow]))
				}
			}
			for workflow, n := range left {
				w.same(fmt.Sprintf("count of %q by %+v", workflow, f), n, counts[workflow])
				seen[workflow]++
			}
		}
		w.same("lists that had them", seen, map[keep.WorkflowName]int{"w": 2, "v": 2, "": 2})
		_, _, err := w.Decisions(w.ctx, keep.DecisionFilter{}, keep.Page{After: "q1"})
		w.fails("another list's cursor", err, is(keep.ErrBadCursor))
	}},
}

// beside returns the decisions about what is of no workflow.
func beside(w *world, p keep.Page) (list []keep.Decided, next string) {
	list, next, err := w.Decisions(w.ctx, keep.DecisionFilter{Global: true}, p)
	if err != nil {
		w.Fatal(err)
	}
	return list, next
}
