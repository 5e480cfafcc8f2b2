package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// Law: bound-to-its-world. Hosts that would send in different ways are found, and nobody is
// accused who is gone or does not say what it has.
func TestMismatches(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	host := func(name string, left time.Duration, connections map[string]string) keep.Host {
		return keep.Host{ID: keep.HostID("host_" + name), Name: name, Until: now.Add(left), Connections: connections}
	}
	one, two := map[string]string{"crm": "1"}, map[string]string{"crm": "2"}
	a := host("a", time.Minute, one)
	for name, test := range map[string]struct {
		hosts []keep.Host
		want  string
	}{
		"one":        {[]keep.Host{a}, "[]"},
		"alike":      {[]keep.Host{a, host("b", time.Minute, one)}, "[]"},
		"gone":       {[]keep.Host{a, host("b", 0, two)}, "[]"},
		"older":      {[]keep.Host{a, host("b", time.Minute, nil)}, "[]"},
		"other way":  {[]keep.Host{host("b", time.Minute, two), a}, "[connection crm is not the same on all hosts: a one way; b another way]"},
		"missing":    {[]keep.Host{a, host("b", time.Minute, map[string]string{})}, "[connection crm is not the same on all hosts: a one way; b without it]"},
		"most first": {[]keep.Host{a, host("b", time.Minute, two), host("c", time.Minute, two)}, "[connection crm is not the same on all hosts: b, c one way; a another way]"},
	} {
		got := policy.Mismatches(test.hosts, now)
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
		for _, m := range got {
			if !m.Of("host_a") || m.Of("host_z") {
				t.Errorf("%s: %+v is of the wrong hosts", name, m)
			}
		}
	}
}
