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
	"github.com/keep-run/keep/lifecycle"
)

var update = flag.Bool("update", false, "rewrite what the stories in testdata want")

// Each story in testdata is what happens to a chain of runs, one thing to a
// line, and after the arrow how the open run then stands:
//
//	begin KIND         a first run
//	advance PHASE      it goes on
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
		v := lifecycle.Judge(keep.Class(words[1]), s.m, slices.Contains(words, "spent"))
		s.run = lifecycle.Fail(s.run, keep.Failf(keep.Class(words[1]), "x", "no"), v, s.now.Add(time.Second), s.now)
	case "crash":
		s.run, _ = lifecycle.Crash(s.run, s.now)
	case "deploy":
		s.run, _ = lifecycle.Deployed(s.run, s.now)
	case "again":
		s.run, _ = lifecycle.Again(s.run, s.m, s.id(), keep.Version{Major: 1, Minor: s.n}, s.now)
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
	if len(r.Reservations) > 0 {
		text += ", pinned"
	}
	if r.Retries > 0 {
		text += fmt.Sprintf(", %d retries", r.Retries)
	}
	if r.Crashes > 0 {
		text += fmt.Sprintf(", %d crashes", r.Crashes)
	}
	if !r.RetryAt.IsZero() {
		start, fresh := lifecycle.StartOf(r, s.m)
		if text += ", then " + string(start); fresh {
			text += " in a new chain"
		}
	}
	if r.Closed {
		text += ", closed"
	}
	return text
}

// Law explained: one sentence for every status, with a time in it.
func TestExplain(t *testing.T) {
	const want = `
active                 | Is being executed, in phase mutating since 2026-11-20 08:59:00 UTC.
active, planned        | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC, after: 3:1: crm.create: refused.
paused:transient       | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC (attempt 4), after: 3:1: crm.create: refused.
paused:approval        | Waits since 2026-11-20 08:59:00 UTC for a person to approve the call; see keep inbox.
paused:reconciliation  | It is not known since 2026-11-20 08:59:00 UTC whether a call happened; the service is asked next.
paused:person          | Waits since 2026-11-20 08:59:00 UTC for a person (3:1: crm.create: refused); see keep inbox.
failed:logic           | Waits since 2026-11-20 08:59:00 UTC for a corrected script, or for a person to retry or skip: 3:1: crm.create: refused.
failed:logic, planned  | Waits since 2026-11-20 08:59:00 UTC and is tried again at 2026-11-20 09:00:30 UTC with the current version, after: 3:1: crm.create: refused.
failed:internal        | Stopped since 2026-11-20 08:59:00 UTC by an internal failure (3:1: crm.create: refused); a person must look at it.
crashed                | The host died while it executed phase mutating; the work is taken up again at 2026-11-20 09:00:30 UTC.
doubt: in_flight       | It is not known since 2026-11-20 08:59:00 UTC whether crm.create on contacts/1 happened; the service is asked next.
doubt: needs_reconcile | It is not known since 2026-11-20 08:59:00 UTC whether crm.create on contacts/1 happened; the service is asked again at 2026-11-20 09:01:00 UTC (lookup 3).
doubt: indeterminate   | Nobody can tell whether crm.create on contacts/1 happened; waits since 2026-11-20 08:59:00 UTC for a person to decide in keep inbox.
`
	var got strings.Builder
	got.WriteString("\n")
	say := func(name string, status keep.RunStatus, planned bool, m keep.Mutation) {
		r := full(keep.Consumer, keep.Mutating, status)
		r.Error = &keep.Failure{Class: keep.ClassTransient, Message: "refused.\n", Tool: "crm.create", At: "3:1"}
		if r.RetryAt = t0.Add(30 * time.Second); !planned {
			r.RetryAt = time.Time{}
		}
		fmt.Fprintf(&got, "%-22s | %s\n", name, lifecycle.Explain(r, m))
	}
	for _, status := range keep.RunStatuses() {
		if status == keep.StatusCommitted || status == keep.StatusAborted {
			continue // always closed
		}
		planned := status == keep.StatusTransient || status == keep.StatusCrashed
		say(string(status), status, planned, keep.Mutation{})
		if status == keep.StatusLogic || status == keep.StatusActive {
			say(string(status)+", planned", status, true, keep.Mutation{})
		}
	}
	m := keep.Mutation{Key: "mut_1", Tool: "crm.create", Target: "contacts/1", State: keep.InFlight}
	say("doubt: in_flight", keep.StatusReconciliation, false, m)
	m.State, m.NextReconcileAt, m.ReconcileAttempts = keep.NeedsReconcile, t0.Add(time.Minute), 2
	say("doubt: needs_reconcile", keep.StatusReconciliation, false, m)
	m.State = keep.Indeterminate
	say("doubt: indeterminate", keep.StatusReconciliation, false, m)
	check(t, want, got.String())
}

func TestExplainIsSilentAboutAClosedRun(t *testing.T) {
	r := full(keep.Consumer, keep.Committed, keep.StatusCommitted)
	r.Closed = true
	if got := lifecycle.Explain(r, keep.Mutation{}); got != "" {
		t.Errorf("Explain of a closed run = %q, want nothing", got)
	}
}
