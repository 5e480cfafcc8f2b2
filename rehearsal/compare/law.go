package compare

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/rehearsal/replay"
)

// A Change says what would have become of a run.
type Change string

// The changes.
const (
	Same         Change = "same"         // it would have done the same
	Changed      Change = "changed"      // something else
	Missing      Change = "missing"      // less: a call, event or item is not made
	Added        Change = "added"        // more
	Failed       Change = "failed"       // it would have failed, or with another error
	Inconclusive Change = "inconclusive" // nobody knows
)

// Changes returns every change, what a person should read first in front.
func Changes() []Change { return []Change{Failed, Missing, Changed, Added, Inconclusive, Same} }

// An Impact says what a version means for what was done.
type Impact string

// The impacts.
const (
	Safe      Impact = "safe"         // every run whose work is done would have done the same
	Impactful Impact = "impactful"    // some would not, or it declares something else
	Unknown   Impact = "inconclusive" // nobody knows: that is no Safe
)

// A Remedy is what can be done about a call of the older version.
type Remedy string

// The remedies.
const (
	Nothing Remedy = "nothing" // it had no effect
	Redo    Remedy = "redo"    // doing the work again makes the call of the newer version
	ByHand  Remedy = "by hand" // what happened stands, and Keep cannot take it back
)

// ChangeOf judges the differences of a replay; known means that it came to its end.
func ChangeOf(all []replay.Difference, known bool) Change {
	added, missing, n := 0, 0, 0
	for _, d := range all {
		if harmless(d) {
			continue
		}
		n++
		was, now := !isNull(d.Recorded), !isNull(d.Now)
		counts := slices.Contains([]replay.What{replay.Call, replay.Publishes, replay.Items}, d.What)
		switch {
		case d.What == replay.Failed && now:
			return Failed
		case counts && now && !was:
			added++
		case counts && was && !now:
			missing++
		}
	}
	switch {
	case n == 0 && known:
		return Same
	case n == 0:
		return Inconclusive
	case missing == n:
		return Missing
	case added == n:
		return Added
	}
	return Changed
}

// harmless reports whether a difference is one of what a run hands on to itself or shows, whose
// consequences, if there are any, are differences of their own.
func harmless(d replay.Difference) bool {
	switch d.What {
	case replay.MadeIDs:
		return true
	case replay.Data:
		return !isNull(d.Recorded) && onlyHandedOn(d.Recorded, d.Now)
	}
	return false
}

// handedOn are the fields of what prepare returns that only the script and people look at.
func handedOn() []string { return []string{"data", "ui"} }

// onlyHandedOn reports whether two results of prepare are alike but for what is handed on.
func onlyHandedOn(was, now json.RawMessage) bool {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return false
	}
	for _, name := range handedOn() {
		delete(a, name)
		delete(b, name)
	}
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		w, ok := b[name]
		if !ok || !sameValue(v, w) {
			return false
		}
	}
	return true
}

func sameValue(a, b json.RawMessage) bool {
	ca, errA := canonical.Exact(a)
	cb, errB := canonical.Exact(b)
	return errA == nil && errB == nil && string(ca) == string(cb)
}

func isNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// A Judged is what the law of impacts looks at in a run.
type Judged struct {
	Change Change
	Done   bool // its work is done, or may be: it committed, or its call may have been made
}

// ImpactOf judges a version by runs of the one before: by those whose work is done. Another
// declaration is an impact. If not all were gone through that should have been, or none was,
// it is not known. What is not known is never safe.
func ImpactOf(runs []Judged, declared []string, whole bool) Impact {
	done, unknown := 0, !whole
	differs := len(declared) > 0
	for _, r := range runs {
		if !r.Done {
			continue
		}
		done++
		switch r.Change {
		case Same:
		case Inconclusive:
			unknown = true
		default:
			differs = true
		}
	}
	switch {
	case differs:
		return Impactful
	case unknown, done == 0:
		return Unknown
	}
	return Safe
}

// RemedyOf says what can be done about a call whose record is in a state, empty if none is
// kept, and that would have been otherwise in what.
func RemedyOf(state keep.MutationState, c Change, what replay.What) Remedy {
	switch {
	case c == Added:
		return Redo // nothing happened, and something should have
	case !ledger.MayHaveHappened(state):
		return Nothing
	case !state.Happened():
		return ByHand // whether it happened is a question of its own
	case c == Changed && what == replay.Payload:
		return Redo
	}
	return ByHand
}

// Declared says in sentences what two versions declare differently that no replay shows: when
// handlers run, and on what.
func Declared(from, to keep.Definition) []string {
	list := []string{}
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if from.OnBlocked != to.OnBlocked {
		say("onBlocked was %s and is %s", from.OnBlocked, to.OnBlocked)
	}
	for _, t := range from.Topics {
		if !to.HasTopic(t) {
			say("the topic %s is gone", t)
		}
	}
	for _, was := range from.Handlers {
		now, ok := to.Handler(was.Name)
		switch {
		case !ok:
			say("%s %s is gone", was.Kind, was.Name)
			continue
		case was.Kind != now.Kind:
			say("%s was a %s and is a %s", was.Name, was.Kind, now.Kind)
			continue
		}
		if was.Schedule != now.Schedule {
			say("the schedule of %s is another", was.Name)
		}
		if !slices.Equal(was.Subscribe, now.Subscribe) {
			say("%s subscribed to %v and subscribes to %v", was.Name, was.Subscribe, now.Subscribe)
		}
		if was.ItemsOf() != now.ItemsOf() {
			say("%s keeps its items or checkpoint under another name", was.Name)
		}
		if was.Order != now.Order {
			say("%s had another order", was.Name)
		}
	}
	for _, h := range to.Handlers {
		if _, ok := from.Handler(h.Name); !ok {
			say("%s %s is new", h.Kind, h.Name)
		}
	}
	return list
}
