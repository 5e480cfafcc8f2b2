package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

var update = flag.Bool("update", false, "rewrite what the stories in testdata want")

// Each story in testdata is what happens to a chain of runs, one thing to a
// line, and after the arrow how the open run then stands:
//
//	begin KIND         a first run
//	advance PHASE      it continues
//	mutation STATE     the ledger says so of its mutation
//	fail CLASS [spent] it stops
//	crash              its host died
//	deploy             a new version arrives
//	again              the next attempt begins
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			s := &story{}
			for line := range strings.Lines(string(raw)) {
				if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
					said, _, _ := strings.Cut(line, "->")
					said = strings.TrimSpace(said)
					line = fmt.Sprintf("%-24s -> %s\n", said, s.tell(t, strings.Fields(said)))
				}
				got.WriteString(line)
			}
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(raw), got.String()); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// A story is the open run of a chain and the state of its mutation.
type story struct {
	run keep.Run
	m   keep.MutationState
	n   int // runs so far
	now time.Time
}

// tell makes one thing happen and says how the run stands.
func (s *story) tell(t *testing.T, words []string) string {
	t.Helper()
	if s.now = s.now.Add(time.Minute); s.n == 0 {
		s.now = t0
	}
	switch words[0] {
	case "begin":
		id := s.id()
		kind := keep.Kind(words[1])
		s.run = keep.Run{ID: id, Chain: id, Kind: kind, Phase: lifecycle.First(kind), Status: keep.StatusActive}
	case "advance":
		next, err := lifecycle.Advance(s.run, keep.Phase(words[1]), s.now)
		if err != nil {
			return "error: " + err.Error()
		}
		if s.run = next; words[1] == string(keep.Prepared) {
			s.run.Reservations = []keep.Reservation{{Topic: "t"}}
		}
	case "mutation":
		s.m, s.run.Mutation = keep.MutationState(words[1]), "mut_1"
	case "fail":
		v := lifecycle.Classify(keep.Class(words[1]), in(s.m), slices.Contains(words, "spent"))
		s.run = lifecycle.Fail(s.run, keep.Failf(keep.Class(words[1]), "x", "no"), v, s.now.Add(time.Second), s.now)
	case "crash":
		s.run, _ = lifecycle.Crash(s.run, s.now)
	case "deploy":
		s.run, _ = lifecycle.Deployed(s.run, s.now)
	case "again":
		s.run, _ = lifecycle.NextAttempt(s.run, in(s.m), s.id(), keep.Version{Major: 1, Minor: s.n}, s.now)
		if s.run.Mutation == "" {
			s.m = ""
		}
	default:
		t.Fatalf("unknown word %q", words[0])
	}
	return s.stands()
}

func (s *story) id() keep.RunID {
	s.n++
	return keep.RunID(fmt.Sprintf("run_%d", s.n))
}

func (s *story) stands() string {
	r := s.run
	text := fmt.Sprintf("%s of %s: %s %s", r.ID, r.Chain, r.Phase, r.Status)
	if s.m != "" {
		text += ", mutation " + string(s.m)
	}
	if len(r.Reservations) > 0 && !lifecycle.Released(r, in(s.m)) {
		text += ", pinned"
	}
	if r.Retries > 0 {
		text += fmt.Sprintf(", %d retries", r.Retries)
	}
	if r.Crashes > 0 {
		text += fmt.Sprintf(", %d crashes", r.Crashes)
	}
	if !r.RetryAt.IsZero() {
		start, fresh := lifecycle.StartOf(r, in(s.m))
		if text += ", then " + string(start); fresh {
			text += " in a new chain"
		}
	}
	if r.Closed {
		text += ", closed"
	}
	return text
}

