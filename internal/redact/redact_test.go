package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/redact"
)

const secret = `K9/x&"tok+en\ Zz=`

// forms are the ways in which services return what they were sent.
func forms(s string) map[string]string {
	quoted, _ := json.Marshal(s)
	var percent, unicode, numeric strings.Builder
	for _, c := range []byte(s) {
		percent.WriteString("%" + hex.EncodeToString([]byte{c}))
		unicode.WriteString(`\u00` + hex.EncodeToString([]byte{c}))
		numeric.WriteString("&#x" + hex.EncodeToString([]byte{c}) + ";")
	}
	return map[string]string{
		"plain":            s,
		"JSON":             strings.Trim(string(quoted), `"`),
		"slash":            strings.ReplaceAll(s, "/", `\/`),
		"HTML":             html.EscapeString(s),
		"query":            url.QueryEscape(s),
		"path":             url.PathEscape(s),
		"lower-case query": strings.ToLower(url.QueryEscape(s)),
		"all percent":      percent.String(),
		"all unicode":      unicode.String(),
		"all numeric":      numeric.String(),
		"upper case":       strings.ToUpper(s),
		"lower case":       strings.ToLower(s),
		"hex":              hex.EncodeToString([]byte(s)),
		"upper-case hex":   strings.ToUpper(hex.EncodeToString([]byte(s))),
		"base64":           base64.StdEncoding.EncodeToString([]byte(s)),
		"base64 in a pair": base64.StdEncoding.EncodeToString([]byte("user:" + s)),
		"base64 for URLs":  base64.RawURLEncoding.EncodeToString([]byte("u:" + s)),
		"folded":           s[:5] + "\r\n\t" + s[5:],
		"folded in JSON":   s[:5] + `\n ` + s[5:],
	}
}

func TestText(t *testing.T) {
	r := redact.New(secret)
	for name, form := range forms(secret) {
		got := r.Text("before " + form + " after")
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, redact.Hidden) {
			t.Errorf("%s: %q became %q", name, form, got)
		}
		if rest := len(got) - len("before ") - len(" after") - len(redact.Hidden); rest > 12 {
			t.Errorf("%s: %q leaves %q", name, form, got)
		}
	}
	for _, harmless := range []string{"", "nothing to see", secret[:len(secret)-2], "K9/x"} {
		if got := r.Text(harmless); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
	if got := redact.New("abc").Text("abc"); got != "abc" {
		t.Errorf("a secret of three bytes was taken out: %q", got)
	}
}

func TestJSON(t *testing.T) {
	r := redact.New(secret, "1234567890")
	for name, form := range forms(secret) {
		raw, err := json.Marshal(map[string]any{"a": []any{"x " + form}, form: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := string(r.JSON(raw))
		if !json.Valid([]byte(got)) || strings.Count(got, redact.Hidden) != 2 {
			t.Errorf("%s: %s became %s", name, raw, got)
		}
	}
	for in, want := range map[string]string{
		`{"n":1234567890,"m":12345}`:        `{"m":12345,"n":"[hidden]"}`,
		`{"b":1.50,  "a":9007199254740993}`: `{"b":1.50,  "a":9007199254740993}`,
	} {
		if got := string(r.JSON([]byte(in))); got != want {
			t.Errorf("JSON(%s) = %s, want %s", in, got, want)
		}
	}
}

// TestBackslashes holds match to a set of positions: each of them may be read in two
// ways, and trying all ways would take longer than anybody waits.
func TestBackslashes(t *testing.T) {
	r := redact.New(strings.Repeat(`\`, 64) + "x")
	text := strings.Repeat(`\`, 4096)
	if got := r.Text(text); got != text {
		t.Errorf("backslashes became %q", got)
	}
}

func BenchmarkJSON(b *testing.B) {
	r := redact.New("Bearer 0123456789abcdef", "0123456789abcdef")
	row := `{"id":17,"name":"Ada Lovelace","email":"ada@example.com","note":"a\/b & c"},`
	raw := []byte("[" + strings.Repeat(row, 10_000) + "{}]")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		r.JSON(raw)
	}
}
