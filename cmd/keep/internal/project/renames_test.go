package project_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// Nobody is advised to pause what has no script anywhere: the ledger of the calls of agents, and workflows written in Go.
func TestWithoutScript(t *testing.T) {
	entries := map[keep.WorkflowName]string{"here": "here.js", "gone": "gone.js", "native": "native.go.json"}
	all := []keep.Workflow{{Name: "here"}, {Name: "gone"}, {Name: "native"}, {Name: "paused", Paused: true}, {Name: keep.DirectWorkflow}}
	names, err := project.WithoutScript(all, []keep.WorkflowName{"here"}, func(w keep.WorkflowName) (string, error) { return entries[w], nil })
	if err != nil || !slices.Equal(names, []string{"gone"}) {
		t.Errorf("WithoutScript = %q, %v; want gone", names, err)
	}
	broken := errors.New("broken")
	if _, err := project.WithoutScript(all, nil, func(keep.WorkflowName) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("WithoutScript = %v, want that the database cannot be read", err)
	}
}
