package account_test

import (
	"testing"

	"github.com/keep-run/keep/law/account"
)

// Law: bound-to-its-world. What may be another user's is a change, and each has a question of its own.
func TestChanges(t *testing.T) {
	type as = map[string]string
	was := as{"account shop": "1"}
	for _, c := range []struct {
		name string
		was  as
		now  as
		want int
	}{
		{"the same", was, as{"account shop": "1"}, 0},
		{"connected again", was, as{"account shop": "2"}, 1},
		{"an account that holds nothing", was, as{"account shop": ""}, 0},
		{"an account that is not named any more", was, as{"account shop2": "2"}, 1},
		{"a secret in its place", was, as{"secret shop": "a"}, 1},
		{"a secret of another name", as{"secret a": "x"}, as{"secret b": "x"}, 0},
		{"a secret that is gone", as{"secret a": "x"}, nil, 1},
	} {
		if got := account.Changes(c.was, c.now); len(got) != c.want {
			t.Errorf("%s: %+v, want %d changes", c.name, got, c.want)
		}
	}
	two, three := account.Changes(was, as{"account shop2": "2"})[0], account.Changes(was, as{"account shop3": "3"})[0]
	if two.QuestionID(0) == three.QuestionID(0) {
		t.Error("the answer about shop2 counts for shop3")
	}
}
