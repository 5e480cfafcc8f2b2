package canonical_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/keep-run/keep/law/canonical"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestUnambiguous(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":2}`: `two members have the name "a"; send one of them`,
		`{"a":{"b":[0,{"id":1,"x":"id","id":1}]}}`: `at a.b[1]: two members have the name "id"; send one of them`,
		`[{"a":1},{"a":1,"\u0061":2}]`:             `at [1]: two members have the name "a"; send one of them`,
		`{"":1,"":2}`:                              `two members have the name ""; send one of them`,
		`{"a\"b":[],"a\"b":{}}`:                    `two members have the name "a\"b"; send one of them`,
		nested(canonical.MaxDepth + 1):             "[0]…: more than 100 objects and lists are within each other",
		`{"a":` + strings.Repeat(`{"b":`, 100) + "1" + strings.Repeat("}", 101): "at a.b.b",
	} {
		err := canonical.Unambiguous([]byte(text))
		if _, ok := errors.AsType[*canonical.ShapeError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.80s: a message of %d bytes", text, len(err.Error()))
		}
	}
	for _, text := range []string{
		`{"a":1,"A":2,"b":{"a":1},"c":["a","a",{"a":"a"},{"a":"a"}],"d":"a"}`, `"{\"a\":1,\"a\":2}"`, `{"x":"\\","y":"[[[\"{"}`,
		nested(canonical.MaxDepth), "[" + strings.Repeat("[],", 300) + "{}]", ` { "a" : "b" , "b" : [ ] } `, "1", "",
	} {
		if err := canonical.Unambiguous([]byte(text)); err != nil {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// What encoding/json and the canonical form say of any text agrees with it.
func FuzzUnambiguous(f *testing.F) {
	for _, text := range []string{`{"a":1,"a":2}`, `{"a":[{"b":"\""},{"b":"\u0062"}]}`, `}]"\`, `{"a`, nested(200), `{"a":{"b":1,"b":2}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := canonical.Unambiguous(text)
		if !json.Valid(text) {
			return
		}
		_, wrong := canonical.JSON(text)
		twice := wrong != nil && strings.Contains(wrong.Error(), "Duplicate key")
		switch {
		case err == nil && twice:
			t.Errorf("%q is refused by the canonical form alone: %v", text, wrong)
		case err != nil && wrong == nil && !strings.Contains(err.Error(), "within each other"):
			t.Errorf("%q is not refused by the canonical form: %v", text, err)
		}
	})
}
