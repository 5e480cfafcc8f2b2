package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/match"
)

// A Condition recognises an answer by its status, a header, or a value in its JSON
// body. All that is given must hold.
type Condition struct {
	Status []int  `toml:"status"` // empty: any 2xx; in absent_if: 404
	Header string `toml:"header"` // name of a header
	Path   string `toml:"path"`   // such as "$.error.type"

	// What the header or the value must be. None of them: it is there, and not null.
	Equals any   `toml:"equals"`
	In     []any `toml:"in"`
	Exists *bool `toml:"exists"`

	// Class is what a refusal means, in refused_if only. Empty: logic.
	Class keep.Class `toml:"class"`
}

// A condition is a checked Condition.
type condition struct {
	status []int
	header string
	path   match.Path
	value  match.Value
	class  keep.Class
}

// condition checks c, which stands at key.
func (b *builder) condition(key string, cfg Condition) condition {
	c := condition{status: cfg.Status, header: http.CanonicalHeaderKey(cfg.Header), class: cfg.Class}
	b.statuses(key+".status", cfg.Status, 100, 599)
	if cfg.Path == "" && cfg.Header == "" && len(cfg.Status) == 0 {
		b.addf(key, "names no status, path or header to recognise an answer by")
	}
	if cfg.Path != "" && cfg.Header != "" {
		b.addf(key, "names both path and header; two conditions need two entries")
	}
	if cfg.Header != "" && !isHeaderName(cfg.Header) {
		b.addf(key+".header", "is not a header name")
	}
	var err error
	if c.path, err = match.ParsePath(cfg.Path); cfg.Path != "" && err != nil {
		b.addf(key+".path", "%v", err)
	}
	if c.value, err = match.NewValue(cfg.Equals, cfg.In, cfg.Exists); err != nil {
		b.addf(key, "%v", err)
	}
	return c
}

// matches reports whether a is what c describes. The statuses that c does not name are
// those of ok.
func (c condition) matches(a answer, ok func(status int) bool) bool {
	switch {
	case len(c.status) > 0 && !slices.Contains(c.status, a.status), len(c.status) == 0 && !ok(a.status):
		return false
	case c.header != "":
		values := a.header.Values(c.header)
		return c.value.Is(len(values) > 0, func(want json.RawMessage) bool {
			var text string
			return json.Unmarshal(want, &text) == nil && slices.Contains(values, text)
		})
	case c.path == nil:
		return true
	case a.cut || a.err != nil || !json.Valid(a.body):
		return false
	}
	return c.value.At(c.path, a.body)
}

// String names what c looks at, for a person.
func (c condition) String() string {
	if c.header != "" {
		return "the header " + c.header
	}
	return c.path.String()
}
