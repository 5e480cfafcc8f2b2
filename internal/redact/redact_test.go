package redact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/redact"
)

const secret = `K9/x&"tok+en\ Zz=`

// secrets are one of each kind: they hold what is escaped, what looks like an escape of a
// line break, and line breaks.
var secrets = []string{secret, `C:\new\root`, "-----BEGIN KEY-----\nMIIE\r\n\tvQ==\n-----END KEY-----"}

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
		"folded and deep":  s[:5] + "\n" + strings.Repeat(" ", 60) + s[5:],
		"an empty line":    s[:5] + "\r\n\r\n" + s[5:],
		"… in JSON":        s[:5] + `\r\n\r\n` + s[5:],
		"wrapped base64":   wrap(base64.StdEncoding.EncodeToString([]byte("user:"+s)), 8, "\n\t"),
	}
}

// wrap breaks a text into lines of so many bytes.
func wrap(s string, width int, end string) string {
	var lines []string
	for part := range slices.Chunk([]byte(s), width) {
		lines = append(lines, string(part))
	}
	return strings.Join(lines, end)
}

func TestText(t *testing.T) {
	for _, s := range secrets {
		for name, form := range forms(s) {
			got := redact.New(s).Text("before " + form + " after")
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, redact.Hidden) {
				t.Errorf("%s: %q became %q", name, form, got)
			}
			if rest := len(got) - len("before ") - len(" after") - len(redact.Hidden); rest > 12 {
				t.Errorf("%s: %q leaves %q", name, form, got)
			}
		}
	}
	r := redact.New(secret)
	for _, harmless := range []string{"", "nothing to see", secret[:len(secret)-2], "K9/x"} {
		if got := r.Text(harmless); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
	if got := redact.New("abc").Text("abc"); got != "abc" {
		t.Errorf("a secret of three bytes was taken out: %q", got)
	}
}

// A secret that is longer than a line is found in lines of whatever width.
func TestWrapped(t *testing.T) {
	secret := strings.Join(tokens(4), "")
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + secret))
	r := redact.New(secret)
	for name, form := range map[string]string{"plain": secret, "hex": hex.EncodeToString([]byte(secret)), "base64": encoded} {
		for _, width := range []int{1, 7, 60, 64, 76} {
			for _, end := range []string{"\n", "\r\n", "\r\n\t", "\n\n", "\r\n    \r\n    ", `\n`, `\r\n`, `\r\n    `, `\n  \n  `} {
				got := r.Text(wrap(form, width, end))
				if rest := strings.NewReplacer(end, "", redact.Hidden, "").Replace(got); len(rest) > 10 {
					t.Errorf("%s in lines of %d bytes, ended by %q, leaves %q", name, width, end, got)
				}
			}
		}
	}
}

func TestJSON(t *testing.T) {
	r := redact.New(append(secrets, "1234567890")...)
	for _, s := range secrets {
		for name, form := range forms(s) {
			raw, err := json.Marshal(map[string]any{"a": []any{"x " + form}, form: 1})
			if err != nil {
				t.Fatal(err)
			}
			got := string(r.JSON(raw))
			if !json.Valid([]byte(got)) || strings.Count(got, redact.Hidden) != 2 {
				t.Errorf("%s: %s became %s", name, raw, got)
			}
		}
	}
	for in, want := range map[string]string{
		`{"n":1234567890,"m":12345}`:        `{"m":12345,"n":"[hidden]"}`,
		`{"b":1.50,  "a":9007199254740993}`: `{"b":1.50,  "a":9007199254740993}`,

		// Of a member that is repeated others may read the first.
		`{"x":"1234567890","x":"y"}`:                        `{"x":"y"}`,
		`[{"a":{"b":1234567890,"b":1.0}},":"]`:              `[{"a":{"b":1.0}},":"]`,
		`{"1234567890":1,"a":{"1234567890":1,"a\u0041":2}}`: `{"[hidden]":1,"a":{"[hidden]":1,"aA":2}}`,
		`{"x":"12345\\u003667890","x":"\":"}`:               `{"x":"\":"}`,
		`{"a":"\":\\", "b":":"}`:                            `{"a":"\":\\", "b":":"}`,

		// What follows a value makes it a text.
		`{"a":1} 1234567890`: `{"a":1} [hidden]`,
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

// token returns one of many tokens that begin alike.
func token(n int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	return "ghp_n" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// tokens returns n of them.
func tokens(n int) (list []string) {
	for i := range n {
		list = append(list, token(i))
	}
	return list
}

// rows is an answer that holds no secret.
func rows(n int) []byte {
	row := `{"id":17,"name":"Ada Lovelace","email":"ada@example.com","note":"a\/b & c"},`
	return []byte("[" + strings.Repeat(row, n) + "{}]")
}

// Law bounded: texts that nearly hold secrets, or may hold many, are gone through in about a second.
func TestCost(t *testing.T) {
	many := tokens(64)
	for name, c := range map[string]struct {
		secrets []string
		text    string
	}{
		"escaped breaks":    {many[:1], strings.Repeat(`\n`, 1<<16)},
		"pairs of them":     {many[:1], strings.Repeat(`\r\n`, 1<<15)},
		"breaks":            {[]string{"\nabc-def"}, strings.Repeat("\n", 1<<17)},
		"blanks":            {many[:1], strings.Repeat(`\n`+strings.Repeat(" ", 63), 1<<11)},
		"beginnings":        {many[:1], strings.Repeat(many[0][:8]+`\n`, 1<<14)},
		"secrets of breaks": {[]string{strings.Repeat(`\n`, 8) + "x"}, strings.Repeat(`\n`, 1<<14)},
		"many secrets":      {many, string(rows(1 << 13))},
		"their beginnings":  {many, strings.Repeat("ghp_", 1<<14)},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			r := redact.New(c.secrets...)
			raw := []byte(`{"body":"` + c.text + `"}`)
			ceiling.Ceiling{CPU: 2 * time.Second, Memory: 64 << 20}.Check(t, func() {
				if got := r.JSON(raw); !bytes.Equal(got, raw) {
					t.Errorf("it became %.200q", got)
				}
			})
		})
	}
}

func BenchmarkJSON(b *testing.B) {
	for name, secrets := range map[string][]string{
		"one":  {"Bearer 0123456789abcdef", "0123456789abcdef"},
		"many": tokens(64),
	} {
		b.Run(name, func(b *testing.B) {
			r, raw := redact.New(secrets...), rows(10_000)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				r.JSON(raw)
			}
		})
	}
}
