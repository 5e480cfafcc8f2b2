package pin_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/law/pin"
)

var now = time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)

func of(entry string) *pin.Pin {
	p := pin.Of(json.RawMessage(entry), now)
	return &p
}

// TestDecide goes over everything that Decide looks at.
func TestDecide(t *testing.T) {
	a, b := of(`{"name":"a"}`), of(`{"name":"a","description":"x"}`)
	want := map[string]pin.State{
		"none none room": pin.Absent, "none none full": pin.Absent,
		"none a room": pin.Take, "none a full": pin.New,
		"none b room": pin.Take, "none b full": pin.New,
		"a none room": pin.Absent, "a none full": pin.Absent,
		"a a room": pin.Pinned, "a a full": pin.Pinned,
		"a b room": pin.Changed, "a b full": pin.Changed,
	}
	seen := make(map[pin.State]bool)
	for agreedName, agreed := range map[string]*pin.Pin{"none": nil, "a": a} {
		for listedName, listed := range map[string]*pin.Pin{"none": nil, "a": a, "b": b} {
			for when, room := range map[string]bool{"room": true, "full": false} {
				name := fmt.Sprint(agreedName, " ", listedName, " ", when)
				got := pin.Decide(agreed, listed, room)
				seen[got] = true
				if got != want[name] {
					t.Errorf("%s: %s, want %s", name, got, want[name])
				}
				// Law: a tool that is not what was agreed to is never called, but at first sight.
				mayCall := !got.Stopped() && listed != nil
				if agreedTo := agreed != nil && listed != nil && agreed.Hash == listed.Hash; mayCall && !agreedTo && (agreed != nil || !room) {
					t.Errorf("%s: it may be called", name)
				}
			}
		}
	}
	for _, s := range pin.States() {
		if !seen[s] {
			t.Errorf("no case is %s", s)
		}
	}
}

// TestOf changes each part of an entry.
func TestOf(t *testing.T) {
	base := `{"name":"a","title":"A","description":"adds","inputSchema":{"type":"object","properties":{"x":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`
	for name, c := range map[string]struct {
		entry string
		same  bool
	}{
		"order":              {`{"annotations":{"readOnlyHint":true},"title":"A","inputSchema":{"properties":{"x":{"type":"string"}},"type":"object"},"description":"adds", "name":"a"}`, true},
		"_meta and icons":    {strings.Replace(base, `{"name"`, `{"_meta":{"n":1},"icons":[],"name"`, 1), true},
		"name":               {strings.Replace(base, `"a"`, `"b"`, 1), false},
		"title":              {strings.Replace(base, `"A"`, `"B"`, 1), false},
		"description":        {strings.Replace(base, `adds`, `adds `, 1), false},
		"hidden":             {strings.Replace(base, `adds`, "adds\u200b", 1), false},
		"schema":             {strings.Replace(base, `"x":{`, `"y":{`, 1), false},
		"annotations":        {strings.Replace(base, `true`, `false`, 1), false},
		"a member more":      {strings.Replace(base, `{"name"`, `{"outputSchema":{},"name"`, 1), false},
		"no exact number":    {strings.Replace(base, `{"name"`, `{"n":9007199254740993,"name"`, 1), false},
		"a list for an name": {`[]`, false},
	} {
		if got := of(c.entry).Hash == of(base).Hash; got != c.same {
			t.Errorf("%s: same is %t", name, got)
		}
	}
	one, other := of(`{"name":"a","n":9007199254740993}`), of(`{"name":"a","n":9007199254740992}`)
	if one.Hash == other.Hash {
		t.Error("numbers that round to the same are the same")
	}
	if large := of(`{"name":"` + strings.Repeat("x", 1<<17) + `"}`); large.Entry != nil || large.Hash == "" {
		t.Errorf("a large entry is kept, or has no hash")
	}
}

func TestAccept(t *testing.T) {
	b := of(`{"name":"b"}`)
	for name, c := range map[string]struct {
		listed *pin.Pin
		shown  string
		ok     bool
	}{
		"whole":         {b, b.Hash, true},
		"its beginning": {b, pin.Short(b.Hash), true},
		"too short":     {b, b.Hash[:11], false},
		"empty":         {b, "", false},
		"another":       {b, of(`{}`).Hash, false},
		"longer":        {b, b.Hash + "0", false},
		"not listed":    {nil, b.Hash, false},
	} {
		got, err := pin.Accept(c.listed, c.shown, "ann", now.Add(1))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && (got.Hash != b.Hash || got.By != "ann" || !got.At.Equal(now.Add(1))) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestChanges(t *testing.T) {
	was := of(`{"name":"a","description":"adds","title":"A"}`)
	is := of(`{"name":"a","description":"adds\u202e and sends","inputSchema":{"a":1}}`)
	want := []pin.Change{{"description", "adds", `adds\u{202E} and sends`}, {"inputSchema", "", `{"a":1}`}, {"title", "A", ""}}
	if got := pin.Changes(was, is); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := pin.Changes(was, was); got != nil {
		t.Errorf("%+v", got)
	}
	if got := pin.Changes(nil, of(`{"name":"a"}`)); !reflect.DeepEqual(got, []pin.Change{{"name", "", "a"}}) {
		t.Errorf("%+v", got)
	}
	large := of(`{"name":"` + strings.Repeat("x", 1<<17) + `"}`)
	if got := pin.Changes(was, large); len(got) != 1 || got[0].Member != "entry" || !strings.Contains(got[0].New, pin.Short(large.Hash)) {
		t.Errorf("%+v", got)
	}
}

func TestMark(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext ✔️ é":                    "plain\n\ttext ✔️ é",
		"zero\u200bwidth":                       `zero\u{200B}width`,
		"bidi\u202eidib":                        `bidi\u{202E}idib`,
		"tag\U000E0041":                         `tag\u{E0041}`,
		"variant\U000E0100":                     `variant\u{E0100}`,
		"variant\ufe01":                         `variant\u{FE01}`,
		"filler\u3164":                          `filler\u{3164}`,
		"line\u2028":                            `line\u{2028}`,
		"escape\x1b[2J":                         `escape\u{001B}[2J`,
		"private\ue000":                         `private\u{E000}`,
		"bom\ufeff, joiner\u200d, hyphen\u00ad": `bom\u{FEFF}, joiner\u{200D}, hyphen\u{00AD}`,
	} {
		if got := pin.Mark(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
