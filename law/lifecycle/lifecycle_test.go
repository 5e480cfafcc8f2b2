package lifecycle_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

var t0 = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// mutations are the states of a run's mutation; empty is none.
var mutations = append([]keep.MutationState{""}, keep.MutationStates()...)

// A table writes a matrix as the laws below have it.
type table struct {
	text strings.Builder
	w    *tabwriter.Writer
}

func newTable(columns ...string) *table {
	t := &table{}
	t.text.WriteByte('\n')
	t.w = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.row("", columns...)
	return t
}

func (t *table) row(name string, cells ...string) {
	fmt.Fprintln(t.w, strings.Join(append([]string{name}, cells...), "\t"))
}

func (t *table) String() string {
	t.w.Flush()
	return t.text.String()
}

func check(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s\nall of it:\n%s", diff, got)
	}
}

func words[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		if out[i] = string(s); s == "" {
			out[i] = "none"
		}
	}
	return out
}

// The law of phases, written a second time: the status after each move, or a
// dash if it is refused.
const advanceLaw = `
                    preparing  prepared  mutating  mutated  emitting  committed  running
producer preparing  -          -         -         -        -         -          -
producer prepared   -          -         -         -        -         -          -
producer mutating   -          -         -         -        -         -          -
producer mutated    -          -         -         -        -         -          -
producer emitting   -          -         -         -        -         -          -
producer committed  -          -         -         -        -         -          -
producer running    -          -         -         -        -         committed  -
consumer preparing  -          active    active    active   active    committed  -
consumer prepared   -          -         active    active   active    committed  -
consumer mutating   -          -         -         active   active    committed  -
consumer mutated    -          -         -         -        active    committed  -
consumer emitting   -          -         -         -        -         committed  -
consumer committed  -          -         -         -        -         -          -
consumer running    -          -         -         -        -         -          -
job preparing       -          -         -         -        -         -          -
job prepared        -          -         -         -        -         -          -
job mutating        -          -         -         -        -         -          -
job mutated         -          -         -         -        -         -          -
job emitting        -          -         -         -        -         -          -
job committed       -          -         -         -        -         -          -
job running         -          -         -         -        -         committed  -
`

func TestAdvance(t *testing.T) {
	tab := newTable(words(keep.Phases())...)
	for _, kind := range keep.Kinds() {
		for _, from := range keep.Phases() {
			var cells []string
			for _, to := range keep.Phases() {
				cells = append(cells, advanced(t, kind, from, to))
			}
			tab.row(string(kind)+" "+string(from), cells...)
		}
	}
	check(t, advanceLaw, tab.String())
}

