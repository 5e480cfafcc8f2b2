package key_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keep-run/keep/law/key"
)

// law is the complete table of moves: what a record is after each event, as its
// owner, a probe or a person reports it. "-" is refused.
const law = `
                      begun        renewed      answered  streamed           nothing   unsure   lease_ended  new_attempt  happened  absent    forgotten
(none)                in_progress  -            -         -                  -         -        -            -            -         -         -
in_progress           -            in_progress  done      done_without_body  released  unknown  unknown      -            -         -         -
in_progress(atomic)   -            in_progress  done      done_without_body  released  unknown  released     -            -         -         -
in_progress(live)     -            in_progress  done      done_without_body  released  unknown  -            -            -         -         -
in_progress(fenced)   -            -            -         -                  -         -        unknown      -            -         -         -
unknown               -            in_progress  done      done_without_body  released  unknown  -            in_progress  done      released  released
unknown(second)       -            in_progress  done      done_without_body  unknown   unknown  -            -            done      released  released
unknown(fenced)       -            -            -         -                  -         -        -            in_progress  done      released  released
done                  -            -            -         -                  -         -        -            -            -         -         released
done(expired)         in_progress  -            -         -                  -         -        -            -            -         -         -
done_without_body     -            -            -         -                  -         -        -            -            -         -         released
released              in_progress  -            -         -                  -         -        -            -            -         -         -
released(former)      -            -            -         -                  -         -        -            -            -         -         -
`

var t0 = time.UnixMilli(1_800_000_000_000).UTC()

