package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

var t0 = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// settled is later than any deadline and settle time of the records here.
var settled = t0.Add(time.Hour)

// The whole law, written a second time. A dash is a refused move.
const law = `
                 happened  absent  unsure           no way to ask  attempts spent  person: didn't happen  person: happened  person: skip  person: check again  new attempt
in_flight        applied   failed  needs_reconcile  indeterminate  -               -                      -                 -             -                    -
needs_reconcile  applied   failed  needs_reconcile  indeterminate  indeterminate   -                      -                 -             -                    -
indeterminate    -         -       -                -              -               failed                 applied           skipped       needs_reconcile      -
failed           -         -       -                -              -               -                      -                 -             -                    in_flight
applied          -         -       -                -              -               -                      -                 -             -                    -
skipped          -         -       -                -              -               -                      -                 -             -                    -
`

// Laws settled-stays and doubt-is-not-failure: the complete matrix.
func TestLaw(t *testing.T) {
	var got strings.Builder
	w := tabwriter.NewWriter(&got, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for _, ev := range ledger.Evidences() {
		fmt.Fprintf(w, "\t%s", ev)
	}
	fmt.Fprintln(w)
	for _, from := range keep.MutationStates() {
		fmt.Fprint(w, from)
		for _, ev := range ledger.Evidences() {
			fmt.Fprintf(w, "\t%s", outcome(t, from, ev))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	if got.String() != law {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), law)
	}
}

// outcome returns where a record in that state moves on ev, or a dash.
func outcome(t *testing.T, from keep.MutationState, ev ledger.Evidence) string {
	t.Helper()
	m := record(from)
	var got keep.Mutation
	var move keep.Move
	var err error
	if ev == ledger.NewAttempt {
		got, move, err = ledger.Reopen(m, call(), settled)
	} else {
		got, move, err = ledger.Apply(m, ledger.Fact{Evidence: ev, By: "test", AskedAt: settled}, settled)
	}
	if _, ok := errors.AsType[*ledger.MoveError](err); ok {
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("Apply(%s, %s) refused but changed the record:\n%s", from, ev, diff)
		}
		return "-"
	}
	if err != nil {
		t.Errorf("Apply(%s, %s): %v, want *MoveError", from, ev, err)
	}
	if move.From != from || move.To != got.State || move.Evidence != string(ev) || !move.At.Equal(settled) {
		t.Errorf("Apply(%s, %s): history line %+v does not tell the move to %s", from, ev, move, got.State)
	}
	return string(got.State)
}

func record(state keep.MutationState) keep.Mutation {
	m, _ := ledger.Open(call(), t0)
	m.State = state
	return m
}

func call() ledger.Call {
	return ledger.Call{Key: "mut_1", Workflow: "w", Run: "run_1", Tool: "crm.create", Token: "tok",
		Deadline: t0.Add(10 * time.Second), SettleAfter: 2 * time.Second, CanReconcile: true}
}

// Law doubt-is-not-failure: an absence before call_deadline + settle_after
// leaves the record in doubt and plans the lookup that will count.
// Moves are what the stores' Check knows of the law.
func TestMoves(t *testing.T) {
	want := []ledger.Step{
		{"", "in_flight"},
		{"in_flight", "needs_reconcile"}, {"in_flight", "indeterminate"}, {"in_flight", "failed"}, {"in_flight", "applied"},
		{"needs_reconcile", "needs_reconcile"}, {"needs_reconcile", "indeterminate"}, {"needs_reconcile", "failed"}, {"needs_reconcile", "applied"},
		{"indeterminate", "needs_reconcile"}, {"indeterminate", "failed"}, {"indeterminate", "applied"}, {"indeterminate", "skipped"},
		{"failed", "in_flight"}, {"failed", "applied"},
	}
	if got := ledger.Moves(); !slices.Equal(got, want) {
		t.Errorf("Moves = %v, want %v", got, want)
	}
}

