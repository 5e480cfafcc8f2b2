package httpapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// public lists the headers whose values are no secrets.
var public = []string{
	"Accept", "Accept-Language", "Accept-Version", "Cache-Control", "Content-Language",
	"Content-Type", "Host", "Prefer", "User-Agent",
}

// secretsOf returns the value of each configured header, its words, what Basic
// authentication encodes, and the further secrets.
func secretsOf(headers map[string]string, secrets []string) []string {
	secrets = slices.Clone(secrets)
	for name, value := range headers {
		if slices.Contains(public, http.CanonicalHeaderKey(name)) {
			continue
		}
		value = strings.TrimSpace(value)
		secrets = append(secrets, value)
		scheme, word, ok := strings.Cut(value, " ")
		if !ok {
			continue
		}
		secrets = append(secrets, strings.TrimSpace(word))
		if plain, err := base64.StdEncoding.DecodeString(word); err == nil && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(string(plain), ":") // a user name alone opens nothing
			secrets = append(secrets, string(plain), password)
		}
	}
	return secrets
}

// Bounds of what a service's words may take up in a message.
const (
	snippetScan  = 64 << 10 // bytes that are searched for secrets before the cut
	snippetRunes = 300
)

// snippet returns the start of a body on one line, without secrets, for a
// message; empty if the body isn't text.
func (s *service) snippet(body []byte) string {
	body = body[:min(len(body), snippetScan)]
	text := s.hide.Text(strings.ToValidUTF8(string(body), string(utf8.RuneError)))
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	if strings.Count(text, string(utf8.RuneError))*4 > len(text) {
		return ""
	}
	if runes := []rune(text); len(runes) > snippetRunes {
		return string(runes[:snippetRunes]) + "…"
	}
	return text
}