// advanced returns the status after the move, or a dash.
func advanced(t *testing.T, kind keep.Kind, from, to keep.Phase) string {
	t.Helper()
	r := full(kind, from, keep.StatusTransient)
	got, err := lifecycle.Advance(r, to, t0)
	if err != nil {
		if _, ok := errors.AsType[*lifecycle.PhaseError](err); !ok {
			t.Errorf("Advance(%s, %s): %v, want *PhaseError", from, to, err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("Advance(%s, %s) refused but changed the run:\n%s", from, to, diff)
		}
		return "-"
	}
	if got.Phase != to || got.Error != nil || !got.RetryAt.IsZero() || !got.UpdatedAt.Equal(t0) {
		t.Errorf("Advance(%s, %s) = phase %s, error %v, retry at %s", from, to, got.Phase, got.Error, got.RetryAt)
	}
	if got.Closed != (to == keep.Committed) {
		t.Errorf("Advance(%s, %s): closed %t", from, to, got.Closed)
	}
	return string(got.Status)
}

func TestAdvanceRefusesAClosedRun(t *testing.T) {
	r := full(keep.Consumer, keep.Prepared, keep.StatusTransient)
	r.Closed = true
	_, err := lifecycle.Advance(r, keep.Mutating, t0)
	const want = "run run_2: a consumer does not go from phase prepared to mutating"
	if err == nil || err.Error() != want {
		t.Errorf("Advance of a closed run: %v, want %q", err, want)
	}
}

// What a failure does, written a second time. A question mark stands before the
// question that is asked.
const judgeLaw = `
                  none                              in_flight              needs_reconcile        indeterminate                           failed                            applied                           skipped
transient         paused:transient retry            paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  paused:transient retry            paused:transient retry            paused:transient retry
transient, spent  paused:person ?retries_exhausted  paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  paused:person ?retries_exhausted  paused:person ?retries_exhausted  paused:person ?retries_exhausted
logic             failed:logic release ?logic       paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  failed:logic release ?logic       failed:logic ?logic               failed:logic ?logic
permission        paused:person ?permission         paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  paused:person ?permission         paused:person ?permission         paused:person ?permission
precondition      paused:person ?precondition       paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  paused:person ?precondition       paused:person ?precondition       paused:person ?precondition
unknown           failed:internal ?internal         paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  failed:internal ?internal         failed:internal ?internal         failed:internal ?internal
internal          failed:internal ?internal         paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  failed:internal ?internal         failed:internal ?internal         failed:internal ?internal
an unknown word   failed:internal ?internal         paused:reconciliation  paused:reconciliation  paused:reconciliation ?unknown_outcome  failed:internal ?internal         failed:internal ?internal         failed:internal ?internal
`

// Laws doubt-is-not-failure and explained: nothing but evidence ends a doubt,
// and whatever does not continue by itself asks a person.
func TestJudge(t *testing.T) {
	tab := newTable(words(mutations)...)
	for _, class := range append(keep.Classes(), "an unknown word") {
		for _, spent := range []bool{false, true} {
			var cells []string
			for _, m := range mutations {
				v := lifecycle.Classify(class, in(m), spent)
				if !v.Retry && v.Escalate == "" && v.Status != keep.StatusReconciliation {
					t.Errorf("Classify(%s, %s, %t) = %+v: nothing would ever move it", class, m, spent, v)
				}
				if v.Release && (lifecycle.Unknown(m) || lifecycle.Settled(m)) {
					t.Errorf("Classify(%s, %s, %t) gives reserved events back", class, m, spent)
				}
				cells = append(cells, verdict(v))
			}
			name := string(class)
			if class == keep.ClassTransient && spent {
				name += ", spent"
			} else if spent {
				continue // must be as if not spent; see TestJudgeCountsOnlyTransients
			}
			tab.row(name, cells...)
		}
	}
	check(t, judgeLaw, tab.String())
}

func verdict(v lifecycle.Consequence) string {
	text := string(v.Status)
	if v.Retry {
		text += " retry"
	}
	if v.Release {
		text += " release"
	}
	if v.Escalate != "" {
		text += " ?" + string(v.Escalate)
	}
	return text
}

func TestJudgeCountsOnlyTransients(t *testing.T) {
	for _, class := range keep.Classes() {
		for _, m := range mutations {
			fresh, spent := lifecycle.Classify(class, in(m), false), lifecycle.Classify(class, in(m), true)
			if class != keep.ClassTransient && fresh != spent {
				t.Errorf("Classify(%s, %s) = %+v, and %+v when retries are spent", class, m, fresh, spent)
			}
		}
	}
}

// Where the attempt after a consumer's run begins, written a second time. A plus
// stands for a new chain, and so a new key.
const startLaw = `
every other status
           none     in_flight  needs_reconcile  indeterminate  failed   applied  skipped
preparing  prepare  reconcile  reconcile        reconcile      prepare  next     next
prepared   mutate   reconcile  reconcile        reconcile      mutate   next     next
mutating   mutate   reconcile  reconcile        reconcile      mutate   next     next
mutated    next     reconcile  reconcile        reconcile      mutate   next     next
emitting   next     reconcile  reconcile        reconcile      mutate   next     next
committed  mutate   reconcile  reconcile        reconcile      mutate   next     next

failed:logic
           none      in_flight  needs_reconcile  indeterminate  failed    applied  skipped
preparing  prepare+  reconcile  reconcile        reconcile      prepare+  next     next
prepared   prepare+  reconcile  reconcile        reconcile      prepare+  next     next
mutating   prepare+  reconcile  reconcile        reconcile      prepare+  next     next
mutated    prepare+  reconcile  reconcile        reconcile      prepare+  next     next
emitting   prepare+  reconcile  reconcile        reconcile      prepare+  next     next
committed  prepare+  reconcile  reconcile        reconcile      prepare+  next     next
`

// Laws pinned and once: what was sent is asked about, what was applied is not
// repeated, and only a logic failure before that gives up the pinned work.
func TestStartOf(t *testing.T) {
	var got, logic string
	for _, status := range keep.RunStatuses() {
		tab := newTable(words(mutations)...)
		for _, phase := range keep.Phases()[:6] {
			var cells []string
			for _, m := range mutations {
				cells = append(cells, start(lifecycle.StartOf(keep.Run{Kind: keep.Consumer, Phase: phase, Status: status}, in(m))))
			}
			tab.row(string(phase), cells...)
		}
		switch text := tab.String(); {
		case status == keep.StatusLogic:
			logic = "\nfailed:logic" + text
		case got == "":
			got = "\nevery other status" + text
		case got != "\nevery other status"+text:
			t.Errorf("%s differs from the others:%s", status, text)
		}
	}
	check(t, startLaw, got+logic)
}

func start(s lifecycle.Start, newChain bool) string {
	if newChain {
		return string(s) + "+"
	}
	return string(s)
}

// A producer or job has one handler; a call in doubt is asked about first.
func TestStartOfOneHandler(t *testing.T) {
	for _, kind := range []keep.Kind{keep.Producer, keep.Job} {
		for _, status := range keep.RunStatuses() {
			for _, m := range mutations {
				want := "handler"
				if lifecycle.Unknown(m) {
					want = "reconcile"
				}
				got := start(lifecycle.StartOf(keep.Run{Kind: kind, Phase: keep.Running, Status: status}, in(m)))
				if got != want {
					t.Errorf("StartOf(%s, %s, %q) = %s, want %s", kind, status, m, got, want)
				}
			}
		}
	}
}

// full returns a run with a value in every field.
func full(kind keep.Kind, phase keep.Phase, status keep.RunStatus) keep.Run {
	return keep.Run{
		ID: "run_2", Chain: "run_1", RetryOf: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h",
		Kind: kind, Phase: phase, Status: status,
		Trigger:      keep.EventRef{Topic: "t", MessageID: "1"},
		Reservations: []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"1"}}},
		Prepared:     []byte(`{"data":1}`), Mutation: "mut_1", Title: "title", WakeAt: t0, SeenSeq: 9,
		Error: keep.Failf(keep.ClassTransient, "code", "no"), RetryAt: t0, Retries: 2, Crashes: 3,
		Rev: 4, CreatedAt: t0.Add(-time.Hour), UpdatedAt: t0.Add(-time.Minute),
	}
}