// Law explained: every status waits for something, and a sentence says so.
func TestWaitOf(t *testing.T) {
	const want = `
active                 | host     | the host                         | Is being executed, in phase mutating since 2026-11-20 08:59:00 UTC.
active, call out       | host     | an answer of the service         | Waits for crm.create on contacts/1 since 2026-11-20 08:59:30 UTC, in phase mutating.
active, planned        | retry    | the host, at that time           | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC, after: 3:1: crm.create: refused.
paused:transient       | retry    | the host, at that time           | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC (attempt 4), after: 3:1: crm.create: refused.
paused:approval        | approval | a person                         | Waits since 2026-11-20 08:59:00 UTC for a person to approve the call; see keep inbox.
paused:reconciliation  | lookup   | an answer of the service         | It is not known since 2026-11-20 08:59:00 UTC whether a call happened; the service is asked next.
paused:person          | person   | a person                         | Waits since 2026-11-20 08:59:00 UTC for a person (3:1: crm.create: refused); see keep inbox.
failed:logic           | script   | a corrected version, or a person | Waits since 2026-11-20 08:59:00 UTC for a corrected version, or for a person to retry or skip: 3:1: crm.create: refused.
failed:logic, planned  | retry    | the host, at that time           | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC with the current version, after: 3:1: crm.create: refused.
failed:internal        | internal | a person                         | Stopped since 2026-11-20 08:59:00 UTC by an internal failure (3:1: crm.create: refused); a person must look at it.
crashed                | recovery | the host, at that time           | The host died while it executed phase mutating; the work is taken up again at 2026-11-20 09:00:30 UTC.
interrupted            | recovery | the host, at that time           | Left in phase mutating, since the host was stopped; the work is taken up again at 2026-11-20 09:00:30 UTC.
doubt: in_flight       | lookup   | an answer of the service         | It is not known since 2026-11-20 08:59:00 UTC whether crm.create on contacts/1 happened; the service is asked next.
doubt: needs_reconcile | lookup   | an answer of the service         | It is not known since 2026-11-20 08:59:00 UTC whether crm.create on contacts/1 happened; the service is asked again at 2026-11-20 09:01:00 UTC (lookup 3).
doubt: no tool         | tool     | a person who puts the tool back  | It is not known since 2026-11-20 08:59:00 UTC whether crm.create on contacts/1 happened, and nobody can be asked: there is no tool crm.create in this program or its keep.toml. Put it back, or decide when Keep asks you; it looks again at 2026-11-20 09:01:00 UTC (lookup 3).
doubt: indeterminate   | decision | a person                         | Nobody can tell whether crm.create on contacts/1 happened; waits since 2026-11-20 08:59:00 UTC for a person to decide in keep inbox.
doubt: applied         | recovery | the host                         | It is known since 2026-11-20 09:00:00 UTC what became of crm.create on contacts/1; the work is taken up again next.
`
	var got strings.Builder
	got.WriteString("\n")
	say := func(name string, status keep.RunStatus, planned bool, m keep.Mutation) {
		r := full(keep.Consumer, keep.Mutating, status)
		r.Error = &keep.Failure{Class: keep.ClassTransient, Message: "refused.\n", Tool: "crm.create", At: "3:1"}
		if r.RetryAt = t0.Add(30 * time.Second); !planned {
			r.RetryAt = time.Time{}
		}
		w := lifecycle.WaitOf(r, m)
		if got, want := w.Until.IsZero(), r.RetryAt.IsZero() && m.NextReconcileAt.IsZero() || m.State == keep.Indeterminate; got != want {
			t.Errorf("%s: until %s", name, w.Until)
		}
		fmt.Fprintf(&got, "%-22s | %-8s | %-32s | %s\n", name, w.Kind, w.Moves(), w)
	}
	for _, status := range keep.RunStatuses() {
		if status == keep.StatusCommitted || status == keep.StatusAborted {
			continue // always closed
		}
		planned := status == keep.StatusTransient || status == keep.StatusCrashed
		say(string(status), status, planned, keep.Mutation{})
		if status == keep.StatusActive {
			say("active, call out", status, false, keep.Mutation{Key: "mut_1", Tool: "crm.create", Target: "contacts/1", State: keep.InFlight, UpdatedAt: t0.Add(-30 * time.Second)})
		}
		if status == keep.StatusLogic || status == keep.StatusActive {
			say(string(status)+", planned", status, true, keep.Mutation{})
		}
	}
	left := lifecycle.WaitOf(lifecycle.Interrupt(full(keep.Consumer, keep.Mutating, keep.StatusActive), "the host was stopped", t0.Add(30*time.Second)), keep.Mutation{})
	fmt.Fprintf(&got, "%-22s | %-8s | %-32s | %s\n", "interrupted", left.Kind, left.Moves(), left)
	m := keep.Mutation{Key: "mut_1", Tool: "crm.create", Target: "contacts/1", State: keep.InFlight}
	say("doubt: in_flight", keep.StatusReconciliation, false, m)
	m.State, m.NextReconcileAt, m.ReconcileAttempts = keep.NeedsReconcile, t0.Add(time.Minute), 2
	say("doubt: needs_reconcile", keep.StatusReconciliation, false, m)
	m.Error = &keep.Failure{Class: keep.ClassUnknown, Code: keep.CodeToolMissing, Message: "reset; there is no tool crm.create"}
	say("doubt: no tool", keep.StatusReconciliation, false, m)
	m.State, m.Error = keep.Indeterminate, nil
	say("doubt: indeterminate", keep.StatusReconciliation, false, m)
	m.State, m.NextReconcileAt, m.UpdatedAt = keep.Applied, time.Time{}, t0
	say("doubt: applied", keep.StatusReconciliation, false, m)
	check(t, want, got.String())
}

