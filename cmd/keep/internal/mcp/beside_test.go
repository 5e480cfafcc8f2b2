package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// A beside is an agent beside a database whose API gives it all rights, as keep mcp has them by the socket.
type beside struct {
	*testing.T
	db    *memory.Store
	by    *operator.Operator
	tools map[access.Role]*mcp.Toolbox
}

func newBeside(t *testing.T) *beside {
	t.Helper()
	b, log := &beside{T: t, db: memory.New(), tools: make(map[access.Role]*mcp.Toolbox)}, slog.New(slog.DiscardHandler)
	var err error
	if b.by, err = operator.New(b.db, operator.Config{Logger: log}); err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{Store: b.db, Actor: b.by, Changes: feed.New(1), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(access.Local("ada by an agent", handler))
	t.Cleanup(server.Close)
	call := func(_ context.Context, f func(*api.Client) error) error {
		return f(&api.Client{URL: server.URL, Transport: http.DefaultTransport})
	}
	open := func(context.Context, bool) (mcp.Bench, error) { return mcp.Bench{}, errors.New("nothing is tried") }
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		tools, err := mcp.OpenToolbox(t.Context(), mcp.Config{Role: role, Call: call, Deploy: call, Open: open}, "pause", "show")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tools.Close() })
		b.tools[role] = tools
	}
	return b
}

// deployed makes a workflow, with more changes in the same commit.
func (b *beside) deployed(w keep.WorkflowName, more ...keep.Change) {
	b.Helper()
	now := time.Now().UTC()
	d := keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: "h", Entry: "w.js", Code: []byte("x"), CreatedAt: now,
		Definition: keep.Definition{Name: w, Topics: []keep.TopicName{}}}
	if err := b.db.Commit(b.Context(), keep.Commit{Workflow: w, At: now, Changes: append([]keep.Change{keep.Deploy{Deployment: d}}, more...)}); err != nil {
		b.Fatal(err)
	}
}

// say calls a tool as an agent of a role.
func (b *beside) say(role access.Role, tool string, args map[string]any) string {
	b.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}
	res, err := b.tools[role].Call(b.Context(), llm.Call{Name: tool, Arguments: text})
	if err != nil || res.Wrong {
		b.Fatalf("%s %s: %+v, %v", tool, text, res, err)
	}
	return res.Text
}

// An agent that pauses a workflow which is paused leaves the note: it says why a person paused it, and keep resume --all goes by it.
// Law: nothing lost.
func TestAgentKeepsTheNoteOfAPause(t *testing.T) {
	b := newBeside(t)
	for i, c := range []struct{ before, note, want string }{ // before: the note of a person; empty: it is not paused
		{"", "they said stop", "they said stop"}, {"the bank asked", "paused with all", "the bank asked"}, {"the bank asked", "", "the bank asked"},
	} {
		name := keep.WorkflowName(fmt.Sprint("w-", i))
		b.deployed(name)
		if c.before != "" {
			if err := b.by.Pause(t.Context(), name, keep.Decision{By: "ann", Note: c.before}); err != nil {
				t.Fatal(err)
			}
		}
		if text := b.say(access.Operator, "pause", map[string]any{"workflow": name, "note": c.note}); !strings.Contains(text, fmt.Sprintf(`"pause_note": %q`, c.want)) {
			t.Errorf("%q over %q: %s", c.note, c.before, text)
		}
		if w, err := b.db.Workflow(t.Context(), name); err != nil || !w.Paused || w.PauseNote != c.want {
			t.Errorf("%q over %q: paused %v, %q, %v", c.note, c.before, w.Paused, w.PauseNote, err)
		}
	}
}

// What a producer keeps in its checkpoint is for admins alone, and no agent is one, whatever the process that serves it may read. Law:
// permitted.
func TestAgentSeesNoCheckpoint(t *testing.T) {
	b, now := newBeside(t), time.Now().UTC()
	seen := trace.NewRecorder(4000)
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "kv.get", Params: json.RawMessage(`"session"`), Result: json.RawMessage(`"kept for itself"`), At: now})
	seen.Add(trace.Entry{Phase: "handler", What: trace.Read, Tool: "crm.find", Result: json.RawMessage(`"Ada"`), At: now})
	part, _ := seen.Part()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "poll", Kind: keep.Producer,
		Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	b.deployed("w", keep.PutRun{Run: run}, keep.AppendTrace{Part: keep.TracePart{Run: "run_1", At: now, Data: part}})
	for role := range b.tools {
		text := b.say(role, "show", map[string]any{"what": "runs", "id": "run_1"})
		if strings.Contains(text, "kept for itself") || !strings.Contains(text, "session") || !strings.Contains(text, "Ada") {
			t.Errorf("the role %s is shown:\n%s", role, text)
		}
	}
}