// What the next attempt keeps of a run, field by field (law: pinned). The names
// of columns say where it begins.
const againLaw = `
              prepare  prepare+   mutate    reconcile              next     handler
ID            run_3    run_3      run_3     run_3                  run_3    run_3
Chain         kept     run_3      kept      kept                   kept     kept
RetryOf       run_2    run_2      run_2     run_2                  run_2    run_2
Workflow      kept     kept       kept      kept                   kept     kept
Version       1.1      1.1        1.1       1.1                    1.1      1.1
Handler       kept     kept       kept      kept                   kept     kept
Kind          kept     kept       kept      kept                   kept     kept
Phase         kept     preparing  prepared  kept                   mutated  kept
Status        active   active     active    paused:reconciliation  active   active
Trigger       zero     zero       kept      kept                   kept     zero
Reservations  zero     zero       kept      kept                   kept     zero
Prepared      zero     zero       kept      kept                   kept     zero
Mutation      zero     zero       kept      kept                   kept     zero
Title         zero     zero       kept      kept                   kept     zero
WakeAt        zero     zero       kept      kept                   kept     zero
SeenSeq       zero     zero       kept      kept                   kept     zero
Error         zero     zero       zero      zero                   zero     zero
RetryAt       zero     zero       zero      zero                   zero     zero
Retries       3        zero       3         kept                   3        3
Crashes       kept     zero       kept      kept                   kept     kept
Lane          kept     kept       kept      kept                   kept     kept
Closed        kept     kept       kept      kept                   kept     kept
Idle          kept     kept       kept      kept                   kept     kept
Rev           zero     zero       zero      zero                   zero     zero
CreatedAt     now      now        now       now                    now      now
UpdatedAt     now      now        now       now                    now      now
`

