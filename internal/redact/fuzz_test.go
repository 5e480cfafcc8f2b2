package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keep-run/keep/internal/redact"
)

// FuzzText holds that no text and no JSON shows a secret that is in it, as it is or encoded, on one
// line or broken over two.
func FuzzText(f *testing.F) {
	ends := []string{"", "\n", "\r\n", "\r\n\t", "\n\n  ", "\r\n\r\n", `\n`, `\r\n`, `\r\n    `, `\n\n`}
	for i, s := range secrets {
		f.Add(s, "before ", " after", uint(i), uint(i))
	}
	f.Add(`\n\n\n\nr\n`, `\n\n`, `\r`, uint(5), uint(6))
	f.Add("nrnrnrnr", "nr", `\n`, uint(1), uint(7))
	f.Add("%41 +&amp;", "%", ";", uint(3), uint(2))
	f.Fuzz(func(t *testing.T, secret, before, after string, at, end uint) {
		if len(secret) < 8 || strings.ContainsAny(secret, "[]") || strings.Trim(secret, "\n\r\t ") == "" {
			t.Skip("it is too short, or part of what stands in its place")
		}
		r := redact.New(secret)
		for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")} {
			if i := 1 + int(at%uint(len(form)-1)); form[i] != ' ' && form[i] != '\t' { //nolint:gosec // less than len(form)
				form = form[:i] + ends[end%uint(len(ends))] + form[i:]
			}
			text := before + form + after
			if got := r.Text(text); strings.Contains(got, form) {
				t.Errorf("%q became %q, which holds %q", text, got, form)
			}
			raw, err := json.Marshal(text)
			if err != nil || !utf8.ValidString(text) {
				continue
			}
			var got string
			if err := json.Unmarshal(r.JSON(raw), &got); err != nil || strings.Contains(got, form) {
				t.Errorf("%s became %q, which holds %q: %v", raw, got, form, err)
			}
		}
	})
}
