package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/store/memory"
)

// scrape returns what the metrics answer.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	res, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("scrape: %s, %v\n%s", res.Status, err, text)
	}
	return string(text)
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("lacks %q in\n%s", line, text)
		}
	}
}

// Of a store that does not answer nothing is read; what the process knows by itself is said all the same, and that the store refuses.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	asked := 0
	h := metrics.New(metrics.Config{
		Store: memory.New(), Logger: slog.New(slog.DiscardHandler), Refuses: func() bool { return false }, Sandbox: func() (int, int) { return 2, 8 },
		Answers:     func(context.Context) error { asked++; return errors.New("it does not answer") },
		KeysUnknown: func(ctx context.Context) (int, error) { return 0, ctx.Err() },
	})
	text := scrape(t, h)
	want(t, text, `keep_store_refuses 1`, `keep_sandbox_idle_instances 8`)
	if strings.Contains(text, "\nkeep_runs{") || strings.Contains(text, "keep_metrics_unreadable 0") || asked != 1 {
		t.Errorf("it was asked %d times, and then read:\n%s", asked, text)
	}
}

func TestMetrics(t *testing.T) {
	s := memory.New()
	made := time.Now().Add(-time.Hour)
	m := keep.Mutation{Key: "k", Workflow: "w", Run: "run_1", Tool: "crm.create", Level: keep.LevelKey, Token: "t",
		State: keep.NeedsReconcile, Attempts: 1, CallDeadline: made, CreatedAt: made, UpdatedAt: made}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Mutating,
		Status: keep.StatusReconciliation, Mutation: "k", CreatedAt: made, UpdatedAt: made}
	err := s.Commit(context.Background(), keep.Commit{Workflow: "w", At: made, Changes: []keep.Change{
		keep.PutRun{Run: keep.Run{ID: "run_0", Chain: "run_0", Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusApproval, Closed: true, CreatedAt: made, UpdatedAt: made}},
		keep.PutRun{Run: keep.Run{ID: "run_2", Chain: "run_2", Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Preparing, Status: keep.StatusAborted, Closed: true, CreatedAt: made, UpdatedAt: made}},
		keep.PutRun{Run: run}, keep.PutMutation{Mutation: m},
		keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", ExternalID: "1"}},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m"}},
		keep.OpenEscalation{Escalation: keep.Escalation{ID: "e", Kind: keep.AskLogic, Workflow: "w"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := metrics.New(metrics.Config{Store: s, Grouped: func() (uint64, uint64) { return 30, 10 },
		Refuses: func() bool { return true }, KeysUnknown: func(context.Context) (int, error) { return 3, nil }, Sandbox: func() (int, int) { return 2, 8 }})
	moved := func(from, to keep.MutationState, after time.Duration) {
		h.Observe(keep.Commit{Changes: []keep.Change{keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: made.Add(after), From: from, To: to}}}}})
	}
	moved(keep.InFlight, keep.Applied, time.Second)               // there was no doubt
	moved(keep.InFlight, keep.NeedsReconcile, time.Second)        // it begins
	moved(keep.NeedsReconcile, keep.Applied, 7*time.Second)       // a lookup found it
	moved(keep.Indeterminate, keep.Skipped, 20*time.Minute)       // a person ended it
	moved(keep.NeedsReconcile, keep.Indeterminate, 9*time.Second) // still a doubt
	text := scrape(t, h)
	want(t, text,
		`keep_runs{status="paused:reconciliation"} 1`, `keep_runs{status="committed"} 0`, `keep_runs{status="aborted"} 1`,
		`keep_runs{status="paused:approval"} 0`, // another attempt took over
		`keep_mutations{state="needs_reconcile"} 1`, `keep_inputs{status="done"} 1`, `keep_items{status="failed"} 0`,
		`keep_open_questions{kind="logic"} 1`, `keep_events_waiting{reserved="false",topic="t",workflow="w"} 1`,
		`keep_store_commits_total 30`, `keep_store_transactions_total 10`, `keep_sandbox_waiting_phases 2`, `keep_sandbox_idle_instances 8`,
		`keep_time_to_certainty_seconds_bucket{le="5"} 0`, `keep_time_to_certainty_seconds_bucket{le="10"} 1`,
		`keep_time_to_certainty_seconds_count 2`, `keep_store_refuses 1`, `keep_keys_unknown 3`, `keep_metrics_unreadable 0`)
	if !strings.Contains(text, "keep_oldest_unknown_outcome_seconds 360") {
		t.Errorf("the oldest doubt is not an hour old:\n%s", text)
	}
}