func TestAgain(t *testing.T) {
	cases := []struct {
		kind   keep.Kind
		phase  keep.Phase
		status keep.RunStatus
		m      keep.MutationState
	}{
		{keep.Consumer, keep.Preparing, keep.StatusTransient, ""},
		{keep.Consumer, keep.Mutating, keep.StatusLogic, keep.Failed},
		{keep.Consumer, keep.Mutating, keep.StatusTransient, keep.Failed},
		{keep.Consumer, keep.Mutating, keep.StatusCrashed, keep.InFlight},
		{keep.Consumer, keep.Emitting, keep.StatusTransient, keep.Applied},
		{keep.Job, keep.Running, keep.StatusTransient, keep.Applied},
	}
	var columns []string
	cells := make(map[string][]string)
	var fields []string
	for _, c := range cases {
		r := full(c.kind, c.phase, c.status)
		columns = append(columns, start(lifecycle.StartOf(r, in(c.m))))
		next, closed := lifecycle.NextAttempt(r, in(c.m), "run_3", keep.Version{Major: 1, Minor: 1}, t0)
		checkClosed(t, r, closed)
		fields = fields[:0]
		for i := range reflect.TypeFor[keep.Run]().NumField() {
			name := reflect.TypeFor[keep.Run]().Field(i).Name
			fields = append(fields, name)
			cells[name] = append(cells[name], change(reflect.ValueOf(r).Field(i), reflect.ValueOf(next).Field(i)))
		}
	}
	tab := newTable(columns...)
	for _, name := range fields {
		tab.row(name, cells[name]...)
	}
	check(t, againLaw, tab.String())
}

// change says what became of a field.
func change(before, after reflect.Value) string {
	switch {
	case reflect.DeepEqual(before.Interface(), after.Interface()):
		return "kept"
	case after.IsZero():
		return "zero"
	case after.Interface() == any(t0):
		return "now"
	}
	return fmt.Sprint(after.Interface())
}

// checkClosed checks that closing a run changes nothing else of it.
func checkClosed(t *testing.T, before, closed keep.Run) {
	t.Helper()
	before.Closed, before.RetryAt, before.UpdatedAt = true, time.Time{}, t0
	if diff := cmp.Diff(before, closed); diff != "" {
		t.Errorf("the closed run: want -, got +:\n%s", diff)
	}
}

// A retry counts, a crash does not, and whatever a person did begins anew.
func TestAgainCounts(t *testing.T) {
	for _, status := range keep.RunStatuses() {
		retries, crashes := 0, 3
		switch status {
		case keep.StatusTransient:
			retries = 3
		case keep.StatusCrashed:
			retries = 2
		case keep.StatusInternal, keep.StatusLogic:
			crashes = 0
		}
		next, _ := lifecycle.NextAttempt(full(keep.Consumer, keep.Prepared, status), keep.Mutation{}, "run_3", keep.Version{}, t0)
		if next.Retries != retries || next.Crashes != crashes {
			t.Errorf("after %s: %d retries, %d crashes; want %d, %d", status, next.Retries, next.Crashes, retries, crashes)
		}
	}
	next, _ := lifecycle.NextAttempt(full(keep.Consumer, keep.Mutating, keep.StatusInternal), in(keep.InFlight), "run_3", keep.Version{}, t0)
	if next.Crashes != 3 {
		t.Errorf("a doubt after a crash loop: %d crashes, want 3: nobody has looked yet", next.Crashes)
	}
}

func TestFail(t *testing.T) {
	f := keep.Failf(keep.ClassLogic, "throw", "no")
	at := t0.Add(time.Minute)
	got := lifecycle.Fail(full(keep.Consumer, keep.Mutating, keep.StatusActive), f,
		lifecycle.Consequence{Status: keep.StatusLogic, Release: true}, at, t0)
	if got.Status != keep.StatusLogic || got.Phase != keep.Mutating || got.Error != f || !got.RetryAt.IsZero() ||
		got.Reservations == nil || got.Crashes != 0 || got.Closed {
		t.Errorf("Fail with release = %+v", got)
	}
	got = lifecycle.Fail(full(keep.Consumer, keep.Mutating, keep.StatusActive), f,
		lifecycle.Consequence{Status: keep.StatusTransient, Retry: true}, at, t0)
	if got.Status != keep.StatusTransient || !got.RetryAt.Equal(at) || got.Reservations == nil {
		t.Errorf("Fail with retry = %+v", got)
	}
}

// Law bounded: a run that kills its host does so ten times at most.
func TestCrash(t *testing.T) {
	r := full(keep.Consumer, keep.Prepared, keep.StatusActive)
	r.Crashes, r.RetryAt = 0, time.Time{}
	for n := 1; n <= lifecycle.MaxCrashes; n++ {
		crashed, often := lifecycle.Crash(r, t0)
		last := n == lifecycle.MaxCrashes
		if often != last || crashed.Crashes != n || (crashed.Status == keep.StatusInternal) != last || crashed.RetryAt.IsZero() != last {
			t.Fatalf("crash %d = %s, too often %t, retry at %s", n, crashed.Status, often, crashed.RetryAt)
		}
		if !last {
			r, _ = lifecycle.NextAttempt(crashed, keep.Mutation{}, "run_3", keep.Version{}, t0)
		}
	}
}