func TestEarlyAbsenceProvesNothing(t *testing.T) {
	m := record(keep.NeedsReconcile)
	settles := t0.Add(12 * time.Second)
	early := settles.Add(-time.Millisecond)
	for _, c := range []struct{ asked, at time.Time }{
		{t0, t0}, {t0.Add(11 * time.Second), t0.Add(11 * time.Second)}, {early, early},
		{early, settled}, {time.Time{}, settled}, // what came late was seen early
		{settled, early}, // the clock was set back
	} {
		f := ledger.Fact{Evidence: ledger.Absent, AskedAt: c.asked}
		if _, _, err := ledger.Apply(m, f, c.at); err == nil {
			t.Errorf("Apply(absent) at %s, asked at %s: no error, want a refusal before %s", c.at, c.asked, settles)
		}
		got, move, err := ledger.AfterLookup(m, f, ledger.Limit{Attempts: 1}, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != keep.NeedsReconcile || got.ReconcileAttempts != 0 || !got.NextReconcileAt.Equal(settles) {
			t.Errorf("AfterLookup(absent) at %s, asked at %s = %s after %d attempts, next %s; want needs_reconcile, 0, %s",
				c.at, c.asked, got.State, got.ReconcileAttempts, got.NextReconcileAt, settles)
		}
		if !strings.Contains(move.Detail, "may still appear") {
			t.Errorf("history says %q, want why the absence does not count", move.Detail)
		}
	}
	got, _, err := ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Absent, AskedAt: settles}, ledger.Limit{Attempts: 1}, settles)
	if err != nil || got.State != keep.Failed {
		t.Errorf("AfterLookup(absent) at the settle time = %s, %v; want failed", got.State, err)
	}
}

// An absence that nothing witnesses moves nothing, and once the effect would have
// settled a person is asked (law: witnessed).
func TestUnwitnessedAbsenceAsksAPerson(t *testing.T) {
	m := record(keep.NeedsReconcile)
	m.Error = keep.Failf(keep.ClassUnknown, "timeout", "no answer")
	f := ledger.Fact{Evidence: ledger.Absent, Unwitnessed: true, By: "reconcile", AskedAt: settled}
	if _, _, err := ledger.Apply(m, f, settled); err == nil {
		t.Error("an unwitnessed absence was believed")
	}
	limit := ledger.Limit{Attempts: 10, Next: settled.Add(time.Minute)}
	early, _, err := ledger.AfterLookup(m, f, limit, m.CallDeadline)
	if err != nil || early.State != keep.NeedsReconcile || !early.NextReconcileAt.Equal(m.SettlesAt()) {
		t.Errorf("before it settles: %s, next %s, %v", early.State, early.NextReconcileAt, err)
	}
	late, _, err := ledger.AfterLookup(m, f, limit, settled)
	if err != nil || late.State != keep.Indeterminate || late.Error.Code != "not-witnessed" {
		t.Errorf("after it settled: %s, %v, %v; want indeterminate", late.State, late.Error, err)
	}
}

// Law once: a call whose end the host learns only after its deadline may have been
// sent until then, so its effect settles from then on. The deadline of a call
// that ends in time stays, and so does that of a record that is asked about.
func TestALateDoubtSettlesLater(t *testing.T) {
	deadline, late := t0.Add(10*time.Second), t0.Add(time.Hour)
	for _, tt := range []struct {
		from keep.MutationState
		ev   ledger.Evidence
		at   time.Time
		want time.Time
	}{
		{keep.InFlight, ledger.Unsure, t0, deadline},
		{keep.InFlight, ledger.Unsure, late, late},
		{keep.InFlight, ledger.CannotAsk, late, late},
		{keep.NeedsReconcile, ledger.Unsure, late, deadline},
	} {
		got, _, err := ledger.Apply(record(tt.from), ledger.Fact{Evidence: tt.ev}, tt.at)
		if err != nil || !got.CallDeadline.Equal(tt.want) {
			t.Errorf("Apply(%s, %s) at %s: deadline %s, %v; want %s", tt.from, tt.ev, tt.at, got.CallDeadline, err, tt.want)
		}
	}
}

