package repair_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/internal/sandboxtest"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/repair"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// runtime is the sandbox of all tests: to open one takes half a second.
var runtime = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// A world is a workflow that ran for real until an event failed it.
type world struct {
	db     *memory.Store
	bench  *repair.Bench
	base   repair.Base
	failed keep.Run
	calls  int // that reached the service
	mu     sync.Mutex
}

// A setting is world.json of a base.
type setting struct {
	Handler keep.HandlerName
	Reads   map[string]json.RawMessage
	Events  []struct {
		Topic   keep.TopicName
		ID      keep.MessageID
		Payload json.RawMessage
	}
}

// ServeHTTP is the service.
func (w *world) serve(s setting) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.mu.Lock()
			w.calls++
			fmt.Fprintf(rw, `{"ref":"r%d"}`, w.calls)
			w.mu.Unlock()
			return
		}
		answer, ok := s.Reads[filepath.Base(r.URL.Path)]
		if !ok {
			rw.WriteHeader(http.StatusNotFound)
		}
		_, _ = rw.Write(answer)
	}
}

// textsOf returns the files of a broken workflow: of a directory, or of one file that has each
// below a line "-- NAME --".
func textsOf(t testing.TB, at string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if !strings.HasSuffix(at, ".txt") {
		files, err := filepath.Glob(filepath.Join(at, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(f)] = string(text)
		}
		return out
	}
	text, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq("\n"+string(text), "\n-- ") {
		if name, text, ok := strings.Cut(part, " --\n"); ok {
			out[name] = strings.TrimSuffix(text, "\n") + "\n"
		}
	}
	return out
}

// newWorld runs a base until its last event has failed it.
func newWorld(t testing.TB, dir string) *world {
	t.Helper()
	texts := textsOf(t, dir)
	var s setting
	if err := json.Unmarshal([]byte(texts["world.json"]), &s); err != nil {
		t.Fatal(err)
	}
	source := texts["base.js"]
	w := &world{db: memory.New()}
	server := httptest.NewServer(w.serve(s))
	t.Cleanup(server.Close)
	key := func(path string, identity ...string) httpapi.Tool {
		return httpapi.Tool{Effect: connector.Mutate, Path: path, Identity: identity, IdempotencyHeader: "Idempotency-Key", Deduplicates: true}
	}
	conn, err := httpapi.New("svc", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"get": {Effect: connector.Get, Path: "/things/{id}"}, "list": {Effect: connector.List, Path: "/lists/{page}"},
		"pay": key("/pay", "ref"), "send": key("/send", "to", "subject"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	conns := []connector.Connection{*conn}
	w.live(t, rt, conns, source, s)
	w.bench = &repair.Bench{Store: w.db, Connections: conns, Runtime: rt, Comparer: repair.Recorded{Store: w.db, Connections: conns}}
	list, err := w.db.OpenRuns(t.Context(), w.base.Workflow)
	if err != nil || len(list) != 1 || list[0].Status != keep.StatusLogic || list[0].Handler != s.Handler {
		t.Fatalf("%s: open runs %+v, %v; want one of %s that failed by logic", dir, list, err, s.Handler)
	}
	w.failed = list[0]
	if w.base, err = w.bench.Base(t.Context(), w.failed.Workflow, w.failed.Version); err != nil {
		t.Fatal(err)
	}
	return w
}

// live executes a script for real, until nothing is left to do.
func (w *world) live(t testing.TB, rt *sandbox.Runtime, conns []connector.Connection, source string, s setting) {
	t.Helper()
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: conns, Runtime: rt, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.BuildSource("base.js", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	script, err := host.LoadBundle(t.Context(), rt, b)
	if err != nil {
		t.Fatal(err)
	}
	script.Intent = "pay what is billed, says ann"
	done, err := h.DeployGranted(t.Context(), script, nil, operator.Consent{Give: true, Calls: grantedTools(source)})
	if err != nil || done.Waiting != nil {
		t.Fatal(err, done.Waiting)
	}
	w.base.Workflow = script.Name
	c := keep.Commit{Workflow: script.Name, At: time.Now().UTC().Truncate(time.Millisecond)}
	for _, e := range s.Events {
		c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{Workflow: script.Name, Topic: e.Topic, MessageID: e.ID, Payload: e.Payload,
			Status: keep.EventPending, CreatedBy: keep.PersonPublisher("test"), CreatedAt: c.At, UpdatedAt: c.At}})
	}
	if err := w.db.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := h.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
}

// grantedTools returns the tools that a base calls.
func grantedTools(source string) (list []keep.ToolName) {
	for _, tool := range []string{"get", "list", "pay", "send"} {
		if strings.Contains(source, "svc."+tool+"(") {
			list = append(list, keep.ToolName("svc."+tool))
		}
	}
	return list
}

// A trial is one case of the corpus.
type trial struct {
	name   string
	want   law.Verdict
	harms  bool
	mends  bool // it is right, even if a person has to say so
	source string
}

// parseCase reads a case: what is expected, and what is replaced in the text of the base.
func parseCase(t testing.TB, file, text, base string) trial {
	t.Helper()
	c := trial{name: strings.TrimSuffix(filepath.Base(file), ".case"), source: base}
	head, edits, _ := strings.Cut(text, "<<<<\n")
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "want":
			c.want = law.Verdict(value)
		case "harms":
			c.harms = value == "yes"
		case "mends":
			c.mends = value == "yes"
		default:
			t.Fatalf("%s: a line says %q", file, line)
		}
	}
	for edit := range strings.SplitSeq(edits, "<<<<\n") {
		was, is, ok := strings.Cut(strings.TrimSuffix(edit, "\n>>>>\n"), "\n====\n")
		if !ok || strings.Count(c.source, was) != 1 {
			t.Fatalf("%s: %q is there %d times", file, was, strings.Count(c.source, was))
		}
		c.source = strings.Replace(c.source, was, is, 1)
	}
	return c
}

