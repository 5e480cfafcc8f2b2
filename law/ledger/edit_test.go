package ledger_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/law/ledger"
)

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		name, old, now string
		want           []string
	}{
		{"Same", `{"a":1}`, `{"a":1}`, nil},
		{"Changed", `{"id":"7","text":"hello"}`, `{"id":"7","text":"other"}`, []string{`text: "hello" → "other"`}},
		{"Added", `{}`, `{"cc":"<ann>"}`, []string{`cc: (not there) → "<ann>"`}},
		{"Removed", `{"cc":null}`, `{}`, []string{`cc: null → (not there)`}},
		{"Nested", `{"to":[{"name":"Ann"}]}`, `{"to":[{"name":"Bob"},"x"]}`, []string{`to[0].name: "Ann" → "Bob"`, `to[1]: (not there) → "x"`}},
		{"Kind", `{"a":{"b":1}}`, `{"a":[1]}`, []string{`a: {"b":1} → [1]`}},
		{"OddKey", `{"a b":1}`, `{"a b":2}`, []string{`"a b": 1 → 2`}},
		{"BigNumber", `{"n":12345678901234567890}`, `{"n":12345678901234567891}`, []string{`n: 12345678901234567890 → 12345678901234567891`}},
		{"NoJSON", `x`, `y`, []string{`all of it: x → y`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			edits, all := ledger.Edits([]byte(tt.old), []byte(tt.now), 10)
			var got []string
			for _, e := range edits {
				got = append(got, e.String())
			}
			if d := cmp.Diff(got, tt.want); d != "" || all != len(tt.want) {
				t.Errorf("Edits(%s, %s) counts %d (-got +want):\n%s", tt.old, tt.now, all, d)
			}
		})
	}
}

func TestEditsAreBounded(t *testing.T) {
	edits, all := ledger.Edits([]byte(`[1,2,3]`), []byte(`[4,5,6]`), 2)
	if len(edits) != 2 || all != 3 {
		t.Errorf("%d edits of %d, want 2 of 3", len(edits), all)
	}
	long := ledger.Edit{Path: "a", Old: strings.Repeat("x", 10_000)}
	if n := len(long.String()); n > 300 {
		t.Errorf("a long edit has %d bytes, want at most 300", n)
	}
}
