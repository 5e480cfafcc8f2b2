package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A tokenPlace says where the host's key of a change is sent. The zero tokenPlace sends
// it nowhere.
type tokenPlace struct {
	header string
	query  string
	body   [][]string // paths of members
	format string
	append *appendText
	fixed  bool // {token} stands in fixed
	mail   bool // in a header of a mail
}

// An appendText is added to a param.
type appendText struct {
	param string
	text  text
}

// sent reports whether the key is sent at all.
func (p tokenPlace) sent() bool {
	return p.header != "" || p.query != "" || len(p.body) > 0 || p.append != nil || p.fixed || p.mail
}

// isKey reports whether the key is sent where a service could honour it as one.
func (p tokenPlace) isKey(metadata string) bool {
	return p.header != "" || p.query != "" || p.fixed || len(p.body) > 0 && !(len(p.body) == 1 && metadata != "")
}

// formats are the ways to write a key, by their names.
var formats = map[string]func(token string) string{
	"":     func(token string) string { return token },
	"uuid": func(token string) string { return token },
	"hex32": func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return hex.EncodeToString(sum[:16])
	},
	"base32hex": func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
	},
}

// write returns the token as the service gets it.
func (p tokenPlace) write(token string) string { return formats[p.format](token) }

// token reads what is said about the key.
func (b *builder) token(t *tool) {
	cfg := Token{Header: b.cfg.IdempotencyHeader}
	key := "idempotency_header"
	if b.cfg.Token != nil {
		cfg, key = *b.cfg.Token, "token.header"
		if b.cfg.IdempotencyHeader != "" {
			b.addf("idempotency_header", "is short for token.header; give one of them")
		}
	}
	switch name := cfg.Header; {
	case name == "":
	case !isHeaderName(name) || slices.Contains(reserved, http.CanonicalHeaderKey(name)):
		b.addf(key, "%q cannot carry the token", name)
	case b.service.header.Get(name) != "":
		b.addf(key, "%q is also in headers", name)
	default:
		t.token.header = http.CanonicalHeaderKey(name)
	}
	t.token.query = cfg.Query
	b.tokenBody(t, "token.body", "", cfg.Body)
	b.tokenBody(t, "token.metadata", "metadata.", cfg.Metadata)
	if _, ok := formats[cfg.Format]; !ok {
		b.addf("token.format", "is %q, want uuid, base32hex or hex32", cfg.Format)
	} else {
		t.token.format = cfg.Format
	}
	b.tokenAppend(t, cfg.Append)
	if b.cfg.Deduplicates && !t.token.isKey(cfg.Metadata) {
		b.addf(strings.Split(key, ".")[0], "is required with deduplicates = true: a header, query or body member that is the key")
	}
	b.keyLasts()
}

// tokenBody adds a member of the body.
func (b *builder) tokenBody(t *tool, key, prefix, path string) {
	switch {
	case path == "":
	case !t.hasBody():
		b.addf(key, "a %s request has no body", t.method)
	case slices.Contains(strings.Split(path, "."), ""):
		b.addf(key, "is %q, want names with dots between them", path)
	default:
		t.token.body = append(t.token.body, strings.Split(prefix+path, "."))
	}
}

// tokenAppend reads the text that is added to a param.
func (b *builder) tokenAppend(t *tool, cfg *Append) {
	if cfg == nil {
		return
	}
	text, err := parseText(cfg.Text)
	if err == nil && !slices.Equal(text.params(), []string{tokenParam}) {
		err = errors.New("must hold {token} once, and no other param")
	}
	if err != nil {
		b.addf("token.append.text", "%v", err)
	}
	if !paramName().MatchString(cfg.Param) || slices.Contains(t.path.params(), cfg.Param) {
		b.addf("token.append.param", "%q is not a param of the body or query", cfg.Param)
	}
	t.token.append = &appendText{param: cfg.Param, text: text}
}

// keyLasts checks the two names of one setting.
func (b *builder) keyLasts() {
	for key, d := range map[string]int64{"key_lasts": int64(b.cfg.KeyLasts), "deduplicates_for": int64(b.cfg.DeduplicatesFor)} {
		if d != 0 && !b.cfg.Deduplicates && !(b.cfg.Sets && key == "key_lasts") {
			b.addf(key, "needs deduplicates = true")
		}
		if d < 0 {
			b.addf(key, "must not be negative")
		}
	}
	if b.cfg.KeyLasts != 0 && b.cfg.DeduplicatesFor != 0 {
		b.addf("deduplicates_for", "is the old name of key_lasts; give one of them")
	}
}

// appendTo adds the token to the text of a param.
func (p tokenPlace) appendTo(fields map[string]json.RawMessage, token string) error {
	a := p.append
	if a == nil {
		return nil
	}
	var was string
	if raw := fields[a.param]; len(raw) > 0 && json.Unmarshal(raw, &was) != nil {
		return errors.New("param \"" + a.param + "\" must be a string, since the token is appended to it")
	}
	extra, err := a.text.fill(values{host: map[string]string{tokenParam: p.write(token)}})
	if err != nil {
		return err
	}
	raw, err := jsonval.Encode(was + extra)
	fields[a.param] = raw
	return err
}

// addMembers puts the token into the members of a body.
func (p tokenPlace) addMembers(fields map[string]json.RawMessage, token string) error {
	for _, path := range p.body {
		if err := setMember(fields, path, p.write(token)); err != nil {
			return err
		}
	}
	return nil
}

// setMember sets a member of an object, and makes the objects on the way to it.
func setMember(fields map[string]json.RawMessage, path []string, v any) error {
	if len(path) == 1 {
		raw, err := jsonval.Encode(v)
		fields[path[0]] = raw
		return err
	}
	inner := map[string]json.RawMessage{}
	if raw := bytes.TrimSpace(fields[path[0]]); len(raw) > 0 && string(raw) != "null" {
		var err error
		if inner, err = jsonval.Fields(raw); err != nil {
			return errors.New("param \"" + path[0] + "\" must be an object: a value is added to it")
		}
	}
	if err := setMember(inner, path[1:], v); err != nil {
		return err
	}
	raw, err := jsonval.Encode(inner)
	fields[path[0]] = raw
	return err
}
