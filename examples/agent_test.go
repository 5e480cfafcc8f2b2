package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An agent is a client of a running keep mcp.
type agent struct {
	t *testing.T
	*mcp.ClientSession
}

// connect starts keep mcp in dir, and ends it with the test.
func connect(t *testing.T, dir string) agent {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.CommandTransport{Command: command(t, dir, nil, "mcp")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := agent{t, s}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("keep mcp ended with: %v", err)
		}
	})
	return a
}

var framed = regexp.MustCompile(`(?s)<(data-[0-9a-f]{16})>\n(.*)\n</data-[0-9a-f]{16}>$`)

// call calls a tool, and puts the data of its answer into v unless that is nil.
func (a agent) call(tool string, args map[string]any, v any) string {
	a.t.Helper()
	res, err := a.CallTool(context.WithoutCancel(a.t.Context()), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", tool, err)
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		a.t.Fatalf("%s: %s", tool, text)
	}
	if v == nil {
		return text
	}
	m := framed.FindStringSubmatch(text)
	if m == nil {
		a.t.Fatalf("%s: the answer has no data:\n%s", tool, text)
	}
	if err := json.Unmarshal([]byte(m[2]), v); err != nil {
		a.t.Fatalf("%s: %v\n%s", tool, err, m[2])
	}
	return text
}

// TestAgent has a real client write, check, test, plan and propose a workflow by a real
// keep mcp. It runs when a person has agreed, and not before.
func TestAgent(t *testing.T) {
	dir := copyOf(t, "agent")
	source, tests := readText(t, dir, "book.js"), readText(t, dir, "book.test.toml")
	for _, name := range []string{"book.js", "book.test.toml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	a := connect(t, dir)
	if text := a.call("guide", nil, nil); !strings.Contains(text, "Keep.workflow(") {
		t.Errorf("guide: %.200s", text)
	}
	if text := a.call("types", nil, nil); !strings.Contains(text, "readonly ledger") {
		t.Errorf("types: %.200s", text)
	}
	script := map[string]any{"source": source, "file": "book.js"}
	var checked struct{ OK bool }
	if text := a.call("check", script, &checked); !checked.OK {
		t.Errorf("check: %s", text)
	}
	var tested struct{ Passed, Failed int }
	if text := a.call("test", map[string]any{"source": source, "tests": tests}, &tested); tested.Passed != 2 || tested.Failed != 0 {
		t.Errorf("test: %s", text)
	}
	var planned struct {
		Mutations []struct{ Tool string }
	}
	if text := a.call("plan", script, &planned); len(planned.Mutations) != 1 || planned.Mutations[0].Tool != "ledger.write" {
		t.Errorf("plan: %s", text)
	}
	var proposed struct{ State, Workflow, Question string }
	if text := a.call("propose", script, &proposed); proposed.State != "waiting" || proposed.Workflow != "book" {
		t.Fatalf("propose: %s", text)
	}
	again := proposed
	if text := a.call("propose", script, &again); again != proposed {
		t.Errorf("propose again: %s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "ledger.jsonl")); err == nil {
		t.Error("a proposal had an effect")
	}
	keep(t, dir, nil, 0, "inbox", "do", proposed.Question, "approve")
	var shown struct {
		Workflow struct{ Version string }
	}
	if text := a.call("why", map[string]any{"workflow": "book"}, &shown); shown.Workflow.Version != "1.0" {
		t.Errorf("why: %s", text)
	}
	runDeployed(t, dir)
	if text := readText(t, dir, "ledger.jsonl"); strings.Count(text, "120 EUR") != 1 {
		t.Errorf("the ledger has %s", text)
	}
}

func readText(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runDeployed writes what the agent proposed back, which is the version that was agreed to, and
// runs it.
func runDeployed(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("agent", "book.js"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "book.js"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	runOnce(t, dir)
}
