package childenv

import (
	"slices"
	"strings"
	"testing"
)

// A program gets what every program needs and its own variables, and no secret of Keep.
func TestOf(t *testing.T) {
	t.Setenv("PATH", "/bin")
	t.Setenv("KEEP_SECRET_CRM", "hunter2")
	t.Setenv("KEEP_KEY", "hunter2")
	t.Setenv("DATABASE_URL", "postgres://keep:hunter2@db")
	env := Of(map[string]string{"NOTES_DIR": "/notes"})
	for _, want := range []string{"PATH=/bin", "NOTES_DIR=/notes"} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment has no %s", want)
		}
	}
	if strings.Contains(strings.Join(env, "\n"), "hunter2") {
		t.Errorf("the environment has secrets of Keep: %q", env)
	}
	if Of(nil) == nil {
		t.Error("an environment of nothing would be that of Keep")
	}
}
