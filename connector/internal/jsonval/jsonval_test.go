package jsonval_test

import (
	"encoding/json"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/keep-run/keep/connector/internal/jsonval"
)

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[1,2]}`, ` {"b":[1.0,20e-1],"a":1}`, true},
		{`"\u00e9"`, `"é"`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`1e999999999999`, `10e999999999998`, true},
		{`0`, `-0.000e5`, true}, {`-1`, `1`, false}, {`null`, `null`, true}, {`null`, `false`, false}, {`"1"`, `1`, false},
		{`[1,2]`, `[2,1]`, false}, {`{"a":null}`, `{}`, false}, {`{`, `{`, false}, {`1 2`, `1`, false}, {``, ``, false},
	} {
		if got := jsonval.Equal(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.want {
			t.Errorf("Equal(%s, %s) = %t", c.a, c.b, got)
		}
	}
}

// SameNumber must agree with exact arithmetic.
func TestSameNumber(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?[0-3])?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if got := jsonval.SameNumber(a, b); got != (x.Cmp(y) == 0) {
			t.Fatalf("SameNumber(%s, %s) = %t", a, b, got)
		}
	})
}

func TestSafe(t *testing.T) {
	v, err := jsonval.Decode(json.RawMessage(`{"a":[9007199254740991,9007199254740993,-9007199254740992,1.5,99999999999999999999],"b":"<"}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := jsonval.Encode(jsonval.Safe(v))
	const want = `{"a":[9007199254740991,"9007199254740993","-9007199254740992",1.5,"99999999999999999999"],"b":"<"}`
	if err != nil || string(got) != want {
		t.Errorf("Safe = %s, %v; want %s", got, err, want)
	}
}

func TestFields(t *testing.T) {
	for raw, ok := range map[string]bool{``: true, ` `: true, `{}`: true, `{"a":1}`: true, `null`: false, `[]`: false, `1`: false, `{`: false, `{}{}`: false} {
		if _, err := jsonval.Fields(json.RawMessage(raw)); (err == nil) != ok {
			t.Errorf("Fields(%q): %v", raw, err)
		}
	}
}