// Law once: while the call itself is out, only finding its effect ends the doubt.
// Nothing else is believed, however late, and nothing is counted.
func TestNothingIsBelievedWhileTheCallIsOut(t *testing.T) {
	m := record(keep.NeedsReconcile)
	late, next := t0.Add(time.Hour), t0.Add(2*time.Hour)
	for _, ev := range []ledger.Evidence{ledger.Absent, ledger.Unsure} {
		got, move, err := ledger.AfterLookup(m, ledger.Fact{Evidence: ev, Out: true}, ledger.Limit{Attempts: 1, Next: next}, late)
		if err != nil || got.State != keep.NeedsReconcile || got.ReconcileAttempts != 0 || !got.NextReconcileAt.Equal(next) {
			t.Errorf("AfterLookup(%s, out) = %s after %d attempts, next %s, %v; want needs_reconcile, 0, %s", ev, got.State, got.ReconcileAttempts, got.NextReconcileAt, err, next)
		}
		if !strings.Contains(move.Detail, "may still be sent") {
			t.Errorf("history says %q, want why nothing counts", move.Detail)
		}
	}
	got, _, err := ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Happened, Out: true}, ledger.Limit{Attempts: 1}, late)
	if err != nil || got.State != keep.Applied {
		t.Errorf("AfterLookup(happened, out) = %s, %v; want applied", got.State, err)
	}
}

// The service that says no in its own answer is believed at once.
func TestRefusalIsBelieved(t *testing.T) {
	got, _, err := ledger.Apply(record(keep.InFlight), ledger.Fact{Evidence: ledger.Absent}, t0)
	if err != nil || got.State != keep.Failed {
		t.Errorf("Apply(in_flight, absent) = %s, %v; want failed", got.State, err)
	}
}

func TestAskedCountsAndSpends(t *testing.T) {
	m := record(keep.NeedsReconcile)
	next := settled.Add(time.Minute)
	limit := ledger.Limit{Attempts: 3, Next: next}
	var err error
	for i := range 2 {
		if m, _, err = ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Unsure}, limit, settled); err != nil {
			t.Fatal(err)
		}
		if m.State != keep.NeedsReconcile || m.ReconcileAttempts != i+1 || !m.NextReconcileAt.Equal(next) {
			t.Fatalf("after lookup %d: %s, %d attempts, next %s", i+1, m.State, m.ReconcileAttempts, m.NextReconcileAt)
		}
	}
	if m, _, err = ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Unsure}, limit, settled); err != nil {
		t.Fatal(err)
	}
	if m.State != keep.Indeterminate || !m.NextReconcileAt.IsZero() {
		t.Errorf("after the last lookup: %s, next %s; want indeterminate, never", m.State, m.NextReconcileAt)
	}
	m, _, err = ledger.Apply(m, ledger.Fact{Evidence: ledger.CheckAgain, By: "ann"}, settled)
	if err != nil || m.State != keep.NeedsReconcile || m.ReconcileAttempts != 0 {
		t.Errorf("check again = %s after %d attempts, %v; want needs_reconcile, 0", m.State, m.ReconcileAttempts, err)
	}
}

// A call in flight is not asked about: only its own answer, or a doubt, moves it.
func TestOnlyDoubtIsAskedAbout(t *testing.T) {
	for _, state := range keep.MutationStates() {
		_, _, err := ledger.AfterLookup(record(state), ledger.Fact{Evidence: ledger.Absent}, ledger.Limit{Attempts: 1}, settled)
		if (err == nil) != (state == keep.NeedsReconcile) {
			t.Errorf("AfterLookup of a record that is %s: %v", state, err)
		}
	}
}

