package key_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keep-run/keep/idempotency/key"
)

// law is the complete table of moves: what a record is after each event, as its
// owner, a probe or a person reports it. "-" is refused.
const law = `
                      begun        renewed      answered  streamed           nothing   doubt    lease_ended  again        happened  absent    forgotten
(none)                in_progress  -            -         -                  -         -        -            -            -         -         -
in_progress           -            in_progress  done      done_without_body  released  unknown  unknown      -            -         -         -
in_progress(atomic)   -            in_progress  done      done_without_body  released  unknown  released     -            -         -         -
in_progress(live)     -            in_progress  done      done_without_body  released  unknown  -            -            -         -         -
in_progress(fenced)   -            -            -         -                  -         -        unknown      -            -         -         -
unknown               -            in_progress  done      done_without_body  released  unknown  -            in_progress  done      released  released
unknown(second)       -            in_progress  done      done_without_body  released  unknown  -            -            done      released  released
unknown(fenced)       -            -            -         -                  -         -        -            in_progress  done      released  released
done                  -            -            -         -                  -         -        -            -            -         -         released
done(expired)         in_progress  -            -         -                  -         -        -            -            -         -         -
done_without_body     -            -            -         -                  -         -        -            -            -         -         released
released              in_progress  -            -         -                  -         -        -            -            -         -         -
`

var t0 = time.UnixMilli(1_800_000_000_000).UTC()

