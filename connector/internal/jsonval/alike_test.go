package jsonval_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector/internal/jsonval"
)

// What services make of a value that they were sent: it is not another one for that.
func TestAlike(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long title ", 20)
	for _, c := range []struct {
		got, want string
		alike     bool
	}{
		{`"Ada  Lovelace "`, `"ada lovelace"`, true},
		{`"M\u00fcller"`, `"Mu\u0308ller"`, true}, // one letter, or a letter and a mark
		{`"STRASSE"`, `"Straße"`, true},
		{`"office"`, `"oﬃce"`, true},
		{`"a\u200bb"`, `"ab"`, true},
		{`"Tom &amp; Jerry &lt;tj@x&gt;"`, `"Tom & Jerry <tj@x>"`, true},
		{`"It&#039;s"`, `"It's"`, true},
		{`"Muller"`, `"Müller"`, false},
		{`"Tom"`, `"Tom & Jerry"`, false},
		// cut at the size of a column, or for people
		{`"` + long[:64] + `"`, `"` + long + `"`, true},
		{`"A long ti…"`, `"a long title"`, true},
		{`"A long ti..."`, `"a long title"`, true},
		{`"…"`, `"a long title"`, false},
		{`"` + long + `"`, `"` + long[:64] + `"`, false},
		{`"order-1"`, `"order-12"`, false},
		{`"a reminder of the invoice of customer 1"`, `"a reminder of the invoice of customer 12"`, false}, // the one before
		{`"a reminder of the invoice of customer "`, `"a reminder of the invoice of customer 12"`, true},
		// times
		{`"2026-11-30T12:00:00.000Z"`, `"2026-11-30T13:00:00+01:00"`, true},
		{`"2026-11-30T12:00:00+0000"`, `"2026-11-30T12:00:00Z"`, true},
		{`"2026-11-30 12:00:00"`, `"2026-11-30T12:00:00Z"`, true},
		{`"2026-11-30 13:00:00"`, `"2026-11-30T13:00:00+01:00"`, true},
		{`"2026-11-30"`, `"2026-11-30T13:00:00+01:00"`, true},
		{`1796040000`, `"2026-11-30T12:00:00Z"`, true},
		{`1796040000000`, `"2026-11-30T12:00:00Z"`, true},
		{`"2026-11-30T12:00:01Z"`, `"2026-11-30T12:00:00Z"`, false},
		{`"2026-12-01"`, `"2026-11-30T13:00:00+01:00"`, false},
		{`1796040001`, `"2026-11-30T12:00:00Z"`, false},
		// numbers
		{`"17.0"`, `17`, true}, {`20.00`, `19.999`, true}, {`"20"`, `19.999`, true}, {`19.99`, `19.999`, true}, {`0.3`, `0.30000000000000004`, true},
		{`18`, `17`, false}, {`21`, `19.999`, false}, {`17.5`, `17`, false}, {`10.12`, `10.14`, false},
		{`1`, `true`, true}, {`0`, `false`, true}, {`1`, `false`, false},
		// what is empty is left out
		{``, `""`, true}, {`null`, `""`, true}, {`null`, `0`, true}, {``, `[]`, true}, {`null`, `false`, true}, {`{"b":1}`, `{"a":"","b":1}`, true}, {`{}`, `{"a":{}}`, true},
		{``, `17`, false}, {`null`, `"x"`, false}, {`{"b":1}`, `{"a":"x","b":1}`, false}, {`[1]`, `[1,2]`, false}, {`"x"`, `""`, false}, {`{`, `""`, false},
	} {
		if got := jsonval.Alike(json.RawMessage(c.got), json.RawMessage(c.want)); got != c.alike {
			t.Errorf("Alike(%.80s, %.80s) = %t", c.got, c.want, got)
		}
	}
}
