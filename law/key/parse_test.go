package key_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/law/key"
)

func TestFromHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header http.Header
		want   string
		err    error
	}{
		{name: "neither", header: http.Header{}, err: key.ErrMissing},
		{name: "bare", header: http.Header{key.Header: {"abc"}}, want: "abc"},
		{name: "quoted names the same", header: http.Header{key.Header: {`"abc"`}}, want: "abc"},
		{name: "legacy header", header: http.Header{key.LegacyHeader: {"abc"}}, want: "abc"},
		{name: "both agree", header: http.Header{key.Header: {`"abc"`}, key.LegacyHeader: {"abc"}}, want: "abc"},
		{name: "both differ", header: http.Header{key.Header: {"abc"}, key.LegacyHeader: {"abd"}}, err: key.ErrDiffer},
		{name: "one of both is bad", header: http.Header{key.Header: {"abc"}, key.LegacyHeader: {""}}, err: key.ErrEmpty},
		{name: "two lines", header: http.Header{key.Header: {"abc", "abc"}}, err: key.ErrRepeated},
		{name: "two legacy lines", header: http.Header{key.LegacyHeader: {"abc", "abd"}}, err: key.ErrRepeated},
		{name: "empty", header: http.Header{key.Header: {""}}, err: key.ErrEmpty},
		{name: "only spaces", header: http.Header{key.Header: {"  \t"}}, err: key.ErrEmpty},
		{name: "quoted empty", header: http.Header{key.Header: {`""`}}, err: key.ErrEmpty},
		{name: "spaces around", header: http.Header{key.Header: {"  abc "}}, want: "abc"},
		{name: "space in quotes", header: http.Header{key.Header: {`"a b"`}}, want: "a b"},
		{name: "bare space", header: http.Header{key.Header: {"a b"}}, err: key.ErrCharacter},
		{name: "escapes", header: http.Header{key.Header: {`"a\"b\\c"`}}, want: `a"b\c`},
		{name: "bad escape", header: http.Header{key.Header: {`"a\n"`}}, err: key.ErrQuote},
		{name: "unclosed quote", header: http.Header{key.Header: {`"abc`}}, err: key.ErrQuote},
		{name: "one quote", header: http.Header{key.Header: {`"`}}, err: key.ErrQuote},
		{name: "text after the quote", header: http.Header{key.Header: {`"abc"x`}}, err: key.ErrQuote},
		{name: "parameters are ignored", header: http.Header{key.Header: {`"abc";v=1`}}, want: "abc"},
		{name: "quote inside", header: http.Header{key.Header: {`ab"c`}}, want: `ab"c`},
		{name: "comma", header: http.Header{key.Header: {"a,b"}}, want: "a,b"},
		{name: "255", header: http.Header{key.Header: {strings.Repeat("x", 255)}}, want: strings.Repeat("x", 255)},
		{name: "255 quoted", header: http.Header{key.Header: {`"` + strings.Repeat("x", 255) + `"`}}, want: strings.Repeat("x", 255)},
		{name: "256", header: http.Header{key.Header: {strings.Repeat("x", 256)}}, err: key.ErrTooLong},
		{name: "control", header: http.Header{key.Header: {"a\x01b"}}, err: key.ErrCharacter},
		{name: "DEL", header: http.Header{key.Header: {"a\x7fb"}}, err: key.ErrCharacter},
		{name: "tab inside", header: http.Header{key.Header: {"a\tb"}}, err: key.ErrCharacter},
		{name: "not ASCII", header: http.Header{key.Header: {"schlüssel"}}, err: key.ErrCharacter},
		{name: "not ASCII in quotes", header: http.Header{key.Header: {`"schlüssel"`}}, err: key.ErrQuote},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := key.FromHeader(test.header)
			if !errors.Is(err, test.err) || err == nil && got != test.want {
				t.Errorf("FromHeader(%v) = %q, %v, want %q, %v", test.header, got, err, test.want, test.err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"abc", `"a b"`, `"a\"b"`, `"x";p=1`, `"`, "", " a", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		k, err := key.Parse(value)
		if err != nil {
			return
		}
		if len(k) < 1 || len(k) > key.MaxLength {
			t.Errorf("Parse(%q) = %q: %d characters", value, k, len(k))
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(k) + `"`
		if again, err := key.Parse(quoted); again != k || err != nil {
			t.Errorf("Parse(%q) = %q, %v, want %q", quoted, again, err, k)
		}
	})
}

func TestNewFingerprint(t *testing.T) {
	t.Parallel()
	canonical := key.Form{CanonicalJSON: true}
	ignore := key.Form{IgnoreFields: []string{"sent_at", "meta.try"}}
	const js = "application/json; charset=utf-8"
	tests := []struct {
		name string
		a, b string
		form key.Form
		typ  string
		same bool
	}{
		{"raw bytes count", `{"a":1}`, `{"a": 1}`, key.Form{}, js, false},
		{"white space", `{"a":1}`, ` { "a" : 1 } `, canonical, js, true},
		{"order of fields", `{"a":1,"b":2}`, `{"b":2,"a":1}`, canonical, js, true},
		{"spelling of numbers", `[1.0,1e2]`, `[1,100]`, canonical, js, true},
		{"order in lists matters", `[1,2]`, `[2,1]`, canonical, js, false},
		{"big integers are not rounded", `9007199254740993`, `9007199254740992`, canonical, js, false},
		{"long decimals are not rounded", `0.10000000000000000001`, `0.1`, canonical, js, false},
		{"tiny numbers are not nothing", `1e-400`, `0`, canonical, js, false},
		{"a string is not a number", `"1"`, `1`, canonical, js, false},
		{"repeated names are kept", `{"a":1,"a":2}`, `{"a":2}`, canonical, js, false},
		{"two values are two", `1 2`, `[1,2]`, canonical, js, false},
		{"comma tricks", `1,2`, `1, 2`, canonical, js, false},
		{"no JSON is taken as it is", `{"a":`, `{"a": `, canonical, js, false},
		{"not for other types", `{"a":1}`, `{"a": 1}`, canonical, "text/plain", false},
		{"suffix +json", `{"a":1}`, `{"a": 1}`, canonical, "application/merge-patch+json", true},
		{"ignored field", `{"a":1,"sent_at":1}`, `{"sent_at":2,"a":1}`, ignore, js, true},
		{"ignored field missing", `{"a":1}`, `{"sent_at":2,"a":1}`, ignore, js, true},
		{"ignored path", `{"a":1,"meta":{"try":1,"x":1}}`, `{"a":1,"meta":{"x":1,"try":2}}`, ignore, js, true},
		{"beside the ignored path", `{"meta":{"try":1,"x":1}}`, `{"meta":{"try":1,"x":2}}`, ignore, js, false},
		{"ignored below a list is not", `[{"sent_at":1}]`, `[{"sent_at":2}]`, ignore, js, false},
		{"canonical form is no raw body", `{"a":1}`, `{"a":1}`, canonical, js, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := key.NewFingerprint("POST", "/x", "", test.typ, []byte(test.a), test.form)
			b := key.NewFingerprint("POST", "/x", "", test.typ, []byte(test.b), test.form)
			if (a == b) != test.same {
				t.Errorf("%s and %s: same = %t, want %t", test.a, test.b, a == b, test.same)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"every_part": fingerprintEveryPart,
	} {
		t.Run(name, test)
	}
}

func fingerprintEveryPart(t *testing.T) {
	t.Parallel()
	seen := map[key.Fingerprint]string{}
	for _, p := range [][4]string{
		{"POST", "/x", "", ""}, {"PUT", "/x", "", ""}, {"POST", "/y", "", ""}, {"POST", "/x", "a=1", ""},
		{"POST", "/x", "", "a=1"}, {"POST", "/xa=1", "", ""}, {"POST", "/x?a=1", "", ""},
	} {
		f := key.NewFingerprint(p[0], p[1], p[2], "", []byte(p[3]), key.Form{})
		if was, ok := seen[f]; ok {
			t.Errorf("%v and %s have one fingerprint", p, was)
		}
		seen[f] = strings.Join(p[:], "|")
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	if key.NewID("h", "ab", "c") == key.NewID("h", "a", "bc") {
		t.Error("two callers collide by moving text into the key")
	}
	for _, id := range []key.ID{{}, {15: 1}, {0: 0x80}, {0: 0xff, 7: 0xff, 8: 0xff, 15: 0xff}, key.NewID("h", "a", "b")} {
		got, err := key.ParseID(id.String())
		if err != nil || got != id {
			t.Errorf("ParseID(%s) = %v, %v", id, got, err)
		}
	}
	for _, bad := range []string{"", "key_", "key_8" + strings.Repeat("0", 25), "key_" + strings.Repeat("u", 26), strings.Repeat("0", 30)} {
		if id, err := key.ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", bad, id)
		}
	}
}

func FuzzDecodeFields(f *testing.F) {
	f.Add(key.EncodeFields([]key.Field{{Name: "Link", Value: "a"}, {Name: "Link", Value: "b\xff"}, {Name: "T", Trailer: true}}))
	f.Add([]byte{1, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := key.DecodeFields(b)
		if err != nil {
			return
		}
		again, err := key.DecodeFields(key.EncodeFields(fields))
		if err != nil || !cmp.Equal(fields, again) {
			t.Errorf("fields changed: %v, %v, %v", fields, again, err)
		}
		if len(b) > 0 && len(fields) > 0 && bytes.Equal(b, nil) {
			t.Error("fields from nothing")
		}
	})
}

func TestKept(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Location": true, "link": true, "ETag": true, "Content-Type": true, "X-Hop": false,
		"set-cookie": false, "WWW-Authenticate": false, "Authorization": false, "keep-alive": false,
		"Transfer-Encoding": false, "Upgrade": false,
	} {
		if got := key.Kept(name, []string{"close, x-hop"}); got != want {
			t.Errorf("Kept(%s) = %t, want %t", name, got, want)
		}
	}
}