// rows returns the records that the table speaks of, as they are at t0.
func rows() []struct {
	name string
	r    key.Record
} {
	rec := func(s key.State, change func(*key.Record)) key.Record {
		r := key.Record{ID: key.NewID("", "k"), Key: "k", State: s, Token: 7, Rev: 1, LeaseUntil: t0,
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
	fenced := func(r *key.Record) { r.Token = 8 }
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
	}
}

func evidence(e key.Event) key.Evidence {
	return key.Evidence{
		Event: e, Token: 7, Lease: 30 * time.Second, By: "who", Answer: key.Answer{Status: 200, Body: []byte("b")},
		Claim: key.Claim{ID: key.NewID("", "k"), Key: "k", TTL: time.Hour},
	}
}

func TestNext_is_the_table(t *testing.T) {
	t.Parallel()
	lines := [][]string{{""}}
	for _, e := range key.Events() {
		lines[0] = append(lines[0], string(e))
	}
	for _, row := range rows() {
		line := []string{row.name}
		for _, e := range key.Events() {
			got, err := key.Next(row.r, evidence(e), t0)
			switch {
			case err != nil && !cmp.Equal(got, row.r):
				t.Errorf("Next(%s, %s) changed the record and refused it", row.name, e)
			case err != nil:
				line = append(line, "-")
				continue
			}
			got.Rev = 1
			if err := got.Validate(); err != nil {
				t.Errorf("Next(%s, %s) is not valid: %v", row.name, e, err)
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

func TestNext_refuses_with_the_right_error(t *testing.T) {
	t.Parallel()
	for _, row := range rows() {
		for _, e := range key.Events() {
			_, err := key.Next(row.r, evidence(e), t0)
			if err != nil && errors.Is(err, key.ErrFenced) == errors.Is(err, key.ErrMove) {
				t.Errorf("Next(%s, %s) = %v, want one of the two errors", row.name, e, err)
			}
			if strings.HasSuffix(row.name, "(fenced)") && e == key.Answered && !errors.Is(err, key.ErrFenced) {
				t.Errorf("Next(%s, answered) = %v, want %v", row.name, err, key.ErrFenced)
			}
		}
	}
}

func TestNext_counts_doubts_until_somebody_knows(t *testing.T) {
	t.Parallel()
	steps := []struct {
		event key.Event
		want  int
	}{
		{key.Begun, 0},
		{key.Doubt, 1},
		{key.Renewed, 0}, // it was none
		{key.Doubt, 1},
		{key.Again, 1},
		{key.Nothing, 1}, // the second call was refused; the first is still a doubt
		{key.Begun, 1},
		{key.Doubt, 2},
		{key.Absent, 0}, // somebody knows
		{key.Begun, 0},
	}
	var r key.Record
	for i, s := range steps {
		e := evidence(s.event)
		if s.event != key.Begun && s.event != key.Again {
			e.Token = r.Token
		}
		var err error
		if r, err = key.Next(r, e, t0); err != nil {
			t.Fatalf("step %d: Next(%s): %v", i, s.event, err)
		}
		if r.Doubts != s.want {
			t.Errorf("step %d: after %s doubts = %d, want %d", i, s.event, r.Doubts, s.want)
		}
	}
}

func TestNext_fences_the_owner_when_somebody_else_decides(t *testing.T) {
	t.Parallel()
	for _, e := range []key.Event{key.Happened, key.Absent, key.Forgotten} {
		r := key.Record{ID: key.ID{1}, State: key.Unknown, Token: -1, DoubtAt: t0, ExpiresAt: t0.Add(time.Hour)}
		after, err := key.Next(r, evidence(e), t0)
		if err != nil {
			t.Fatal(err)
		}
		late := evidence(key.Answered)
		late.Token = -1
		if _, err := key.Next(after, late, t0); !errors.Is(err, key.ErrFenced) {
			t.Errorf("a late answer after %s: %v, want %v", e, err, key.ErrFenced)
		}
		if after.Token == 0 {
			t.Errorf("after %s the token is 0", e)
		}
	}
}

// TestNext_never_forgets walks at random and holds what must be true of every
// walk: done never changes its answer, and an unknown outcome is only left by
// evidence.
func TestNext_never_forgets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r key.Record
		now := t0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			e := evidence(rapid.SampledFrom(key.Events()).Draw(t, "event"))
			e.Token = key.Token(rapid.Int64Range(1, 3).Draw(t, "token"))
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			next, err := key.Next(r, e, now)
			if err != nil {
				continue
			}
			switch {
			case r.State == key.Done && !r.Expired(now) && e.Event != key.Forgotten:
				t.Fatalf("a stored answer moved by %s", e.Event)
			case r.State == key.Unknown && next.State == key.Released && e.Event == key.LeaseEnded:
				t.Fatalf("doubt became nothing by %s", e.Event)
			case next.Doubts < 0:
				t.Fatalf("doubts = %d", next.Doubts)
			}
			next.Rev++
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			r = next
		}
	})
}

const judgements = `
                      same request  another request
(none)                run           run
in_progress           late_lease    mismatch
in_progress(atomic)   late_lease    mismatch
in_progress(live)     busy          mismatch
in_progress(fenced)   late_lease    mismatch
unknown               in_doubt      mismatch
unknown(second)       in_doubt      mismatch
unknown(fenced)       in_doubt      mismatch
done                  replay        mismatch
done(expired)         run           run
done_without_body     no_body       mismatch
released              run           run
`

func TestJudge_is_the_table(t *testing.T) {
	t.Parallel()
	lines := [][]string{{"", "same request", "another request"}}
	for _, row := range rows() {
		lines = append(lines, []string{row.name,
			string(key.Judge(row.r, key.Fingerprint{2}, t0)), string(key.Judge(row.r, key.Fingerprint{1}, t0))})
		imported := row.r
		imported.Fingerprint = key.Any
		if got, want := key.Judge(imported, key.Fingerprint{1}, t0), key.Judge(row.r, key.Fingerprint{2}, t0); got != want {
			t.Errorf("an imported record that is %s is judged %s, want %s", row.name, got, want)
		}
	}
	if diff := cmp.Diff(strings.TrimSpace(judgements), strings.TrimSpace(table(lines))); diff != "" {
		t.Errorf("verdicts differ from the law (-law +got):\n%s", diff)
	}
}

func TestKeeps(t *testing.T) {
	t.Parallel()
	released := map[key.Policy][]int{key.AtMostOnce: nil, key.Retry5xx: nil}
	for p := range released {
		for status := 200; status < 600; status++ {
			if !key.Keeps(status, p) && (status <= 511) {
				released[p] = append(released[p], status)
			}
		}
	}
	want := map[key.Policy][]int{
		key.AtMostOnce: {408, 425, 429, 503},
		key.Retry5xx:   {408, 425, 429, 500, 502, 503, 504},
	}
	if diff := cmp.Diff(want, released); diff != "" {
		t.Errorf("statuses that release (-want +got):\n%s", diff)
	}
}