// rows returns the records that the table speaks of, as they are at t0.
func rows() []struct {
	name string
	r    key.Record
} {
	rec := func(s key.State, change func(*key.Record)) key.Record {
		r := key.Record{ID: key.NewID("", "", "k"), Version: 2, Key: "k", State: s, Fence: 7, Rev: 1, LeaseUntil: t0,
			Fingerprint: key.Fingerprint{2}, CreatedAt: t0.Add(-time.Hour), UpdatedAt: t0.Add(-time.Hour), ExpiresAt: t0.Add(time.Hour)}
		if s == key.Unknown {
			r.DoubtAt, r.Doubts = t0.Add(-time.Minute), 1
		}
		if s == key.Done || s == key.DoneWithoutBody {
			r.Answer.Status = 201
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	fenced := func(r *key.Record) { r.Fence = 8 }
	return []struct {
		name string
		r    key.Record
	}{
		{"(none)", key.Record{}},
		{"in_progress", rec(key.InProgress, nil)},
		{"in_progress(atomic)", rec(key.InProgress, func(r *key.Record) { r.Atomic = true })},
		{"in_progress(live)", rec(key.InProgress, func(r *key.Record) { r.LeaseUntil = t0.Add(time.Second) })},
		{"in_progress(fenced)", rec(key.InProgress, fenced)},
		{"unknown", rec(key.Unknown, nil)},
		{"unknown(second)", rec(key.Unknown, func(r *key.Record) { r.Doubts = 2 })},
		{"unknown(fenced)", rec(key.Unknown, fenced)},
		{"done", rec(key.Done, nil)},
		{"done(expired)", rec(key.Done, func(r *key.Record) { r.ExpiresAt = t0 })},
		{"done_without_body", rec(key.DoneWithoutBody, nil)},
		{"released", rec(key.Released, nil)},
		{"released(former)", rec(key.Released, func(r *key.Record) { r.Version = 1 })},
	}
}

func evidence(e key.Evidence) key.Fact {
	return key.Fact{
		Evidence: e, Fence: 7, Lease: 30 * time.Second, By: "who", Answer: key.Answer{Status: 200, Body: []byte("b")},
		Claim: key.Claim{ID: key.NewID("", "", "k"), Key: "k", TTL: time.Hour},
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"table":             applyTable,
		"errors":            applyErrors,
		"doubts":            applyDoubts,
		"doubt_of_atomic":   applyDoubtOfAtomic,
		"atomic_after":      applyAtomicAfterADoubt,
		"doubt_answered":    applyDoubtAnswered,
		"decided_by_others": applyDecidedByOthers,
		"repeatable":        applyRepeatable,
		"random_walks":      applyRandomWalks,
	} {
		t.Run(name, test)
	}
}

func applyTable(t *testing.T) {
	t.Parallel()
	lines := [][]string{{""}}
	for _, e := range key.Evidences() {
		lines[0] = append(lines[0], string(e))
	}
	for _, row := range rows() {
		line := []string{row.name}
		for _, e := range key.Evidences() {
			got, err := key.Apply(row.r, evidence(e), t0)
			switch {
			case err != nil && !cmp.Equal(got, row.r):
				t.Errorf("Apply(%s, %s) changed the record and refused it", row.name, e)
			case err != nil:
				line = append(line, "-")
				continue
			}
			got.Rev = 1
			if err := got.Validate(); err != nil {
				t.Errorf("Apply(%s, %s) is not valid: %v", row.name, e, err)
			}
			line = append(line, string(got.State))
		}
		lines = append(lines, line)
	}
	if diff := cmp.Diff(strings.TrimSpace(law), strings.TrimSpace(table(lines))); diff != "" {
		t.Errorf("moves differ from the law (-law +got):\n%s", diff)
	}
}

// table sets lines in columns, two spaces apart.
func table(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, cell := range l {
			width[i] = max(width[i], len(cell))
		}
	}
	width[0]++ // as in the text
	var b strings.Builder
	for _, l := range lines {
		var line strings.Builder
		for i, cell := range l {
			fmt.Fprintf(&line, "%-*s  ", width[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func applyErrors(t *testing.T) {
	t.Parallel()
	for _, row := range rows() {
		for _, e := range key.Evidences() {
			_, err := key.Apply(row.r, evidence(e), t0)
			if err != nil && errors.Is(err, key.ErrFenced) == errors.Is(err, key.ErrMove) {
				t.Errorf("Apply(%s, %s) = %v, want one of the two errors", row.name, e, err)
			}
			if strings.HasSuffix(row.name, "(fenced)") && e == key.Answered && !errors.Is(err, key.ErrFenced) {
				t.Errorf("Apply(%s, answered) = %v, want %v", row.name, err, key.ErrFenced)
			}
		}
	}
}

func applyDoubts(t *testing.T) {
	t.Parallel()
	steps := []struct {
		event key.Evidence
		want  int
	}{
		{key.Begun, 0},
		{key.Unsure, 1},
		{key.Renewed, 0}, // it was none
		{key.Unsure, 1},
		{key.NewAttempt, 1},
		{key.Nothing, 1}, // the second call was refused; the first is still a doubt
		{key.NewAttempt, 1},
		{key.Unsure, 2},
		{key.Nothing, 1}, // and so was the third
		{key.NewAttempt, 1},
		{key.LeaseEnded, 2},
		{key.Nothing, 1}, // late
		{key.Absent, 0},  // somebody knows
		{key.Begun, 0},
	}
	var r key.Record
	for i, s := range steps {
		e := evidence(s.event)
		if s.event != key.Begun && s.event != key.NewAttempt {
			e.Fence = r.Fence
		}
		var err error
		now := t0
		if s.event == key.LeaseEnded {
			now = r.LeaseUntil
		}
		if r, err = key.Apply(r, e, now); err != nil {
			t.Fatalf("step %d: Apply(%s): %v", i, s.event, err)
		}
		if r.Doubts != s.want {
			t.Errorf("step %d: after %s doubts = %d, want %d", i, s.event, r.Doubts, s.want)
		}
		if s.want > 0 && r.State == key.Released {
			t.Errorf("step %d: after %s the key is free, and there is a doubt", i, s.event)
		}
	}
}

// applyDoubtOfAtomic: that an atomic attempt died says nothing of the attempt before.
func applyDoubtOfAtomic(t *testing.T) {
	t.Parallel()
	r, err := key.Apply(key.Record{ID: key.ID{1}, Version: 2, State: key.InProgress, Fence: 7, Doubts: 1, Atomic: true, LeaseUntil: t0, ExpiresAt: t0.Add(time.Hour)},
		key.Fact{Evidence: key.LeaseEnded, By: "lease"}, t0)
	if err != nil || r.State != key.Released || r.Doubts != 1 {
		t.Errorf("%s with %d doubts, %v; want released with the doubt of the attempt before", r.State, r.Doubts, err)
	}
}

// applyAtomicAfterADoubt: an attempt that leaves nothing behind, as the rule says now, says nothing of one before it, of which the rule did not say so.
func applyAtomicAfterADoubt(t *testing.T) {
	t.Parallel()
	walk := func(evidences ...key.Evidence) (r key.Record) {
		for i, e := range evidences {
			f := evidence(e)
			if f.Claim.Atomic = i > 0; i > 0 && e != key.NewAttempt {
				f.Fence = r.Fence
			}
			now := t0
			if e == key.LeaseEnded {
				now = r.LeaseUntil
			}
			var err error
			if r, err = key.Apply(r, f, now); err != nil {
				t.Fatalf("%v: %v", evidences[:i+1], err)
			}
		}
		return r
	}
	for _, last := range []key.Evidence{key.Nothing, key.LeaseEnded} {
		if r := walk(key.Begun, key.Unsure, key.NewAttempt, last); r.State != key.Unknown {
			t.Errorf("after %s of the second attempt the key is %s", last, r.State)
		}
		if r := walk(key.Begun, key.Unsure, key.Absent, key.Begun, last); r.State != key.Released {
			t.Errorf("after %s of an attempt before which nothing is in doubt the key is %s", last, r.State)
		}
	}
	r := walk(key.Begun, key.Unsure, key.NewAttempt)
	again := evidence(key.Nothing)
	again.Fence = r.Fence
	r, err := key.Apply(r, again, t0)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := key.Apply(r, again, t0); !errors.Is(err, key.ErrFenced) {
		t.Errorf("who says once more that he did nothing makes the key %s, %v", now.State, err)
	}
}

// applyDoubtAnswered: a doubt that its owner answered is none for those after it.
func applyDoubtAnswered(t *testing.T) {
	t.Parallel()
	var r key.Record
	for i, e := range []key.Evidence{key.Begun, key.LeaseEnded, key.Nothing, key.Begun, key.Nothing} {
		now := t0
		if e == key.LeaseEnded {
			now = r.LeaseUntil
		}
		var err error
		if r, err = key.Apply(r, evidence(e), now); err != nil {
			t.Fatal(err)
		}
		if e == key.Nothing && (r.State != key.Released || r.Doubts != 0) {
			t.Errorf("step %d: after %s the key is %s with %d doubts", i, e, r.State, r.Doubts)
		}
	}
}

func applyDecidedByOthers(t *testing.T) {
	t.Parallel()
	for _, e := range []key.Evidence{key.Happened, key.Absent, key.Forgotten} {
		r := key.Record{ID: key.ID{1}, Version: 2, State: key.Unknown, Fence: -1, DoubtAt: t0, ExpiresAt: t0.Add(time.Hour)}
		after, err := key.Apply(r, evidence(e), t0)
		if err != nil {
			t.Fatal(err)
		}
		late := evidence(key.Answered)
		late.Fence = -1
		if _, err := key.Apply(after, late, t0); !errors.Is(err, key.ErrFenced) {
			t.Errorf("a late answer after %s: %v, want %v", e, err, key.ErrFenced)
		}
		if after.Fence == 0 {
			t.Errorf("after %s the token is 0", e)
		}
	}
}

// applyRepeatable: a request that may be executed again takes its key over whatever became of its owners, until there is
// an answer.
func applyRepeatable(t *testing.T) {
	t.Parallel()
	for _, row := range rows() {
		e := evidence(key.NewAttempt)
		e.Fence, e.Claim.Repeatable = 9, true
		open := row.r.State == key.InProgress || row.r.State == key.Unknown
		got, err := key.Apply(row.r, e, t0)
		if late, err := key.Apply(got, evidence(key.LeaseEnded), t0.Add(time.Minute)); open && (err != nil || late.State != key.Released) {
			t.Errorf("a repeatable request whose owner died is %s, %v", late.State, err)
		}
		if taken := err == nil && got.State == key.InProgress && got.Fence == 9; taken != open || open == errors.Is(err, key.ErrMove) {
			t.Errorf("a repeatable request takes over %s: %v, %v", row.name, taken, err)
		}
		want := key.Classify(row.r, key.Claim{ID: row.r.ID, Fingerprint: key.Fingerprint{2}}, t0)
		if open {
			want = key.Repeat
		}
		if a := key.Classify(row.r, key.Claim{ID: row.r.ID, Fingerprint: key.Fingerprint{2}, Repeatable: true}, t0); a != want {
			t.Errorf("%s: %s, want %s", row.name, a, want)
		}
		if a := key.Classify(row.r, key.Claim{ID: row.r.ID, Fingerprint: key.Fingerprint{1}, Repeatable: true}, t0); a == key.Repeat {
			t.Errorf("%s: another request is executed for it", row.name)
		}
	}
}

// applyRandomWalks walks at random and holds what must be true of every
// walk: done never changes its answer, and an unknown outcome is only left by
// evidence.
func applyRandomWalks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r key.Record
		retries := false // the first attempt is in doubt
		now := t0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			e := evidence(rapid.SampledFrom(key.Evidences()).Draw(t, "event"))
			e.Fence = key.Fence(rapid.Int64Range(1, 3).Draw(t, "token"))
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			e.Claim.Repeatable = rapid.Bool().Draw(t, "repeatable")
			e.Claim.TTL = time.Duration(rapid.IntRange(1, 200).Draw(t, "kept for")) * time.Second
			next, err := key.Apply(r, e, now)
			if err != nil {
				continue
			}
			switch {
			case r.State == key.InProgress && e.Evidence == key.NewAttempt && !e.Claim.Repeatable:
				t.Fatal("executed beside its owner")
			case r.State == key.Done && !r.Expired(now) && e.Evidence != key.Forgotten:
				t.Fatalf("a stored answer moved by %s", e.Evidence)
			case r.State == key.Unknown && next.State == key.Released && e.Evidence == key.LeaseEnded:
				t.Fatalf("doubt became nothing by %s", e.Evidence)
			case next.ExpiresAt.Before(r.ExpiresAt):
				t.Fatalf("it is kept until %s by %s, and was to be until %s", next.ExpiresAt, e.Evidence, r.ExpiresAt)
			case retries && !r.Atomic && next.State == key.Released && e.Evidence == key.Nothing:
				t.Fatal("an attempt that did nothing made that before it undone")
			case next.Doubts < 0:
				t.Fatalf("doubts = %d", next.Doubts)
			}
			next.Rev++
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			if next.State == key.InProgress && e.Evidence != key.Renewed {
				retries = e.Evidence == key.NewAttempt && r.State == key.Unknown
			}
			r = next
		}
	})
}

const actions = `
                      same request  another request  other caller    both
(none)                run           run              run             run
in_progress           late_lease    mismatch         caller_changed  caller_changed
in_progress(atomic)   late_lease    mismatch         caller_changed  caller_changed
in_progress(live)     busy          mismatch         caller_changed  caller_changed
in_progress(fenced)   late_lease    mismatch         caller_changed  caller_changed
unknown               in_doubt      mismatch         caller_changed  caller_changed
unknown(second)       in_doubt      mismatch         caller_changed  caller_changed
unknown(fenced)       in_doubt      mismatch         caller_changed  caller_changed
done                  replay        mismatch         caller_changed  caller_changed
done(expired)         run           run              run             run
done_without_body     no_body       mismatch         caller_changed  caller_changed
released              run           run              run             run
released(former)      run           run              run             run
`

// classified is the action for a claim of an ID and a fingerprint.
func classified(r key.Record, id key.ID, f byte) string {
	return string(key.Classify(r, key.Claim{ID: id, Former: key.FormerID("", "k"), Fingerprint: key.Fingerprint{f}}, t0))
}

func TestClassify(t *testing.T) {
	t.Parallel()
	k := key.NewID("", "", "k")
	lines := [][]string{{"", "same request", "another request", "other caller", "both"}}
	for _, row := range rows() {
		lines = append(lines, []string{row.name,
			classified(row.r, k, 2), classified(row.r, k, 1), classified(row.r, key.NewID("", "other", "k"), 2), classified(row.r, key.NewID("", "other", "k"), 1)})
		imported := row.r
		imported.Fingerprint = key.Any
		if got, want := classified(imported, k, 1), classified(row.r, k, 2); got != want {
			t.Errorf("an imported record that is %s gets %s, want %s", row.name, got, want)
		}
	}
	if diff := cmp.Diff(strings.TrimSpace(actions), strings.TrimSpace(table(lines))); diff != "" {
		t.Errorf("actions differ from the law (-law +got):\n%s", diff)
	}
}

func TestMeaning(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy            key.Policy
		notExecuted       []int
		released, unknown []int
	}{
		{key.AtMostOnce, nil, []int{401, 403, 407, 408, 425, 429}, []int{502, 503, 504, 520, 530}},
		{key.AtMostOnce, []int{503, 404}, []int{401, 403, 404, 407, 408, 425, 429, 503}, []int{502, 504, 520, 530}},
		{key.Retry5xx, nil, []int{401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 520, 530}, nil},
	} {
		var released, unknown []int
		for status := 200; status < 600; status++ {
			if 521 <= status && status <= 529 {
				continue // as 520 and 530
			}
			switch key.Meaning(status, test.policy, test.notExecuted) {
			case key.Nothing:
				released = append(released, status)
			case key.Unsure:
				unknown = append(unknown, status)
			}
		}
		if diff := cmp.Diff(test.released, released); diff != "" {
			t.Errorf("%s %v: statuses that release (-want +got):\n%s", test.policy, test.notExecuted, diff)
		}
		if diff := cmp.Diff(test.unknown, unknown); diff != "" {
			t.Errorf("%s %v: statuses that leave doubt (-want +got):\n%s", test.policy, test.notExecuted, diff)
		}
	}
}

// TestHappenedIsKept is the property that a confirmed action never runs again while its
// answer is kept: whatever was learned before and after, at whatever time, no request is
// executed within a TTL from the moment in which somebody knew.
func TestHappenedIsKept(t *testing.T) {
	t.Parallel()
	const ttl = time.Hour
	rapid.Check(t, func(t *rapid.T) {
		r, now := key.Record{}, t0
		var known time.Time // since when it is known that it happened
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 40, 3599, 3600, 100_000}).Draw(t, "seconds")) * time.Second)
			f := evidence(rapid.SampledFrom(key.Evidences()).Draw(t, "evidence"))
			if f.Fence = r.Fence; f.Evidence == key.Begun || f.Evidence == key.NewAttempt {
				f.Fence++
			}
			claim := f.Claim
			if key.Classify(r, claim, now) == key.Run && !known.IsZero() && now.Before(known.Add(ttl)) {
				t.Fatalf("a request would run %s after it was known that it happened", now.Sub(known))
			}
			next, err := key.Apply(r, f, now)
			if err != nil {
				continue
			}
			switch f.Evidence {
			case key.Happened, key.Answered, key.Streamed:
				known = now
			case key.Begun, key.NewAttempt, key.Forgotten:
				known = time.Time{}
			}
			r = next
		}
	})
}

func TestHost(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"API.example.com": "api.example.com", "a.example:443": "a.example", "a.example:80": "a.example", "a.example.": "a.example",
		"a.example:8080": "a.example:8080", "[::1]:443": "[::1]", "[::1]": "[::1]", "::80": "::80", "": "",
		"a.example.:8080": "a.example.:8080", "[fe80::1%25eth0]:80": "[fe80::1%25eth0]",
	} {
		if got := key.Host(in); got != want {
			t.Errorf("Host(%q) = %q, want %q", in, got, want)
		}
	}
}
