// Package native has what tools share that are written in Go, each for one kind of service.
package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// MaxResult bounds what a script gets from one call, in bytes.
const MaxResult = 1 << 20

// Bounds of what people read: the target of a call, in characters, and a message, in bytes.
const (
	maxTarget  = 120
	maxMessage = 1000
)

// Object returns a JSON Schema of an object with those properties, of which the required ones are listed in JSON.
func Object(required, properties string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":[%s],"properties":{%s}}`, required, properties))
}

// Decode reads params strictly, so that a typo is an error. None are an empty object.
func Decode(params json.RawMessage, into any) error {
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(params))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("params: %w", err)
	}
	return nil
}

// Target bounds what a call changes as people read it.
func Target(text string) string {
	r := []rune(strings.ToValidUTF8(text, ""))
	return string(r[:min(len(r), maxTarget)])
}

// Message bounds a text that a service has a part in, and takes its control characters out.
func Message(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// A Failf returns a failure of a tool of a connection.
type Failf func(tool string, class keep.Class, code, format string, args ...any) *keep.Failure

// NewReader returns a tool that reads by a function.
func NewReader(spec connector.Spec, failf Failf, read func(context.Context, json.RawMessage) (any, error)) connector.Reader {
	return &reader{spec, failf, read}
}

type reader struct {
	spec  connector.Spec
	failf Failf
	read  func(context.Context, json.RawMessage) (any, error)
}

// Spec returns the description of the tool.
func (r *reader) Spec() connector.Spec { return r.spec }

// Read performs the call.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	v, err := r.read(ctx, params)
	if err != nil {
		return nil, err
	}
	raw, err := jsonval.Encode(v)
	if err != nil {
		return nil, r.failf(r.spec.Name, keep.ClassInternal, "encode", "result: %v", err)
	}
	if len(raw) > MaxResult {
		return nil, r.failf(r.spec.Name, keep.ClassLogic, "answer-too-large", "the result has %d bytes, more than %d; ask for less at a time", len(raw), MaxResult)
	}
	return raw, nil
}

// A Change is what tools that change something have in common.
type Change struct{ Tool connector.Spec }

// Spec returns the description of the tool.
func (c *Change) Spec() connector.Spec { return c.Tool }

// ComparePayload finds equal params equivalent, and others significant.
func (c *Change) ComparePayload(old, new json.RawMessage) connector.Difference {
	if jsonval.Equal(old, new) {
		return connector.Equivalent
	}
	return connector.Significant
}
