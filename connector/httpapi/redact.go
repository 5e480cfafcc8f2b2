package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden stands where a secret was.
const hidden = "[hidden]"

// minSecret is the length from which a header value counts as a secret. A
// shorter one would blank out half of every message and protect nothing.
const minSecret = 4

// public lists the headers whose values are no secrets.
var public = []string{
	"Accept", "Accept-Language", "Accept-Version", "Cache-Control", "Content-Language",
	"Content-Type", "Host", "Prefer", "User-Agent",
}

// A redactor takes the values of configured headers out of texts.
type redactor struct {
	replace *strings.Replacer
}

// newRedactor hides each value, its words, what Basic authentication encodes,
// and the forms these take in JSON, URLs and base64.
func newRedactor(headers map[string]string) redactor {
	var secrets []string
	add := func(s string) {
		if len(s) < minSecret {
			return
		}
		quoted, _ := json.Marshal(s)
		secrets = append(secrets, s, strings.Trim(string(quoted), `"`), url.QueryEscape(s), url.PathEscape(s),
			base64.StdEncoding.EncodeToString([]byte(s)))
	}
	for name, value := range headers {
		if slices.Contains(public, http.CanonicalHeaderKey(name)) {
			continue
		}
		value = strings.TrimSpace(value)
		add(value)
		scheme, word, ok := strings.Cut(value, " ")
		if !ok {
			continue
		}
		add(strings.TrimSpace(word))
		if plain, err := base64.StdEncoding.DecodeString(word); err == nil && strings.EqualFold(scheme, "basic") {
			user, password, _ := strings.Cut(string(plain), ":")
			add(string(plain))
			add(password)
			_ = user // a user name alone opens nothing
		}
	}
	// Longer ones first: a word within a value must not keep the value from
	// being found.
	slices.SortFunc(secrets, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, s := range slices.Compact(secrets) {
		pairs = append(pairs, s, hidden)
	}
	return redactor{replace: strings.NewReplacer(pairs...)}
}

// text returns s without secrets.
func (r redactor) text(s string) string { return r.replace.Replace(s) }

// Bounds of what a service's words may take up in a message.
const (
	snippetScan  = 64 << 10 // bytes that are searched for secrets before the cut
	snippetRunes = 300
)

// snippet returns the start of a body on one line, without secrets, for a
// message; empty if the body isn't text.
func (r redactor) snippet(body []byte) string {
	body = body[:min(len(body), snippetScan)]
	s := r.text(strings.ToValidUTF8(string(body), string(utf8.RuneError)))
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	if strings.Count(s, string(utf8.RuneError))*4 > len(s) {
		return ""
	}
	if runes := []rune(s); len(runes) > snippetRunes {
		return string(runes[:snippetRunes]) + "…"
	}
	return s
}
