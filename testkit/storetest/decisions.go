package storetest

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

var decisionPromises = []promise{
	{"decisions about something are kept in their order", func(w *world) {
		for _, kind := range keep.SubjectKinds() {
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
			func(d *keep.Decided) { d.About.ID = "" },
			func(d *keep.Decided) { d.Decision.Action = "" },
		} {
			bad := fine
			spoil(&bad)
			w.refuse("w", invalid, keep.AppendDecision{Decided: fine}, keep.AppendDecision{Decided: bad})
		}
		w.same("decisions", get[[]keep.Decided](w)(w.Decided(w.ctx, fine.About)), []keep.Decided(nil))
	}},
}
