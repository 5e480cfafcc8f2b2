package ledger_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/ledger"
)

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"OrderAndSpace", `{ "b": 1, "a": [1, 2] }`, `{"a":[1,2],"b":1}`},
		{"Numbers", `{"a":1.0,"b":1e2,"c":0.10}`, `{"a":1,"b":100,"c":0.1}`},
		{"UnicodeIsNotNormalised", `{"a":"é"}`, `{"a":"é"}`},
		{"Empty", ``, `null`},
		{"LargestSafe", `9007199254740991`, `9007199254740991`},
		{"String", `"9007199254740993"`, `"9007199254740993"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ledger.Canonical([]byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Errorf("Canonical(%s) = %s, %v; want %s", tt.in, got, err, tt.want)
			}
		})
	}
}

// Two ids that RFC 8785 would write alike must never share a key.
func TestCanonicalRefusesUnsafeNumbers(t *testing.T) {
	for _, in := range []string{`9007199254740992`, `9007199254740993`, `{"id":-9007199254740993}`,
		`[[1e20]]`, `1e999999999`, `9007199254740993.0`} {
		_, err := ledger.Canonical([]byte(in))
		if _, ok := errors.AsType[*ledger.NumberError](err); !ok {
			t.Errorf("Canonical(%s): %v, want *NumberError", in, err)
		}
	}
	for _, in := range []string{`{"a":1,"a":2}`, `{`, `[1,]`, "{\"a\":\"\xff\"}"} {
		if got, err := ledger.Canonical([]byte(in)); err == nil {
			t.Errorf("Canonical(%s) = %s, want an error", in, got)
		}
	}
}

func TestIdentify(t *testing.T) {
	id, payload, subkey, err := ledger.Identify([]byte(`{"to":"a@b","text":"hi","subkey":"welcome"}`), []string{"to", "cc"})
	if err != nil {
		t.Fatal(err)
	}
	if string(id) != `{"to":"a@b"}` || string(payload) != `{"text":"hi","to":"a@b"}` || subkey != "welcome" {
		t.Errorf("Identify = %s, %s, %q", id, payload, subkey)
	}
	for _, bad := range []string{`[]`, `"x"`, `{"subkey":1}`, `{"id":9007199254740993}`} {
		if _, _, _, err := ledger.Identify([]byte(bad), []string{"id"}); err == nil {
			t.Errorf("Identify(%s): no error", bad)
		}
	}
}

// Moving text from one field to the next must not give the same key.
func TestItemKeySeparatesFields(t *testing.T) {
	a := ledger.ItemCall{Workflow: "w", Item: "ab", Attempt: 1, Tool: "m.send", Target: "t", Identity: []byte("{}")}
	seen := map[string]string{}
	for name, c := range map[string]ledger.ItemCall{
		"same":     a,
		"workflow": {Workflow: "wa", Item: "b", Attempt: 1, Tool: "m.send", Target: "t", Identity: []byte("{}")},
		"attempt":  {Workflow: "w", Item: "ab", Attempt: 2, Tool: "m.send", Target: "t", Identity: []byte("{}")},
		"target":   {Workflow: "w", Item: "ab", Attempt: 1, Tool: "m.sen", Target: "dt", Identity: []byte("{}")},
		"subkey":   {Workflow: "w", Item: "ab", Attempt: 1, Tool: "m.send", Target: "t", Identity: []byte("{}"), Subkey: "x"},
	} {
		key := string(ledger.ItemKey(c))
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
	if ledger.ItemKey(a) != ledger.ItemKey(a) {
		t.Error("ItemKey is not stable")
	}
}

func TestToken(t *testing.T) {
	got := ledger.Token("db1", "mut_1")
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("Token = %q, want a version 8 UUID", got)
	}
	if got != ledger.Token("db1", "mut_1") || got == ledger.Token("db2", "mut_1") || got == ledger.Token("db1", "mut_2") {
		t.Error("Token must depend on the database and the key, and on nothing else")
	}
}

func TestRunKey(t *testing.T) {
	if got, want := ledger.RunKey("run_01abc"), "mut_01abc"; string(got) != want {
		t.Errorf("RunKey = %s, want %s", got, want)
	}
}

// What Identify puts together is what canonicalising the whole would give.
func FuzzIdentify(f *testing.F) {
	f.Add(`{"b":"x","a":{"d":1.0,"c":"\u00e9"},"é":"\n","𐀀":1,"ￜ":2}`)
	f.Add(`{"to":"a@b","text":"hi \" \\ <&>","n":[1,2.50]}`)
	f.Fuzz(func(t *testing.T, in string) {
		_, payload, _, err := ledger.Identify([]byte(in), nil)
		if err != nil || strings.Contains(in, "subkey") {
			return
		}
		want, err := ledger.Canonical([]byte(in))
		if err == nil && string(want) != string(payload) {
			t.Fatalf("Identify(%s) = %s, want %s", in, payload, want)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	f.Add(`{"b":1.0,"a":"\u00e9"}`)
	f.Fuzz(func(t *testing.T, in string) {
		once, err := ledger.Canonical([]byte(in))
		if err != nil {
			return
		}
		twice, err := ledger.Canonical(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("Canonical(%q) = %q, then %q, %v", in, once, twice, err)
		}
		if strings.TrimSpace(in) != "" && len(once) == 0 {
			t.Fatalf("Canonical(%q) is empty", in)
		}
	})
}
