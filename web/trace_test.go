package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/store/memory"
)

// The page of a run shows what it saw, as text, and for which read it waits.
func TestWhatARunSaw(t *testing.T) {
	db, now, one := memory.New(), keepNow(), keep.Version{Major: 1} // without a host, which would take up the run
	run := keep.Run{ID: "run_reads", Chain: "run_reads", Workflow: "counter", Version: one, Handler: "take", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusActive, CreatedAt: now.Add(-time.Hour), UpdatedAt: now.Add(-time.Hour)}
	bare := run
	bare.ID, bare.Chain, bare.Status, bare.Phase, bare.Closed = "run_bare", "run_bare", keep.StatusCommitted, keep.Committed, true
	seen := trace.NewRecorder(400)
	at := now.Add(-time.Minute)
	seen.Add(trace.Entry{Phase: "prepare", What: trace.Read, Tool: "crm.find", Params: json.RawMessage(`{"id":1}`), Result: json.RawMessage(`"<b>Ada</b>"`), At: at, MS: 1234})
	seen.Add(trace.Entry{Phase: "prepare", What: trace.Read, Tool: "crm.list", Result: json.RawMessage(`"` + strings.Repeat("x", 500) + `"`), At: at})
	seen.Begin(trace.Entry{Phase: "prepare", Tool: "crm.slow", At: at})
	seen.Waits()
	part, _ := seen.Part()
	commit(t, db, "counter", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "counter", Version: one, Code: []byte("x"), CreatedAt: now,
		Definition: keep.Definition{Name: "counter", Topics: []keep.TopicName{"in"}, Handlers: []keep.Handler{{Name: "take", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}}}}}},
		keep.PutRun{Run: bare}, keep.PutRun{Run: run}, keep.AppendTrace{Part: keep.TracePart{Run: run.ID, At: now, Data: part}})
	get := pagesAs(t, db, access.Viewer)
	get("GET", "/runs/run_reads", nil).want(t, http.StatusOK, "crm.find", "&lt;b&gt;Ada&lt;/b&gt;", "1.2 s", "too large to be kept", "Waits for crm.slow since", at.Format("2006-01-02 15:04:05"))
	get("GET", "/runs/run_bare", nil).want(t, http.StatusOK, "What this run read is not kept")
}

// What a producer keeps in its checkpoint is for admins alone, also where it is what a run read.
func TestWhatARunReadOfItsCheckpoint(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	now := keepNow()
	run := keep.Run{ID: "run_reads", Chain: "run_reads", Workflow: "counter", Version: w.version("counter").Version, Handler: "count", Kind: keep.Producer,
		Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	seen := trace.NewRecorder(4000)
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "kv.get", Params: json.RawMessage(`"session"`), Result: json.RawMessage(`"kept for itself"`), At: now})
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "crm.find", Result: json.RawMessage(`"Ada"`), At: now})
	part, _ := seen.Part()
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: run},
		keep.AppendTrace{Part: keep.TracePart{Run: run.ID, At: now, Data: part}}}}))
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		a := w.as("vera", role).get("/runs/run_reads")
		a.want(t, http.StatusOK, "kv.get", "session", "Admins see what it read", "Ada")
		if strings.Contains(a.body, "kept for itself") {
			t.Errorf("%s sees what the checkpoint has", role)
		}
	}
	w.as("root", access.Admin).get("/runs/run_reads").want(t, http.StatusOK, "kept for itself")
}
