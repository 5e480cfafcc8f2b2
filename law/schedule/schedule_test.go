package schedule_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/schedule"
)

var update = flag.Bool("update", false, "rewrite what the stories in testdata want")

var now = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// What is done about an open run, by its status, its planned retry and its
// mutation, written a second time (laws one-at-a-time and explained).
const openLaw = `
                       no plan  retry due  retry later  doubt, ask due  doubt, ask later  indeterminate
active                 person   attempt    backoff      person          person            person
paused:transient       person   attempt    backoff      person          person            person
paused:approval        person   attempt    person       person          person            person
paused:reconciliation  person   attempt    backoff      ask             backoff           person
paused:person          person   attempt    backoff      person          person            person
failed:logic           person   attempt    backoff      person          person            person
failed:internal        person   attempt    backoff      person          person            person
committed              person   attempt    backoff      person          person            person
crashed                person   attempt    backoff      person          person            person
aborted                person   attempt    backoff      person          person            person
`

// openCases are the columns of the law.
var openCases = []struct {
	name  string
	retry time.Duration // from now; zero: none
	m     keep.Mutation
}{
	{"no plan", 0, keep.Mutation{}},
	{"retry due", -time.Second, keep.Mutation{}},
	{"retry later", time.Second, keep.Mutation{}},
	{"doubt, ask due", 0, keep.Mutation{State: keep.NeedsReconcile, NextReconcileAt: now}},
	{"doubt, ask later", 0, keep.Mutation{State: keep.NeedsReconcile, NextReconcileAt: now.Add(time.Second)}},
	{"indeterminate", 0, keep.Mutation{State: keep.Indeterminate}},
}

