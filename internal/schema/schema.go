// Package schema compiles JSON Schemas, of a tool's params and results.
package schema

import (
	"bytes"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// name is what a schema without an $id has as its address, in errors too.
const name = "keep:schema"

// Compile returns the schema that a JSON text is, by draft 2020-12 if it names no other.
//
// It loads nothing: a reference leads to a place in the text, or to a draft. The text may be that of a
// service, and a file or an address that it names would be read by this process, at its expense.
func Compile(text []byte) (*jsonschema.Schema, error) {
	doc, err := Value(text)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// Value returns a JSON text as Validate wants it, with its numbers as they are written.
func Value(text []byte) (any, error) { return jsonschema.UnmarshalJSON(bytes.NewReader(text)) }

// Reasons flattens a validation error to its leaves, one line.
func Reasons(err error) string {
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(ve.Error()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "- ") {
			out = append(out, strings.TrimPrefix(line, "- "))
		}
	}
	if len(out) == 0 {
		return strings.ReplaceAll(ve.Error(), "\n", " ")
	}
	return strings.Join(out, "; ")
}
