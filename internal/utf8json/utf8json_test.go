package utf8json_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/utf8json"
)

type inner struct {
	Name string `json:"name"`
	Raw  json.RawMessage
}

type outer struct {
	inner
	List   []inner `json:"list"`
	By     map[string]any
	Ptr    *inner `json:"ptr,omitempty"`
	Own    own
	At     time.Time
	Hidden string `json:"-"`
}

// An own encodes itself, as encoding/json would.
type own struct{ s string }

func (o own) MarshalJSON() ([]byte, error) { return json.Marshal(o.s) }

func TestMarshal(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    any
		path string // of the error
		text string
	}{
		{"text", "caf\xe9", "", "caf\xe9"},
		{"embedded", outer{inner: inner{Name: "\xe9"}}, "name", "\xe9"},
		{"list", outer{List: []inner{{}, {Name: "M\xfcller"}}}, "list[1].name", "M\xfcller"},
		{"pointer", &outer{Ptr: &inner{Name: "\xe9"}}, "ptr.name", "\xe9"},
		{"map", map[string]any{"a": []any{1, map[string]string{"b": "\xe9"}}}, "a[1].b", "\xe9"},
		{"key", outer{By: map[string]any{"\xe9": 1}}, "By", "\xe9"},
		{"raw", outer{List: []inner{{Raw: json.RawMessage("\"\xe9\"")}}}, "list[0].Raw", "\"\xe9\""},
		{"own", outer{Own: own{"\xe9"}}, "Own", ""},
	} {
		raw, err := utf8json.Marshal(tt.v)
		bad, ok := errors.AsType[*utf8json.Error](err)
		if !ok || bad.Path != tt.path || bad.Text != tt.text {
			t.Errorf("%s: %s, %v; want an error at %q of %q", tt.name, raw, err, tt.path, tt.text)
		}
	}
	raw := json.RawMessage(`"\ufffd"`)
	for _, v := range []any{
		&raw, struct{ P *json.RawMessage }{&raw},
		nil, 7, "\uFFFD", `\ufffd`, outer{Hidden: "\xe9", List: []inner{{Raw: json.RawMessage(`"\ufffd \\ufffd"`)}}}, map[int]string{1: "ü"}, []byte("\xe9"),
	} {
		want, err := json.Marshal(v)
		if raw, got := utf8json.Marshal(v); string(raw) != string(want) || got != nil || err != nil {
			t.Errorf("Marshal(%+v) = %s, %v; want %s", v, raw, got, want)
		}
	}
	if _, err := utf8json.Marshal(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
}
