package gateway

import "testing"

func TestOfServer(t *testing.T) {
	for _, tt := range []struct {
		pattern, server string
		want            bool
	}{
		{"up.create", "up", true}, {"up.list_*", "up", true}, {"up.*", "up", true}, {"*", "up", true}, {"u*", "up", true}, {"*.list", "up", true}, {"up*", "up", true},
		{"up.create", "upper", false}, {"upper.*", "up", false}, {"up.", "up", false}, {"up", "up", false}, {"", "up", false}, {"upp*", "up", false}, {"down.*", "up", false},
	} {
		if got := ofServer(tt.pattern, tt.server); got != tt.want {
			t.Errorf("%q and %q: %t", tt.pattern, tt.server, got)
		}
	}
}

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
