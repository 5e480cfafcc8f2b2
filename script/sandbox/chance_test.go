package sandbox_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep/script/sandbox"
)

// The same seed gives the same numbers, whatever asks for them; another one gives others, and
// so does none.
func TestSeed(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	b := &sandbox.Bundle{Entry: "w.js", Code: []byte(`var __keep_module = { default: Keep.workflow({ name: "w", jobs: { j: () => [
  Math.random(), Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(4))], early ] } }) };
var early = [Date.now(), Math.random(), crypto.randomUUID()];`)}
	call := func(at time.Time, seed string) string {
		t.Helper()
		bundle := *b
		bundle.At = at
		if !at.IsZero() {
			bundle.Seed = at.AppendFormat(nil, time.RFC3339)
		}
		p, err := rt.Load(t.Context(), &bundle)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		out, err := p.Call(t.Context(), sandbox.Call{Path: []string{"jobs", "j"}, Seed: []byte(seed)})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	first := call(noon, "a")
	if again := call(noon, "a"); again != first {
		t.Errorf("the same seed gave %s and %s", first, again)
	}
	for name, other := range map[string]string{
		"another seed": call(noon, "b"), "no seed": call(noon, ""), "another time": call(noon.Add(time.Hour), "a"), "no time": call(time.Time{}, "a"),
	} {
		if other == first {
			t.Errorf("%s gave the same numbers: %s", name, other)
		}
	}
}

// A program is constant only if what it was at the top level does not depend on when, and with
// what luck, it was loaded.
func TestConstant(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, test := range []struct {
		name, top string
		constant  bool
	}{
		{"nothing", "", true},
		{"a table", "const t = new Map([[1, 2]]); globalThis.x = JSON.parse('{}'); new URL('http://a.b');", true},
		{"a date of its own", "const d = new Date(2026, 1, 1).toISOString();", true},
		{"numbers that are the same in each load", "const n = Math.random();", true},
		{"the time", "const n = Date.now();", false},
		{"a date", "const n = new Date();", false},
		{"a date as text", "const n = Date();", false},
		{"an id", "const n = crypto.randomUUID();", false},
		{"bytes", "const n = crypto.getRandomValues(new Uint8Array(4));", false},
		{"the time that somebody else asks for", "const f = () => Date.now(); const n = [1].map(f);", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := rt.Load(t.Context(), &sandbox.Bundle{Entry: "w.js", Code: []byte(
				`var __keep_module = { default: Keep.workflow({ name: "w", jobs: { j: () => [Date.now(), crypto.randomUUID()] } }) };` + test.top)})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if _, err := p.Call(t.Context(), sandbox.Call{Path: []string{"jobs", "j"}}); err != nil {
				t.Fatal(err)
			}
			if p.Constant() != test.constant {
				t.Errorf("Constant = %t", p.Constant())
			}
		})
	}
}
