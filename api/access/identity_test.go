package access_test

import (
	"testing"

	"github.com/keep-run/keep/api/access"
)

func TestCovers(t *testing.T) {
	roles := access.Roles()
	for i, have := range roles {
		for j, need := range roles {
			if got := have.Covers(need); got != (i >= j) {
				t.Errorf("%s.Covers(%s) = %t", have, need, got)
			}
		}
		for _, odd := range []access.Role{"", "root"} {
			if have.Covers(odd) || odd.Covers(have) || odd.Covers(odd) {
				t.Errorf("%q and %s cover each other", odd, have)
			}
		}
	}
}

func TestFrom(t *testing.T) {
	if id, ok := access.From(t.Context()); ok || id != (access.Identity{}) {
		t.Errorf("From of a plain context = %+v, %t", id, ok)
	}
	want := access.Identity{Name: "ann", Role: access.Operator, Via: access.ViaToken, ID: "t1"}
	if id, ok := access.From(access.With(t.Context(), want)); !ok || id != want {
		t.Errorf("From = %+v, %t, want %+v", id, ok, want)
	}
}