// While its workflow is paused nobody takes a run up at a time: a person who resumes it does. What becomes of a call in doubt is asked all the same.
func TestWaitWhilePaused(t *testing.T) {
	const want = `
paused:transient      | a person who resumes the workflow | Waits since 2026-11-20 08:59:00 UTC and is tried again when its workflow is resumed (attempt 4), after: 3:1: crm.create: refused.
crashed               | a person who resumes the workflow | The host died while it executed phase mutating; the work is taken up again when its workflow is resumed.
paused:approval       | a person                          | Waits since 2026-11-20 08:59:00 UTC for a person to approve the call; see keep inbox.
for a connection      | a person who resumes the workflow | Waits since 2026-11-20 08:59:00 UTC for its workflow to be resumed, and for crm, which does not answer.
paused:reconciliation | an answer of the service          | It is not known since 2026-11-20 08:59:00 UTC whether a call happened; the service is asked next.
`
	var got strings.Builder
	got.WriteString("\n")
	say := func(name string, w lifecycle.Wait) {
		w = w.Paused()
		if !w.Until.IsZero() {
			t.Errorf("%s: until %s", name, w.Until)
		}
		fmt.Fprintf(&got, "%-21s | %-33s | %s\n", name, w.Moves(), w)
	}
	for _, status := range []keep.RunStatus{keep.StatusTransient, keep.StatusCrashed, keep.StatusApproval} {
		r := full(keep.Consumer, keep.Mutating, status)
		r.Error = &keep.Failure{Class: keep.ClassTransient, Message: "refused.\n", Tool: "crm.create", At: "3:1"}
		if r.RetryAt = t0.Add(30 * time.Second); status == keep.StatusApproval {
			r.RetryAt = time.Time{}
		}
		say(string(status), lifecycle.WaitOf(r, keep.Mutation{}))
		if status == keep.StatusApproval {
			r.Status, r.RetryAt = keep.StatusTransient, t0
			say("for a connection", lifecycle.WaitOf(r, keep.Mutation{}).Held("crm, which does not answer", t0.Add(time.Hour)))
		}
	}
	r := full(keep.Consumer, keep.Mutating, keep.StatusReconciliation)
	r.RetryAt = time.Time{}
	say("paused:reconciliation", lifecycle.WaitOf(r, keep.Mutation{}))
	check(t, want, got.String())
}

func TestWaitOfAClosedRun(t *testing.T) {
	r := full(keep.Consumer, keep.Committed, keep.StatusCommitted)
	r.Closed = true
	if got := lifecycle.WaitOf(r, keep.Mutation{}).String(); got != "" {
		t.Errorf("WaitOf a closed run = %q, want nothing", got)
	}
}

func TestTimesSent(t *testing.T) {
	refused := &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeAccount}
	for want, m := range map[string]keep.Mutation{
		"sent once":                                 {Level: keep.LevelKey, Attempts: 1, State: keep.Applied, ResolvedBy: "call"},
		"sent 2 times":                              {Level: keep.LevelWitness, Attempts: 2, State: keep.Applied, ResolvedBy: "reconcile", ReconcileAttempts: 3},
		"sent once, and again by lookups":           {Level: keep.LevelKey, Attempts: 1, State: keep.NeedsReconcile, ReconcileAttempts: 1},
		"sent 2 times, and again by lookups":        {Level: keep.LevelKey, Attempts: 2, State: keep.Applied, ResolvedBy: "reconcile"},
		"not sent":                                  {Level: keep.LevelKey, Attempts: 1, State: keep.Failed, ResolvedBy: "call", Error: refused},
		"tried 2 times, and not sent the last time": {Level: keep.LevelKey, Attempts: 2, State: keep.Failed, ResolvedBy: "call", Error: refused},
	} {
		if got := lifecycle.TimesSent(m); got != want {
			t.Errorf("%+v is %q, want %q", m, got, want)
		}
	}
}