// broken is a store that cannot be read.
type broken struct{ *memory.Store }

func (broken) CountRuns(context.Context, keep.RunFilter) (map[keep.RunStatus]int, error) {
	return nil, errors.New("no")
}

// What cannot be read is left out, and said.
func TestUnreadable(t *testing.T) {
	text := scrape(t, metrics.New(metrics.Config{Store: broken{memory.New()}, Logger: slog.New(slog.DiscardHandler)}))
	want(t, text, `keep_metrics_unreadable 1`, `keep_oldest_unknown_outcome_seconds 0`, `keep_mutations{state="applied"} 0`)
	if strings.Contains(text, "keep_runs") {
		t.Errorf("runs are told, and cannot be read:\n%s", text)
	}
}

// Names that scripts choose cost a scraper a bounded number of series, and nothing is lost.
func TestSeriesAreBounded(t *testing.T) {
	h := metrics.New(metrics.Config{Store: memory.New()})
	const calls = 3000
	var wg sync.WaitGroup
	for half := range 2 {
		wg.Go(func() {
			for i := range calls / 2 {
				h.Measure(engine.Measure{What: engine.MeasuredCall, Workflow: "w", Tool: keep.ToolName(fmt.Sprint("t.", i, ".", half)), Took: time.Second, Class: keep.ClassLogic})
			}
		})
	}
	wg.Wait()
	h.Measure(engine.Measure{What: engine.MeasuredRun, Workflow: "w", Handler: "h", Status: keep.StatusCommitted})
	text := scrape(t, h)
	if n := strings.Count(text, "\nkeep_call_seconds_count{"); n != 501 {
		t.Errorf("%d series of calls, want 500 and the one of the others", n)
	}
	want(t, text, `keep_call_seconds_count{tool="other",workflow="other"} 2500`, `keep_errors_total{class="logic",handler="",tool="other",what="call",workflow="other"} 2500`,
		`keep_run_seconds_count{handler="h",status="committed",workflow="w"} 1`)
}

// So do those of topics, which one deploy may have any number of.
func TestTopicsAreBounded(t *testing.T) {
	s := memory.New()
	var changes []keep.Change
	for i := range 700 {
		changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: keep.TopicName(fmt.Sprintf("t%03d", i)), MessageID: "m"}})
	}
	for _, w := range []keep.WorkflowName{"w", metrics.Other} {
		if err := s.Commit(t.Context(), keep.Commit{Workflow: w, At: time.Now(), Changes: changes}); err != nil {
			t.Fatal(err)
		}
		changes = []keep.Change{keep.Publish{Event: keep.Event{Workflow: metrics.Other, Topic: metrics.Other, MessageID: "m"}}}
	}
	text := scrape(t, metrics.New(metrics.Config{Store: s}))
	if n := strings.Count(text, "\nkeep_events_waiting{"); n != 2*500 {
		t.Errorf("%d series of topics, want two of each of 500", n)
	}
	want(t, text, `keep_events_waiting{reserved="false",topic="other",workflow="other"} 202`, `keep_events_waiting{reserved="false",topic="t498",workflow="w"} 1`)
}

// Every figure says what it is, and of which type. The reference is made of this.
func TestFigures(t *testing.T) {
	types := map[string]int{}
	for _, f := range metrics.New(metrics.Config{}).Figures() {
		if types[f.Type]++; f.Help == "" || !strings.HasPrefix(f.Name, "keep_") || (f.Type == "counter") != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%+v", f)
		}
		if f.Name == "keep_events_waiting" && !slices.Equal(f.Labels, []string{"workflow", "topic", "reserved"}) {
			t.Errorf("%s has the labels %q", f.Name, f.Labels)
		}
	}
	if types["histogram"] != 6 || types["counter"] < 4 || types["gauge"] < 8 {
		t.Errorf("there are %v", types)
	}
}
