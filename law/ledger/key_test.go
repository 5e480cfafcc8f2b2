package ledger_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
)

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
		want, err := canonical.JSON([]byte(in))
		if err == nil && string(want) != string(payload) {
			t.Fatalf("Identify(%s) = %s, want %s", in, payload, want)
		}
	})
}