// Whose handler is gone has crashed as often as before. One whose crash loop a person saw may crash as often again.
func TestHandlerGoneCounts(t *testing.T) {
	for status, want := range map[keep.RunStatus]int{keep.StatusCrashed: 9, keep.StatusTransient: 9, keep.StatusInternal: 0} {
		r := full(keep.Consumer, keep.Prepared, status)
		r.Crashes = 9
		gone := lifecycle.HandlerGone(r, keep.Version{Major: 2}, t0)
		back, due := lifecycle.Deployed(gone, t0)
		if next, _ := lifecycle.NextAttempt(back, keep.Mutation{}, "run_3", keep.Version{Major: 3}, t0); !due || next.Crashes != want {
			t.Errorf("after %s: due %t, %d crashes; want %d", status, due, next.Crashes, want)
		}
	}
}

// A logic failure waits for a new version, and so does who waits for an approval: that was
// asked for the version before. Once it is answered, the next attempt finds out.
func TestDeployed(t *testing.T) {
	for _, status := range keep.RunStatuses() {
		for _, closed := range []bool{false, true} {
			r := full(keep.Consumer, keep.Prepared, status)
			r.RetryAt, r.Closed = time.Time{}, closed
			got, freed := lifecycle.Deployed(r, t0)
			want := (status == keep.StatusLogic || status == keep.StatusApproval) && !closed
			if freed != want || got.RetryAt.Equal(t0) != want {
				t.Errorf("Deployed(%s, closed %t) = %t, retry at %s; want %t", status, closed, freed, got.RetryAt, want)
			}
			if diff := cmp.Diff(r, got); !want && diff != "" {
				t.Errorf("Deployed(%s) changed the run:\n%s", status, diff)
			}
		}
	}
	r := full(keep.Consumer, keep.Prepared, keep.StatusApproval)
	for _, tt := range []struct {
		at    time.Time
		waits bool
	}{{r.UpdatedAt.Add(time.Hour), true}, {r.UpdatedAt, false}} { // the end of the question; the time of its answer
		r.RetryAt, r.Closed = tt.at, false
		if _, freed := lifecycle.Deployed(r, t0); freed != tt.waits || lifecycle.AwaitsApproval(r) != tt.waits {
			t.Errorf("an approval with the next attempt at %s waits: %t, is freed: %t; want %t", tt.at, lifecycle.AwaitsApproval(r), freed, tt.waits)
		}
	}
}

// A person's skip before the mutation ends the run where it is.
func TestAbort(t *testing.T) {
	r := full(keep.Consumer, keep.Prepared, keep.StatusTransient)
	got := lifecycle.Abort(r, t0)
	r.Status, r.Closed, r.RetryAt, r.UpdatedAt = keep.StatusAborted, true, time.Time{}, t0
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("Abort: want -, got +:\n%s", diff)
	}
}

// in returns a record in a state.
func in(s keep.MutationState) keep.Mutation { return keep.Mutation{State: s} }

// A key that was ever in doubt is not given up, whatever stopped the run.
func TestADoubtedKeyIsKept(t *testing.T) {
	m := keep.Mutation{Key: "mut_1", State: keep.Failed, Doubted: true}
	for _, status := range keep.RunStatuses() {
		r := full(keep.Consumer, keep.Mutating, status)
		if start, fresh := lifecycle.StartOf(r, m); start != lifecycle.FromMutate || fresh {
			t.Errorf("%s: starts from %s, new chain %t; want from mutate in the same chain", status, start, fresh)
		}
		next, _ := lifecycle.NextAttempt(r, m, "run_3", keep.Version{}, t0)
		if next.Chain != r.Chain || len(next.Reservations) == 0 || next.Mutation != r.Mutation {
			t.Errorf("%s: the next attempt has chain %s, %d reservations and mutation %q", status, next.Chain, len(next.Reservations), next.Mutation)
		}
	}
	if c := lifecycle.Classify(keep.ClassLogic, m, false); c.Release {
		t.Error("a logic failure gives the events of a doubted call back")
	}
}
