package canonical_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/law/canonical"
)

func TestJSON(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"OrderAndSpace", `{ "b": 1, "a": [1, 2] }`, `{"a":[1,2],"b":1}`},
		{"Numbers", `{"a":1.0,"b":1e2,"c":0.10}`, `{"a":1,"b":100,"c":0.1}`},
		{"UnicodeIsNotNormalised", `{"a":"é"}`, `{"a":"é"}`},
		{"Empty", ``, `null`},
		{"LargestSafe", `9007199254740991`, `9007199254740991`},
		{"String", `"9007199254740993"`, `"9007199254740993"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := canonical.JSON([]byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Errorf("JSON(%s) = %s, %v; want %s", tt.in, got, err, tt.want)
			}
		})
	}
}

// Two ids that RFC 8785 would write alike must never share a key.
func TestRefused(t *testing.T) {
	for _, in := range []string{`9007199254740992`, `9007199254740993`, `{"id":-9007199254740993}`,
		`[[1e20]]`, `1e999999999`, `9007199254740993.0`} {
		_, err := canonical.JSON([]byte(in))
		if _, ok := errors.AsType[*canonical.NumberError](err); !ok {
			t.Errorf("JSON(%s): %v, want *NumberError", in, err)
		}
	}
	for _, in := range []string{`{"a":1,"a":2}`, `{`, `[1,]`, "{\"a\":\"\xff\"}", `"\ud800"`, `{"a":"\udc00x"}`, `1 2`, `1,2`} {
		if got, err := canonical.JSON([]byte(in)); err == nil {
			t.Errorf("JSON(%s) = %s, want an error", in, got)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"b":1.0,"a":"\u00e9"}`)
	f.Fuzz(func(t *testing.T, in string) {
		once, err := canonical.JSON([]byte(in))
		if err != nil {
			return
		}
		twice, err := canonical.JSON(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("JSON(%q) = %q, then %q, %v", in, once, twice, err)
		}
		if strings.TrimSpace(in) != "" && len(once) == 0 {
			t.Fatalf("JSON(%q) is empty", in)
		}
	})
}

// The bytes whose hashes are on disks. A change here needs a new version; see the package
// comment.
func TestVersion1(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":[1.0,1e2,0.1e-6,-0],"a":"\u00e9\u20ac\n\u0000\/","\ud83d\ude00":null}`: `{"a":"é€\n\u0000/","b":[1,100,1e-7,0],"😀":null}`,
		`  "<&>\u2028"`:      `"<&>\u2028"`,
		`123456789012345.25`: `123456789012345.25`,
	} {
		want = strings.ReplaceAll(want, `\u2028`, "\u2028")
		got, err := canonical.JSON([]byte(in))
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("JSON(%s): %v, %s", in, err, diff)
		}
	}
}

func TestExact(t *testing.T) {
	for _, in := range []string{`0.10000000000000000001`, `1e-400`, `9007199254740993`, `123456789012345.67`, `4e-324`, `-1.2345e-320`, `2.2250738585072e-308`} {
		if got, err := canonical.Exact([]byte(in)); err == nil {
			t.Errorf("Exact(%s) = %s, want an error", in, got)
		}
	}
	if got, err := canonical.Exact([]byte(`[1.50, 0.0, 2.22507385850721e-308]`)); err != nil || string(got) != `[1.5,0,2.22507385850721e-308]` {
		t.Errorf("Exact = %s, %v", got, err)
	}
}

func TestWithout(t *testing.T) {
	got, err := canonical.Without([]byte(`{"a":{"b":"<","c":2},"d":1}`), []string{"a", "c"})
	if err != nil || string(got) != `{"a":{"b":"<"},"d":1}` {
		t.Errorf("Without = %s, %v", got, err)
	}
}

func TestObject(t *testing.T) {
	for _, in := range []string{`{"b":"x","a":1.0}`, `{"é":"\u00e9","":[],"😀":1,"\ufb33":2}`} {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(in), &m); err != nil {
			t.Fatal(err)
		}
		got, err := canonical.Object(m)
		want, wantErr := canonical.JSON([]byte(in))
		if err != nil || wantErr != nil || string(got) != string(want) {
			t.Errorf("Object(%s) = %s, %v, want %s, %v", in, got, err, want, wantErr)
		}
	}
}

// Text that Unicode cannot hold is found wherever it is.
func TestWellFormed(t *testing.T) {
	for text, want := range map[string]bool{
		`"a"`: true, `{"a":["\ud83d\ude00"]}`: true, `"\\ud83d"`: true, `"\\\\ud83d"`: true, `"\n\"\u00e9"`: true, `12`: true, `"\`: true,
		`"\ud83d"`: false, `"\ude00"`: false, `"\ude00\ud83d"`: false, `"\ud83dx"`: false, `"\ud83d\\ude00"`: false, `{"\uD83D":1}`: false,
		`"\ud83d\ud83d\ude00"`: false, "\"\xff\"": false, "\"\xed\xa0\xbd\"": false,
	} {
		if err := canonical.WellFormed([]byte(text)); (err == nil) != want {
			t.Errorf("%s: %v, want fine: %t", text, err, want)
		}
	}
}

// TestHeld refuses the numbers that a record would round, and no other.
func TestHeld(t *testing.T) {
	t.Parallel()
	for number, held := range map[string]bool{
		"0": true, "-0.0": true, "100": true, "1.10": true, "0.1": true, "1e2": true, "12300E-2": true, "0.30000000000000004": true, "52.5200066": true,
		"1e22": false, "9007199254740991": true, "9007199254740993": false, "5e-324": true, "0.00000000000000000000000000001": true,
		"100.00000000000000000001": false, "0.1000000000000000055511151231257827": false, "1e-400": false, "9007199254740.9917": false, "0e99999999999999999999": false,
	} {
		if _, err := canonical.Held([]byte(number)); (err == nil) != held {
			t.Errorf("%s: %v", number, err)
		}
	}
}
