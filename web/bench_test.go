package web_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/web"
)

// BenchmarkPages measures the pages over a database with a million inputs and a
// million mutations, in 16 workflows; KEEP_BENCH_INPUTS makes it another number.
// KEEP_BENCH_DB names a SQLite file, and KEEP_BENCH_POSTGRES a database by its URL,
// that is filled once, and kept. A page should take 50 ms at the 99th percentile, and
// home have 60 KB.
//
//	go test -run - -bench Pages/sqlite -benchtime 300x -timeout 1h ./web
//	go test -run - -bench Pages/postgres -benchtime 50x -timeout 1h ./web
func BenchmarkPages(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("KEEP_BENCH_INPUTS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for name, open := range map[string]func(*testing.B) database{
		"sqlite": func(b *testing.B) database {
			db := sqlite.New(cmp.Or(os.Getenv("KEEP_BENCH_DB"), filepath.Join(b.TempDir(), "keep.db")), sqlite.Config{Host: true})
			if err := db.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			return db
		},
		"postgres": func(b *testing.B) database {
			url := os.Getenv("KEEP_BENCH_POSTGRES")
			if url == "" {
				url = pgtest.SchemaURL(b)
			}
			db := postgres.New(url, postgres.Config{Host: true, IdleTimeout: 10 * time.Minute, StatementTimeout: 10 * time.Minute})
			if err := db.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			return db
		},
	} {
		b.Run(name, func(b *testing.B) {
			db := open(b)
			b.Cleanup(func() { db.Close() })
			if filled, _, err := db.Runs(b.Context(), keep.RunFilter{}, keep.Page{Limit: 1}); err != nil {
				b.Fatal(err)
			} else if len(filled) == 0 {
				fill(b, db, amount{inputs: n, workflows: 16, waiting: 1000})
			}
			benchPages(b, db)
		})
	}
}

// BenchmarkManyQuestions measures the pages where 5,000 questions are open, of 4 workflows, each about a call of a run of its own,
// and 5,000 were answered.
//
//	go test -run - -bench ManyQuestions -benchtime 100x ./web
func BenchmarkManyQuestions(b *testing.B) {
	db := sqlite.New(filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	fill(b, db, amount{inputs: 5_000, workflows: 16, waiting: 10})
	ask(b, db, 10_000)
	benchEach(b, db, []benchPage{{"home", "/"}, {"inputs", "/inputs"}, {"workflows", "/workflows"}, {"inbox", "/inbox"}, {"decided", "/inbox?show=decided"}, {"runs", "/runs"}})
}

// ask makes questions, of which every second is answered, each about a call in doubt of a run of its own.
func ask(b testing.TB, db committer, n int) {
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	for i := range n {
		id := fmt.Sprint("asked", i)
		w := keep.WorkflowName(fmt.Sprintf("bench%d", i/2%4))
		f := &keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Tool: "desk.reply", Message: "the service did not answer in time, and nobody can be asked what became of the call"}
		run := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Workflow: w, Version: keep.Version{Major: 1}, Handler: "reply", Kind: keep.Consumer, Phase: keep.Mutating,
			Status: keep.StatusReconciliation, Lane: keep.ChainLane(keep.RunID("run_" + id)), Mutation: keep.MutationKey("mut_" + id), Title: "Reply", Error: f, CreatedAt: at, UpdatedAt: at}
		m := keep.Mutation{Key: run.Mutation, Workflow: w, Run: run.ID, Tool: "desk.reply", Connector: "http", Level: keep.LevelNone, Target: "to=" + id, Identity: []byte(`{}`),
			Payload: []byte(`{"text":"Hello"}`), PayloadHash: "x", Token: id, Title: "Reply", State: keep.Indeterminate, Doubted: true, Attempts: 1, CallDeadline: at, Error: f, CreatedAt: at, UpdatedAt: at}
		q := keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: keep.AskUnknownOutcome, Workflow: w, Run: run.ID, Mutation: m.Key, Title: "Reply", Question: "Did desk.reply on to=" + id + " happen?",
			Attempted: "desk.reply on to=" + id + ` with {"text":"Hello"}`, Why: f.Message, CreatedAt: at, Choices: []keep.Choice{
				{Action: keep.DidNotHappen, Label: "It didn't happen", Effect: "sends it again"}, {Action: keep.Happened, Label: "It happened", Effect: "sends nothing"}, {Action: keep.Skip, Label: "Skip", Effect: "continues without knowing"}}}
		moves := []keep.Move{{At: at, By: "call", To: keep.InFlight, Evidence: "new attempt"}, {At: at, By: "call", From: keep.InFlight, To: keep.Indeterminate, Evidence: "no way to ask"}}
		changes := []keep.Change{keep.PutRun{Run: run}, keep.PutMutation{Mutation: m, Moves: moves}, keep.OpenEscalation{Escalation: q}}
		if i%2 == 0 {
			run.Closed, run.Rev = true, 1
			changes = append(changes, keep.PutRun{Run: run}, keep.CloseEscalation{ID: q.ID, Decision: &keep.Decision{Action: keep.Skip, By: "ada", At: at}})
		}
		commit(b, db, w, at, changes...)
	}
}

