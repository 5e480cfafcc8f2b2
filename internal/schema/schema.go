// Package schema compiles JSON Schemas, of a tool's params and results.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// Bounds of a schema that a service lists (law: bounded). To compile one takes time that grows with the third power of its levels.
const (
	maxListed = 256 << 10 // bytes
	maxLevels = 64
)

var errLong = errors.New("the schema is too large or too deep to be compiled")

// CompileListed is Compile for a schema that a service lists, which may be made to take long: that is an error.
func CompileListed(text []byte) (*jsonschema.Schema, error) {
	if len(text) > maxListed {
		return nil, errLong
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for levels := 0; ; {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return Compile(text)
		case err != nil:
			return nil, err
		}
		if token, nests := token.(json.Delim); nests {
			if levels++; token == '}' || token == ']' {
				levels -= 2
			}
		}
		if levels > maxLevels {
			return nil, errLong
		}
	}
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