func TestInlineLookupUsesNoAttempt(t *testing.T) {
	got, _, err := ledger.AfterInlineLookup(record(keep.NeedsReconcile), ledger.Fact{Evidence: ledger.Unsure}, settled, settled)
	if err != nil || got.ReconcileAttempts != 0 || got.State != keep.NeedsReconcile {
		t.Errorf("AfterInlineLookup(unsure) = %s, %d attempts, %v; want needs_reconcile, 0", got.State, got.ReconcileAttempts, err)
	}
}

func TestCheckAgainNeedsAToolThatCanBeAsked(t *testing.T) {
	m := record(keep.Indeterminate)
	m.CanReconcile = false
	if _, _, err := ledger.Apply(m, ledger.Fact{Evidence: ledger.CheckAgain}, settled); err == nil {
		t.Error("check again of a tool that cannot be asked: no error")
	}
}

func TestReopenKeepsTokenAndHistory(t *testing.T) {
	m := record(keep.Failed)
	c := call()
	c.Token, c.Payload, c.Run = "another", []byte(`{"a":1}`), "run_2"
	got, move, err := ledger.Reopen(m, c, settled)
	if err != nil {
		t.Fatal(err)
	}
	if got.Token != "tok" || got.Attempts != 2 || got.Run != "run_2" || !got.CreatedAt.Equal(t0) {
		t.Errorf("Reopen = token %q, attempt %d, run %s, created %s; want tok, 2, run_2, %s",
			got.Token, got.Attempts, got.Run, got.CreatedAt, t0)
	}
	if move.From != keep.Failed || move.To != keep.InFlight {
		t.Errorf("history says %s to %s", move.From, move.To)
	}
}

// No sequence of evidence moves a settled record, and none makes an unknown
// outcome failed before its time.
func FuzzApply(f *testing.F) {
	f.Add([]byte{2, 1, 0, 5})
	f.Fuzz(func(t *testing.T, script []byte) {
		m, now := record(keep.InFlight), t0
		for i, b := range script {
			before := m
			ev := ledger.Evidences()[int(b)%len(ledger.Evidences())]
			now = now.Add(time.Duration(b>>4) * time.Second)
			switch {
			case ev == ledger.NewAttempt:
				m, _, _ = ledger.Reopen(m, call(), now)
			case m.State != keep.NeedsReconcile:
				m, _, _ = ledger.Apply(m, ledger.Fact{Evidence: ev, By: "fuzz", AskedAt: now}, now)
			default:
				m, _, _ = ledger.AfterLookup(m, ledger.Fact{Evidence: ev, By: "fuzz", AskedAt: now}, ledger.Limit{Attempts: 3, Next: now}, now)
			}
			if (before.State == keep.Applied || before.State == keep.Skipped) && m.State != before.State {
				t.Fatalf("step %d: settled %s became %s", i, before.State, m.State)
			}
			if before.State == keep.NeedsReconcile && m.State == keep.Failed && now.Before(before.SettlesAt()) {
				t.Fatalf("step %d: believed an absence at %s, before %s", i, now, before.SettlesAt())
			}
			if m.State != keep.Applied && m.Result != nil {
				t.Fatalf("step %d: %s has a result", i, m.State)
			}
		}
	})
}

