package sandbox_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

// A pure call gets its arguments and nothing else: no ctx, and no chance.
func TestPureCall(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", `export default Keep.workflow({ name: "t", consumers: { c: {
		all: (...args) => args,
		chance: () => [Math.random(), Math.random()],
		now: () => Date.now(),
		uuid: () => crypto.randomUUID(),
		bytes: () => [...crypto.getRandomValues(new Uint8Array(4))],
	} } })`)
	call := func(pure bool, name string, args ...string) (string, error) {
		c := sandbox.Call{Path: []string{"consumers", "c", name}, Now: epoch, Pure: pure}
		for _, a := range args {
			c.Args = append(c.Args, json.RawMessage(a))
		}
		out, err := p.Call(context.Background(), c)
		return string(out), err
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"all", nil, `[]`},
		{"all", []string{`{"a":1}`}, `[{"a":1}]`},
		{"all", []string{`1`, `"two"`}, `[1,"two"]`},
		{"now", nil, `1795170600123`},
	} {
		if got, err := call(true, tt.name, tt.args...); got != tt.want || err != nil {
			t.Errorf("%s of %v = %s, %v, want %s", tt.name, tt.args, got, err, tt.want)
		}
	}
	a, errA := call(true, "chance")
	b, errB := call(true, "chance")
	if a != b || errA != nil || errB != nil {
		t.Errorf("Math.random gave %s and %s (%v, %v), want the same", a, b, errA, errB)
	}
	for _, name := range []string{"uuid", "bytes"} {
		if got, err := call(true, name); err == nil {
			t.Errorf("%s = %s, want an error", name, got)
		}
		if _, err := call(false, name); err != nil {
			t.Errorf("%s in a call that is not pure: %v", name, err)
		}
	}
	if c, err := call(false, "chance"); c == a || err != nil {
		t.Errorf("Math.random of another call gave %s, %v, want other numbers", c, err)
	}
}
