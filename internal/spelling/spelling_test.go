package spelling_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/spelling"
)

func TestDistance(t *testing.T) {
	long := strings.Repeat("a", 200)
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"log", "log", 0}, {"lgo", "log", 1}, {"lgo", "llm", 2}, {"lo", "log", 1}, {"logg", "log", 1}, {"lag", "log", 1}, {"", "log", 3},
		{"dpeloy", "deploy", 1}, {long, long + "a", 128},
	} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%.10q, %.10q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
