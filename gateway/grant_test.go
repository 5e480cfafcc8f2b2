package gateway

import "testing"

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"up.create", "up.create", true}, {"up.create", "up.create2", false}, {"up.list_*", "up.list_issues", true}, {"up.list_*", "up.list", false},
		{"up.*", "up.a/b", true}, {"up.*", "upper.a", false}, {"*", "up.a", true}, {"up.*_*", "up.a_b", true}, {"up.a*a", "up.a", false}, {"", "", true},
		{"up.*b*c", "up.abbc", true}, {"up.*b*c", "up.acb", false},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q, %q: %t", tt.pattern, tt.name, got)
		}
	}
}
