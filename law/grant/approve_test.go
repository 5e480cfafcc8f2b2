package grant

import (
	"strings"
	"testing"
)

func TestApprovals(t *testing.T) {
	for _, c := range []struct {
		texts  []string
		params string
		why    string // empty: nobody is asked
		err    string // empty: none
	}{
		{nil, `{}`, "", ""},
		{nil, `not JSON`, "", ""},
		{[]string{Always}, `{}`, "its connection asks for a person's approval before each call", ""},
		{[]string{"true"}, `{}`, `its connection asks for a person's approval if "true"`, ""},
		{[]string{"false"}, `{}`, "", ""},
		{[]string{"params.n > 5"}, `{"n": 5.0}`, "", ""},
		{[]string{"params.n > 5"}, `{"n": 5.5}`, `if "params.n > 5"`, ""},
		{[]string{"params.n > 5"}, `{}`, "not known: there is no param n", ""},
		{[]string{"params.n > 5"}, `{"n": "6"}`, "not known: a param has another type", ""},
		{[]string{"params.n > 5"}, `{"n": 5.0} {}`, "its params cannot be read", ""},
		{[]string{"params.n > 5", "params.n > 3"}, `{"n": 4}`, `if "params.n > 3"`, ""},
		{[]string{"params.n >", "params.n > 3"}, `{"n": 1}`, `if "params.n >", and whether that holds is not known: it cannot be used`, "at character"},
		{[]string{"n > 1"}, `{"n": 1}`, "it cannot be used", "undeclared reference"},
	} {
		a, err := CompileApprovals(c.texts)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, want %q", c.texts, err, c.err)
		}
		if why := a.Why([]byte(c.params)); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%q with %s: %q, want %q", c.texts, c.params, why, c.why)
		}
	}
}