func TestOpenRun(t *testing.T) {
	var got strings.Builder
	w := tabwriter.NewWriter(&got, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for _, c := range openCases {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	fmt.Fprintln(w)
	for _, status := range keep.RunStatuses() {
		fmt.Fprint(w, status)
		for _, c := range openCases {
			r := keep.Run{Kind: keep.Consumer, Phase: keep.Mutating, Status: status}
			if c.retry != 0 {
				r.RetryAt = now.Add(c.retry)
			}
			// What else is due never matters while a run is open.
			snap := schedule.Snapshot{Open: []schedule.Open{{Run: r, Doubt: c.m}}, Handlers: []schedule.Handler{
				{Handler: keep.Handler{Name: "p", Kind: keep.Producer}, Fresh: true},
			}}
			step := schedule.Next(snap, now)
			if step.Do == schedule.Backoff && !step.At.Equal(now.Add(time.Second)) {
				t.Errorf("%s, %s: decides again at %s, want %s", status, c.name, step.At, now.Add(time.Second))
			}
			fmt.Fprintf(w, "\t%s", step.Do)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	if diff := cmp.Diff(openLaw, got.String()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// Each story in testdata/next is a snapshot and, after =>, what is done. Times
// are relative to now.
func TestNextStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/next/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got := tell(t, string(raw))
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(raw), got); diff != "" && !*update {
			t.Errorf("%s: want -, got +:\n%s", path, diff)
		}
	}
}

// tell returns the text with what is done after each arrow.
func tell(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var snap schedule.Snapshot
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			snap = schedule.Snapshot{}
		case words[0] == "=>":
			line = "=> " + word(schedule.Next(snap, now)) + "\n"
		case words[0] == "paused":
			snap.Paused = true
		case words[0] == "open":
			snap.Open = append(snap.Open, open(t, words[1:]))
		case words[0] == "poll":
			snap.Poll = true
		default:
			snap.Handlers = append(snap.Handlers, handler(t, words))
		}
		out.WriteString(line)
	}
	return out.String()
}

func word(s schedule.Step) string {
	text := string(s.Do)
	if s.Handler != "" {
		text += " " + string(s.Handler)
	}
	if s.Run != "" {
		text += " " + string(s.Run)
	}
	if !s.At.IsZero() {
		text += " until " + s.At.Sub(now).String()
	}
	return text
}

func handler(t *testing.T, words []string) schedule.Handler {
	t.Helper()
	h := schedule.Handler{Handler: keep.Handler{Kind: keep.Kind(words[0]), Name: keep.HandlerName(words[1])}}
	for _, w := range words[2:] {
		key, arg, _ := strings.Cut(w, "=")
		switch key {
		case "oldest":
			h.Backlog.Oldest.Seq = integer(t, arg)
		case "newest":
			h.Backlog.Newest = integer(t, arg)
		case "idle":
			h.State.IdleSeq = integer(t, arg)
		case "wake":
			h.State.WakeAt = at(t, arg)
		case "next":
			h.State.NextAt = at(t, arg)
		case "order":
			h.Order = keep.Order(arg)
		case "more":
			h.More = true
		case "requested":
			h.State.RequestedAt = at(t, arg)
		case "interval":
			h.Schedule.Interval = at(t, arg).Sub(now)
		case "cron":
			h.Schedule.Cron = "0 9 * * *"
		case "ran":
			h.State.LastRun = "run_1"
		case "fresh":
			h.Fresh = true
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	return h
}

func open(t *testing.T, words []string) schedule.Open {
	t.Helper()
	strict := false
	r, m := keep.Run{Kind: keep.Consumer}, keep.Mutation{}
	for _, w := range words {
		key, arg, _ := strings.Cut(w, "=")
		switch key {
		case "id":
			r.ID = keep.RunID(arg)
		case "of":
			r.Handler = keep.HandlerName(arg)
		case "lane":
			r.Lane = keep.Lane(arg)
		case "strict":
			strict = true
		case "kind":
			r.Kind = keep.Kind(arg)
		case "status":
			r.Status = keep.RunStatus(arg)
		case "phase":
			r.Phase = keep.Phase(arg)
		case "retry":
			r.RetryAt = at(t, arg)
		case "mutation":
			m.State = keep.MutationState(arg)
		case "ask":
			m.NextReconcileAt = at(t, arg)
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	return schedule.Open{Run: r, Doubt: m, Strict: strict}
}

func at(t *testing.T, arg string) time.Time {
	t.Helper()
	d, err := time.ParseDuration(arg)
	if err != nil {
		t.Fatal(err)
	}
	return now.Add(d)
}

func integer(t *testing.T, arg string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Ordered consumers begin no more runs while too many are open; others do.
func TestOpenRunsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		open int
		want keep.HandlerName
	}{{schedule.MaxOpen - 1, "c"}, {schedule.MaxOpen, "d"}} {
		snap := schedule.Snapshot{Handlers: []schedule.Handler{
			{Handler: keep.Handler{Name: "c", Kind: keep.Consumer, Order: keep.OrderNone}, Backlog: keep.Backlog{Oldest: keep.Event{Seq: 1}, Newest: 1}},
			{Handler: keep.Handler{Name: "d", Kind: keep.Consumer}, Backlog: keep.Backlog{Oldest: keep.Event{Seq: 2}, Newest: 2}},
		}}
		for n := range tt.open {
			id := keep.RunID(fmt.Sprint("run_", n))
			snap.Open = append(snap.Open, schedule.Open{Run: keep.Run{ID: id, Handler: "c", Kind: keep.Consumer, Lane: keep.ChainLane(id), Status: keep.StatusPerson}})
		}
		if step := schedule.Next(snap, now); step.Handler != tt.want {
			t.Errorf("with %d open runs: %s, want run %s", tt.open, word(step), tt.want)
		}
	}
}

// A step that waits has a time to decide again that lies ahead, or none; and the
// decision does not depend on the order of the handlers.
func TestNextNeverSpins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SampledFrom([]time.Time{{}, now.Add(-time.Hour), now, now.Add(time.Millisecond), now.Add(time.Hour)})
		var snap schedule.Snapshot
		snap.Paused = rapid.IntRange(0, 9).Draw(t, "paused") == 0
		for i := range rapid.IntRange(0, 5).Draw(t, "handlers") {
			h := schedule.Handler{Handler: keep.Handler{
				Name: keep.HandlerName(fmt.Sprintf("h%d", i)), Kind: rapid.SampledFrom(keep.Kinds()).Draw(t, "kind"),
			}}
			h.State = keep.HandlerState{
				WakeAt: times.Draw(t, "wake"), NextAt: times.Draw(t, "next"), RequestedAt: times.Draw(t, "requested"),
				IdleSeq: rapid.Int64Range(0, 3).Draw(t, "idle"), LastRun: rapid.SampledFrom([]keep.RunID{"", "run_1"}).Draw(t, "last"),
			}
			h.Schedule.Cron = rapid.SampledFrom([]string{"", "* * * * *"}).Draw(t, "cron")
			h.Fresh = rapid.Bool().Draw(t, "fresh")
			h.Backlog.Oldest.Seq = rapid.Int64Range(0, 3).Draw(t, "oldest")
			h.Backlog.Newest = h.Backlog.Oldest.Seq
			snap.Handlers = append(snap.Handlers, h)
		}
		step := schedule.Next(snap, now)
		if step.Waits() && !step.At.IsZero() && !step.At.After(now) {
			t.Fatalf("Next = %s: waits for the past", word(step))
		}
		snap.Handlers = rapid.Permutation(snap.Handlers).Draw(t, "order")
		if again := schedule.Next(snap, now); again != step {
			t.Fatalf("Next = %s, and %s in another order", word(step), word(again))
		}
	})
}

// Doubts about items that were detached from their runs: asked about when due,
// before anything else; until then nothing is idle, and nothing else waits.
func TestDetachedDoubts(t *testing.T) {
	doubt := func(key string, in time.Duration) keep.Mutation {
		return keep.Mutation{Key: keep.MutationKey(key), Item: "i", State: keep.NeedsReconcile, NextReconcileAt: now.Add(in)}
	}
	job := func(in time.Duration) []schedule.Handler {
		return []schedule.Handler{{Handler: keep.Handler{Name: "j", Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}},
			State: keep.HandlerState{NextAt: now.Add(in)}}}
	}
	inDoubt := keep.Run{Kind: keep.Job, Status: keep.StatusReconciliation}
	one := func(r keep.Run, m keep.Mutation) []schedule.Open { return []schedule.Open{{Run: r, Doubt: m}} }
	for _, tt := range []struct {
		name string
		s    schedule.Snapshot
		want schedule.Step
	}{
		{"Due", schedule.Snapshot{Detached: []keep.Mutation{doubt("a", 1), doubt("b", 0), doubt("c", -1)}, Handlers: job(0)},
			schedule.Step{Do: schedule.AskItem, Mutation: "c"}},
		{"DueWhilePaused", schedule.Snapshot{Detached: []keep.Mutation{doubt("a", 0)}, Paused: true},
			schedule.Step{Do: schedule.AskItem, Mutation: "a"}},
		{"DueWhileAnotherRunWaits", schedule.Snapshot{Detached: []keep.Mutation{doubt("a", 0)}, Open: one(keep.Run{Status: keep.StatusPerson}, keep.Mutation{})},
			schedule.Step{Do: schedule.AskItem, Mutation: "a"}},
		{"Later", schedule.Snapshot{Detached: []keep.Mutation{doubt("b", time.Minute), doubt("a", time.Minute)}, Handlers: job(time.Hour)},
			schedule.Step{Do: schedule.Backoff, At: now.Add(time.Minute)}},
		{"LaterThanATick", schedule.Snapshot{Detached: []keep.Mutation{doubt("a", time.Hour)}, Handlers: job(time.Minute)},
			schedule.Step{Do: schedule.Backoff, At: now.Add(time.Minute)}},
		{"LaterThanARun", schedule.Snapshot{Detached: []keep.Mutation{doubt("a", time.Hour)}, Handlers: job(0)},
			schedule.Step{Do: schedule.Run, Handler: "j"}},
		{"ForAPerson", schedule.Snapshot{Detached: []keep.Mutation{{Key: "a", Item: "i", State: keep.Indeterminate}}, Handlers: job(time.Hour)},
			schedule.Step{Do: schedule.Idle, At: now.Add(time.Hour)}},
		{"Detach", schedule.Snapshot{Open: one(inDoubt, doubt("a", 0)), Detach: true}, schedule.Step{Do: schedule.Detach}},
		{"DetachForAPerson", schedule.Snapshot{Open: one(inDoubt, keep.Mutation{Item: "i", State: keep.Indeterminate}), Detach: true},
			schedule.Step{Do: schedule.Detach}},
		{"MayNotDetach", schedule.Snapshot{Open: one(inDoubt, doubt("a", 0))}, schedule.Step{Do: schedule.Ask}},
		{"NoItem", schedule.Snapshot{Detach: true,
			Open: one(keep.Run{Kind: keep.Consumer, Status: keep.StatusReconciliation}, keep.Mutation{State: keep.NeedsReconcile, NextReconcileAt: now})}, schedule.Step{Do: schedule.Ask}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := schedule.Next(tt.s, now); got != tt.want {
				t.Errorf("Next = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A consumer that has another name keeps its alarm, and looks at its events again.
func TestDeployedConsumerOfAnotherName(t *testing.T) {
	alarm := keep.HandlerState{Handler: "act", Kind: keep.Consumer, WakeAt: now.Add(time.Hour), IdleSeq: 9}
	before := func(hs ...keep.Handler) keep.Deployment {
		return keep.Deployment{Definition: keep.Definition{Handlers: hs}}
	}
	act := keep.Handler{Name: "act", Kind: keep.Consumer}
	for _, c := range []struct {
		name   string
		before keep.Deployment
		h      keep.Handler
		rings  bool
	}{
		{"says so", before(act), keep.Handler{Name: "handle", Kind: keep.Consumer, Items: "act"}, true},
		{"says it of the first name", before(keep.Handler{Name: "act", Kind: keep.Consumer, Items: "first"}), keep.Handler{Name: "handle", Kind: keep.Consumer, Items: "first"}, true},
		{"has its first name back", before(keep.Handler{Name: "act", Kind: keep.Consumer, Items: "handle"}), keep.Handler{Name: "handle", Kind: keep.Consumer}, true},
		{"says nothing", before(act), keep.Handler{Name: "handle", Kind: keep.Consumer}, false},
		{"was no consumer", before(keep.Handler{Name: "act", Kind: keep.Producer}), keep.Handler{Name: "handle", Kind: keep.Consumer, Items: "act"}, false},
	} {
		stale := keep.HandlerState{Handler: "other", Kind: keep.Consumer}
		s, err := schedule.Deployed(c.h, []keep.HandlerState{stale, alarm}, c.before, time.Hour, now)
		if err != nil || s.Handler != "handle" || s.IdleSeq != 0 || !s.WakeAt.IsZero() != c.rings {
			t.Errorf("%s: %+v, %v; want that it rings: %t", c.name, s, err, c.rings)
		}
	}
}

// A job that has another name keeps its tick, also one that is due.
func TestDeployedJobOfAnotherName(t *testing.T) {
	daily := keep.Schedule{Cron: "30 0 * * *"}
	due := keep.HandlerState{Handler: "old", Kind: keep.Job, NextAt: now.Add(-time.Minute)}
	for _, c := range []struct {
		name string
		old  keep.Handler
		h    keep.Handler
		due  bool
	}{
		{"says so", keep.Handler{Name: "old", Kind: keep.Job, Schedule: daily}, keep.Handler{Name: "new", Kind: keep.Job, Schedule: daily, Items: "old"}, true},
		{"has its first name back", keep.Handler{Name: "old", Kind: keep.Job, Schedule: daily, Items: "new"}, keep.Handler{Name: "new", Kind: keep.Job, Schedule: daily}, true},
		{"says nothing", keep.Handler{Name: "old", Kind: keep.Job, Schedule: daily}, keep.Handler{Name: "new", Kind: keep.Job, Schedule: daily}, false},
		{"has another schedule", keep.Handler{Name: "old", Kind: keep.Job, Schedule: keep.Schedule{Cron: "0 1 * * *"}}, keep.Handler{Name: "new", Kind: keep.Job, Schedule: daily, Items: "old"}, false},
		{"was no job", keep.Handler{Name: "old", Kind: keep.Producer, Schedule: daily}, keep.Handler{Name: "new", Kind: keep.Job, Schedule: daily, Items: "old"}, false},
	} {
		before := keep.Deployment{Definition: keep.Definition{Handlers: []keep.Handler{c.old}}}
		stale := keep.HandlerState{Handler: "new", Kind: keep.Job, NextAt: now.AddDate(0, -1, 0)} // of when it had that name before
		s, err := schedule.Deployed(c.h, []keep.HandlerState{stale, due}, before, time.Hour, now)
		if err != nil || s.Handler != "new" || s.NextAt.Equal(due.NextAt) != c.due || !c.due && !s.NextAt.After(now) {
			t.Errorf("%s: %+v, %v; want that it is due: %t", c.name, s, err, c.due)
		}
	}
}

// A time of which nanoseconds cannot tell, as that of an interval of centuries, is later than all others.
func TestFarFuture(t *testing.T) {
	next := now.Add(time.Minute)
	var handlers []schedule.Handler
	for name, at := range map[keep.HandlerName]time.Time{"far": now.AddDate(280, 0, 0), "soon": next} {
		handlers = append(handlers, schedule.Handler{Handler: keep.Handler{Name: name, Kind: keep.Producer, Schedule: keep.Schedule{Interval: time.Hour}}, State: keep.HandlerState{NextAt: at}})
	}
	if step := schedule.Next(schedule.Snapshot{Handlers: handlers}, now); step.Do != schedule.Idle || !step.At.Equal(next) {
		t.Errorf("Next = %+v, want that it is idle until %s", step, next)
	}
}