// A benchPage is a page that is measured.
type benchPage struct{ name, path string }

// benchPages asks for each page of a database.
func benchPages(b *testing.B, db database) {
	benchEach(b, db, []benchPage{
		{"home", "/"},
		{"inputs", "/inputs"},
		{"inputs pending", "/inputs?status=pending"},
		{"inputs of a workflow", "/inputs?workflow=bench7"},
		{"search", "/inputs?q=invoice+777"},
		{"search all", "/inputs?q=invoice"},
		{"mutations", "/mutations"},
		{"mutations applied", "/mutations?state=applied"},
		{"mutations of a tool", "/mutations?tool=desk.reply"},
		{"runs", "/runs"},
		{"runs of a handler", "/runs?handler=reply&since=40d"},
		{"run", "/runs/run_open7"},
		{"events", "/events?workflow=bench7"},
		{"inbox", "/inbox"},
		{"items", "/items"},
		{"workflow", "/workflows/bench7"},
	})
}

// benchEach asks for pages of a database.
func benchEach(b *testing.B, db database, views []benchPage) {
	e, err := operator.New(db, operator.Config{})
	if err != nil {
		b.Fatal(err)
	}
	pages, err := web.New(web.Config{Store: db, Actor: e})
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range views {
		b.Run(v.name, func(b *testing.B) {
			size := 0
			var took, cpu []time.Duration
			for b.Loop() {
				start, used := time.Now(), cputime.Used()
				r := httptest.NewRequestWithContext(access.With(b.Context(), access.Identity{Name: "ada", Role: access.Operator}), http.MethodGet, v.path, nil)
				rec := httptest.NewRecorder()
				pages.ServeHTTP(rec, r)
				if rec.Code != http.StatusOK {
					b.Fatalf("%s: %d: %s", v.path, rec.Code, rec.Body)
				}
				size = rec.Body.Len()
				took, cpu = append(took, time.Since(start)), append(cpu, cputime.Used()-used)
			}
			slices.Sort(took)
			slices.Sort(cpu)
			b.ReportMetric(float64(cpu[len(cpu)*99/100].Microseconds())/1000, "p99-cpu-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(size)/1024, "KiB/page")
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/page")
			if v.path == "/" && size > 60<<10 {
				b.Errorf("home has %d bytes, want at most %d", size, 60<<10)
			}
		})
	}
}

// An amount says how much data fill makes.
type amount struct {
	inputs    int
	workflows int
	waiting   int // one in so many inputs waits
	attempts  int // of the open run of each workflow, beyond the first
}

// fill makes inputs, each with an event, a run and a mutation. Every workflow has an
// item and a question.
func fill(b testing.TB, db committer, much amount) {
	const batch = 200
	n, workflows := much.inputs, much.workflows
	start := time.Now()
	began := start.Add(-30 * 24 * time.Hour).UTC().Truncate(time.Millisecond)
	for w := range workflows {
		name := keep.WorkflowName(fmt.Sprintf("bench%d", w))
		def := keep.Definition{Name: name, Topics: []keep.TopicName{"mail", "log"}, Handlers: []keep.Handler{
			{Name: "poll", Kind: keep.Producer, Publishes: []keep.TopicName{"mail"}},
			{Name: "reply", Kind: keep.Consumer, Subscribe: []keep.TopicName{"mail"}, HasMutate: true}}}
		commit(b, db, name, began, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1},
			Hash: "0123456789abcdef", Entry: "bench.js", Code: []byte("x"), Definition: def, CreatedAt: began}})
	}
	var wg sync.WaitGroup
	for w := range workflows {
		wg.Go(func() {
			name := keep.WorkflowName(fmt.Sprintf("bench%d", w))
			for i := w * batch; i < n; i += batch * workflows {
				now := began.Add(time.Duration(i) * time.Millisecond)
				var changes []keep.Change
				for j := i; j < min(i+batch, n); j++ {
					changes = append(changes, one(name, j, now, j%much.waiting == 0)...)
				}
				commit(b, db, name, now, changes...)
			}
		})
	}
	wg.Wait()
	for w := range workflows {
		name := keep.WorkflowName(fmt.Sprintf("bench%d", w))
		r := keep.Run{Chain: keep.RunID(fmt.Sprintf("run_open%d", w)), Workflow: name, Version: keep.Version{Major: 1}, Handler: "reply", Kind: keep.Consumer,
			Phase: keep.Preparing, Status: keep.StatusPerson, Error: keep.Failf(keep.ClassPermission, "http-401", "the token expired"), CreatedAt: began, UpdatedAt: began}
		key := keep.MutationKey(fmt.Sprintf("mut_item%d", w))
		for i := range much.attempts + 1 {
			over := r
			if r.ID = r.Chain; i > 0 {
				over.Closed, over.Rev = true, 1
				r.ID, r.RetryOf = keep.RunID(fmt.Sprintf("%s_%d", r.Chain, i)), over.ID
				commit(b, db, name, began, keep.PutRun{Run: over}, keep.PutRun{Run: r})
				continue
			}
			commit(b, db, name, began, keep.PutRun{Run: r})
		}
		commit(b, db, name, began,
			keep.PutItem{Item: keep.Item{Workflow: name, ID: "i1", Title: "Item", Status: keep.ItemFailed, Attempt: 1, UpdatedAt: began}},
			keep.PutMutation{Mutation: keep.Mutation{Key: key, Workflow: name, Run: r.ID, Item: "i1", Attempt: 1, Tool: "desk.reply", Connector: "http", Level: keep.LevelKey,
				Target: "to=i1", Payload: []byte(`{"text":"Hello"}`), Token: string(key), State: keep.InFlight, Attempts: 1, CallDeadline: began, CreatedAt: began, UpdatedAt: began},
				Moves: []keep.Move{{At: began, By: "call", To: keep.InFlight, Evidence: "new attempt"}}},
			keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_%d", w)), Kind: keep.AskPermission, Workflow: name, Run: r.ID, Mutation: key,
				Question: "desk.reply was refused. Fix the permission or the secret, then let it try again.", CreatedAt: began}})
	}
	b.Logf("%d inputs made in %s", n, time.Since(start).Round(time.Second))
}

