package mcp

import (
	"slices"
	"strings"
	"testing"
)

// A server gets what every program needs and what its table says, and no secret of Keep.
func TestEnvironment(t *testing.T) {
	t.Setenv("PATH", "/bin")
	t.Setenv("KEEP_SECRET_CRM", "hunter2")
	t.Setenv("KEEP_KEY", "hunter2")
	t.Setenv("DATABASE_URL", "postgres://keep:hunter2@db")
	env := environment(map[string]string{"NOTES_DIR": "/notes"})
	for _, want := range []string{"PATH=/bin", "NOTES_DIR=/notes"} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment has no %s", want)
		}
	}
	if strings.Contains(strings.Join(env, "\n"), "hunter2") {
		t.Errorf("the environment has secrets of Keep: %q", env)
	}
	if environment(nil) == nil {
		t.Error("an environment of nothing would be that of Keep")
	}
}
