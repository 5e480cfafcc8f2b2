package given_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/law/given"
)

func TestID(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `""`: "", `7`: "7", `-7`: "-7", `0`: "0", `90071992547409923`: "90071992547409923", `"\ud83d\ude00"`: "😀",
	} {
		if got, err := given.ID(json.RawMessage(raw)); err != nil || got != want {
			t.Errorf("ID(%s) = %q, %v; want %q", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		`null`: "null", ``: "nothing", `true`: "true", `1.5`: "1.5", `1e3`: "1e3", `{}`: "the object {}", `["a"]`: `the list ["a"]`, `"\ud83d"`: "surrogate",
	} {
		if got, err := given.ID(json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ID(%s) = %q, %v; want an error that says %q", raw, got, err, want)
		}
	}
}

type shape struct {
	List *[]struct {
		Topic *string           `json:"topic"`
		IDs   []json.RawMessage `json:"ids"`
	} `json:"list"`
	UI    *struct{ Title string }
	Raw   json.RawMessage
	Limit int
	Share float64
	Once  bool
	By    map[string]any
	At    time.Time
	Any   any
}

func TestDecode(t *testing.T) {
	for raw, want := range map[string]string{
		`{"list":[{"topic":"a","ids":[1,{}]}],"ui":{"title":"x"},"raw":{},"limit":1,"share":1.5,"once":true,"by":{},"any":[1]}`: "",
		`null`:                                 "",
		`{"list":null}`:                        "",
		`"x"`:                                  `want an object, got the text "x"`,
		`["x"]`:                                `want an object, got the list ["x"]`,
		``:                                     `want an object, got nothing`,
		`{"list":{"topic":"a"}}`:               `list: want a list, got the object {"topic":"a"}`,
		`{"list":["a"]}`:                       `list[0]: want an object, got the text "a"`,
		`{"list":[{"ids":[]},{"ids":"O-01"}]}`: `list[1].ids: want a list, got the text "O-01"`,
		`{"list":[{"topic":7}]}`:               `list[0].topic: want a text, got the number 7`,
		`{"UI":"Pay"}`:                         `UI: want an object, got the text "Pay"`,
		`{"ui":{"title":5}}`:                   `ui.title: want a text, got the number 5`,
		`{"limit":1.5}`:                        `limit: want a whole number, got the number 1.5`,
		`{"share":"1"}`:                        `share: want a number, got the text "1"`,
		`{"once":"no"}`:                        `once: want true or false, got the text "no"`,
		`{"by":false}`:                         `by: want an object, got false`,
		`{"ui":{"title":["` + strings.Repeat("ü", 80) + `"]}}`: `ui.title: want a text, got the list ["` + strings.Repeat("ü", 58) + `…`,
		`{"at":"yesterday"}`: `parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`,
	} {
		err := given.Decode(json.RawMessage(raw), new(shape))
		if got := ""; err != nil && err.Error() != want || err == nil && got != want {
			t.Errorf("Decode(%s) = %v, want %q", raw, err, want)
		}
	}
}