// corpus returns the broken workflows and their cases: a few of them under the race detector, since test.sh has all without it,
// too.
func corpus(t testing.TB) map[string][]trial {
	t.Helper()
	out := map[string][]trial{}
	for _, pattern := range []string{"testdata/corpus/*", "testdata/faults/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range found {
			if ceiling.Race && !storetest.Sampled(at, 6) {
				continue
			}
			texts := textsOf(t, at)
			for _, name := range slices.Sorted(maps.Keys(texts)) {
				if strings.HasSuffix(name, ".case") {
					out[at] = append(out[at], parseCase(t, name, texts[name], texts["base.js"]))
				}
			}
		}
	}
	return out
}

// TestCorpus tries every proposal of the corpus by the real gate: on workflows that ran for real
// until they failed. One that would harm and is safe is the end of the world.
func TestCorpus(t *testing.T) {
	var all, harmful, passed, right, fixed, unknown int
	scripts, tempting := map[string]bool{}, map[string]bool{}
	for dir, cases := range corpus(t) {
		w := newWorld(t, dir)
		before := w.calls
		scripts[w.base.Text()] = true
		if slices.ContainsFunc(cases, func(c trial) bool { return c.harms }) {
			tempting[w.base.Text()] = true
		}
		for _, c := range cases {
			t.Run(filepath.Base(dir)+"/"+c.name, func(t *testing.T) {
				got, err := w.bench.Try(t.Context(), w.base, w.failed, c.source)
				if err != nil {
					t.Fatal(err)
				}
				all++
				if got.Verdict == law.Inconclusive {
					unknown++
				}
				if c.harms {
					harmful++
					if got.Verdict == law.Safe {
						passed++
						t.Errorf("IT HARMS, and is %s", got.Verdict)
					}
				} else if c.want == law.Safe || c.mends {
					right++
					if got.Verdict == law.Safe {
						fixed++
					}
				}
				if got.Verdict != c.want {
					t.Errorf("%s %q, want %s", got.Verdict, got.Reasons, c.want)
				}
			})
		}
		if w.calls != before {
			t.Errorf("%s: trying made %d calls", dir, w.calls-before)
		}
	}
	if !ceiling.Race && (len(scripts) < 60 || len(tempting) < 30 || all < 60 || harmful < 30) || harmful == 0 || right == 0 {
		t.Errorf("%d scripts, %d of them with a harmful proposal; %d cases, %d of them harmful", len(scripts), len(tempting), all, harmful)
	}
	t.Logf("corpus: %d broken workflows, %d of them with a harmful proposal; %d cases; right ones that are safe %d of %d; harm %d of %d; inconclusive %d",
		len(scripts), len(tempting), all, fixed, right, passed, harmful, unknown)
}