// one is an input with all that was done about it.
func one(w keep.WorkflowName, j int, now time.Time, waits bool) []keep.Change {
	var r [10]byte
	r[0], r[1], r[2], r[3] = byte(j>>24), byte(j>>16), byte(j>>8), byte(j)
	in, run := keep.InputID(keep.NewID("in", now, r)), keep.RunID(keep.NewID("run", now, r))
	id := keep.MessageID(fmt.Sprintf("m%d", j))
	changes := []keep.Change{
		keep.PutInput{Input: keep.Input{ID: in, Workflow: w, Source: "desk", Type: "mail", ExternalID: string(id),
			Title: fmt.Sprintf("Invoice %d of customer %d", j, j%977), Status: keep.InputPending, CreatedAt: now}},
		keep.Publish{Event: keep.Event{Workflow: w, Topic: "mail", MessageID: id, Payload: []byte(`{"subject":"Invoice"}`), Status: keep.EventPending,
			CausedBy: []keep.InputID{in}, CreatedAt: now, UpdatedAt: now}},
	}
	if waits {
		return changes
	}
	key := keep.MutationKey(keep.NewID("mut", now, r))
	return append(changes,
		keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: w, Version: keep.Version{Major: 1}, Handler: "reply", Kind: keep.Consumer, Phase: keep.Committed,
			Status: keep.StatusCommitted, Closed: true, Mutation: key, Title: "Reply", CreatedAt: now, UpdatedAt: now}},
		keep.Reserve{Chain: run, Reservation: keep.Reservation{Topic: "mail", IDs: []keep.MessageID{id}}},
		keep.PutMutation{Mutation: keep.Mutation{Key: key, Workflow: w, Run: run, Tool: "desk.reply", Connector: "http", Level: keep.LevelKey, Target: "to=" + string(id),
			Identity: []byte(`{}`), Payload: []byte(`{"text":"Hello"}`), PayloadHash: "x", Token: string(key), Title: "Reply", State: keep.Applied, Attempts: 1,
			CallDeadline: now, ResolvedBy: "call", CreatedAt: now, UpdatedAt: now},
			Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight, Evidence: "new attempt"}, {At: now, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		keep.Finish{Chain: run, Status: keep.EventConsumed})
}

// A committer is what fill needs.
type committer interface {
	Commit(ctx context.Context, c keep.Commit) error
}

func commit(b testing.TB, db committer, w keep.WorkflowName, at time.Time, changes ...keep.Change) {
	b.Helper()
	if err := db.Commit(b.Context(), keep.Commit{Workflow: w, At: at, Changes: changes}); err != nil {
		b.Error(err)
	}
}