// The greater age counts, and a record that was changed before it was made is of a clock
// that was set back.
func TestKeyAge(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name         string
		now, updated time.Duration // after made
		elapsed      time.Duration
		want         time.Duration
		agree        bool
	}{
		{"both say it", time.Hour, 0, time.Hour + time.Second, time.Hour + time.Second, true},
		{"the clock was fast and was set right", -time.Hour, 0, 2 * time.Hour, 2 * time.Hour, false},
		{"the machine slept", 3 * time.Hour, 0, time.Hour, 3 * time.Hour, false},
		{"nobody counted", time.Hour, 0, -1, time.Hour, true},
		{"nobody counted, and it is of tomorrow", -time.Hour, 0, -1, ledger.Forever, false},
		{"nobody counted, and it was changed before it was made", time.Hour, -time.Minute, -1, ledger.Forever, false},
		{"nobody counted, and clocks differ a little", -time.Second, 0, -1, 0, true},
	} {
		m := keep.Mutation{CreatedAt: made, UpdatedAt: made.Add(tt.updated)}
		if age, agree := ledger.KeyAge(m, made.Add(tt.now), tt.elapsed); age != tt.want || agree != tt.agree {
			t.Errorf("%s: age %v, agree %t; want %v, %t", tt.name, age, agree, tt.want, tt.agree)
		}
	}
}

// What a person said of a doubt counts until a lookup ends another one.
func TestVouched(t *testing.T) {
	type m = keep.Move
	said := m{From: keep.Indeterminate, To: keep.Failed, By: "ann", Evidence: string(ledger.DidNotHappen)}
	refused := m{From: keep.InFlight, To: keep.Failed, By: "call", Evidence: string(ledger.Absent)}
	absent := m{From: keep.NeedsReconcile, To: keep.Failed, By: "reconcile", Evidence: string(ledger.Absent)}
	for _, c := range []struct {
		moves []m
		want  bool
	}{
		{nil, false}, {[]m{said}, true}, {[]m{said, refused}, true}, {[]m{refused}, false}, {[]m{absent, refused}, false},
		{[]m{said, absent}, false}, {[]m{absent, said}, true},
	} {
		if got := ledger.Vouched(c.moves); got != c.want {
			t.Errorf("Vouched(%+v) = %t", c.moves, got)
		}
	}
}

// Once a tool is back that was missing, a lookup that brings nothing does not leave the record saying that it is.
func TestAToolThatIsBack(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	m := keep.Mutation{Key: "mut_1", State: keep.NeedsReconcile, CanReconcile: true, Error: keep.Failf(keep.ClassUnknown, keep.CodeToolMissing, "there is no tool")}
	m, _, err := ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: "503"}, ledger.Limit{Attempts: 10, Next: now}, now)
	if err != nil || ledger.ToolMissing(m.Error) || m.Error.Message != "503" {
		t.Errorf("the record says %v, %v", m.Error, err)
	}
	m.Error = keep.Failf(keep.ClassUnknown, keep.CodeToolMissing, "connection reset; there is no tool")
	m, _, err = ledger.AfterLookup(m, ledger.Fact{Evidence: ledger.Absent, By: "reconcile", AskedAt: now}, ledger.Limit{Attempts: 10, Next: now}, now)
	if err != nil || m.Error == nil || !strings.HasPrefix(m.Error.Message, "connection reset") {
		t.Errorf("the record says %v, %v: want why it was in doubt", m.Error, err)
	}
}

// A lookup may fail with the code of a call that was not sent: of the call that says nothing.
func TestUnsentIsSaidOfCallsAlone(t *testing.T) {
	refused := keep.Failf(keep.ClassPermission, keep.CodeAccount, "there is no account")
	m := record(keep.NeedsReconcile)
	m.Doubted, m.Error, m.State = true, refused, keep.Indeterminate
	m, _, err := ledger.Apply(m, ledger.Fact{Evidence: ledger.DidNotHappen, By: "ada"}, t0)
	if err != nil || m.State != keep.Failed || ledger.Unsent(m) {
		t.Errorf("a doubt that a person ended: %s, %v, unsent %t", m.State, err, ledger.Unsent(m))
	}
	m, _, err = ledger.Apply(record(keep.InFlight), ledger.Fact{Evidence: ledger.Absent, By: "call", Failure: refused}, t0)
	if err != nil || !ledger.Unsent(m) {
		t.Errorf("a call that was refused before it was sent: %s, %v, unsent %t", m.State, err, ledger.Unsent(m))
	}
}

