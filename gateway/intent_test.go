//go:build unix

package gateway_test

import (
	"fmt"
	"testing"
)

// Two intents are two calls, also where Unicode cannot hold the texts, as of an emoji that was cut in half. Law: nothing-lost.
func TestIntentsThatAreCut(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, nil)
	for i, intent := range []string{`"\ud83d"`, `"\ud83c"`, `"\ufffd"`, `"\ud83d"`, `"\u0061"`, `"a"`} {
		r := must(d.ask(8, "tools/call", fmt.Sprintf(`{"name":"notes__create","arguments":{"title":"x","body":"text"},"_meta":{"keep/intent":%s}}`, intent)))
		d.want(intent, r, "applied", []int{1, 2, 3, 4, 5, 5}[i])
	}
}