// A call that is about to be sent again says until when, and does not any more once a lookup brought something.
func TestSendAgain(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	m := keep.Mutation{Key: "mut", State: keep.NeedsReconcile, CallDeadline: now.Add(-time.Second), NextReconcileAt: now, SettleAfter: time.Second, CanReconcile: true}
	if until := m.SentAgainUntil(); !until.IsZero() {
		t.Errorf("a call in doubt is sent again until %s", until)
	}
	again := ledger.SendAgain(m, now.Add(time.Minute), now)
	if until := again.SentAgainUntil(); !until.Equal(now.Add(time.Minute)) || again.State != m.State || !again.UpdatedAt.Equal(now) {
		t.Errorf("it is sent again until %s, in state %s", until, again.State)
	}
	longer := m
	longer.CallDeadline = now.Add(time.Hour)
	if until := ledger.SendAgain(longer, now.Add(time.Minute), now).SentAgainUntil(); !until.Equal(longer.CallDeadline) {
		t.Errorf("the call itself may be sent until %s, and it says %s", longer.CallDeadline, until)
	}
	for _, f := range []ledger.Fact{{Evidence: ledger.Unsure, By: "reconcile"}, {Evidence: ledger.Absent, By: "reconcile", AskedAt: now}, {Evidence: ledger.Happened, By: "reconcile"}} {
		after, _, err := ledger.AfterLookup(m, f, ledger.Limit{Attempts: 9, Next: now.Add(time.Second)}, now)
		if until := after.SentAgainUntil(); err != nil || until.After(now) {
			t.Errorf("after %s it is sent again until %s, %v", f.Evidence, until, err)
		}
	}
}

// A lookup is brought forward unless it is made at this moment, or would not be sooner.
func TestAskSooner(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	m := keep.Mutation{Key: "mut", State: keep.NeedsReconcile, CallDeadline: now.Add(-time.Second), NextReconcileAt: now.Add(time.Minute)}
	if sooner, is := ledger.AskSooner(m, now); !is || !sooner.NextReconcileAt.Equal(now) || !sooner.UpdatedAt.Equal(now) {
		t.Errorf("AskSooner = %t, at %s", is, sooner.NextReconcileAt)
	}
	again, due := ledger.SendAgain(m, now.Add(time.Minute), now), m
	due.NextReconcileAt = now
	for name, m := range map[string]keep.Mutation{"sent again": again, "due": due} {
		if same, is := ledger.AskSooner(m, now); is || !same.SentAgainUntil().Equal(m.SentAgainUntil()) || !same.NextReconcileAt.Equal(m.NextReconcileAt) {
			t.Errorf("%s: AskSooner = %t, at %s", name, is, same.NextReconcileAt)
		}
	}
	if _, is := ledger.AskSooner(again, now.Add(time.Minute)); is {
		t.Error("a lookup that is due is brought forward")
	}
}

// The last attempt counts, and whether that was in doubt.
func TestLastAttempt(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	made, again := string(ledger.NewAttempt), keep.Move{At: at(5), From: keep.Failed, To: keep.InFlight, Evidence: string(ledger.NewAttempt)}
	moves := []keep.Move{{At: at(1), To: keep.InFlight, Evidence: made}, {At: at(2), From: keep.InFlight, To: keep.NeedsReconcile}, {At: at(3), To: keep.Failed}}
	if when, doubted := ledger.LastAttempt(moves); !when.Equal(at(1)) || !doubted {
		t.Errorf("LastAttempt = %s, %t; want %s, true", when, doubted, at(1))
	}
	if when, doubted := ledger.LastAttempt(append(moves, again, keep.Move{At: at(6), To: keep.Failed})); !when.Equal(at(5)) || doubted {
		t.Errorf("LastAttempt = %s, %t; want %s, false", when, doubted, at(5))
	}
}
