package key

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// A Form says which differences between two bodies matter.
type Form struct {
	// CanonicalJSON ignores white space, the order of fields and the spelling
	// of numbers in JSON bodies.
	CanonicalJSON bool

	// IgnoreFields are left out of JSON bodies. A name may be a path with dots,
	// "meta.sent_at"; it goes through objects only. It implies CanonicalJSON.
	IgnoreFields []string
}

// NewFingerprint returns the hash of what a request asks for. Query is taken as
// it is: "a=1&b=2" and "b=2&a=1" are two requests.
//
// A body that claims to be JSON and has no exact canonical form (it is no JSON,
// repeats a name, or has a number that would be rounded) is taken as it is:
// stricter, never laxer.
func NewFingerprint(method, path, query, contentType string, body []byte, form Form) Fingerprint {
	kind := "raw"
	if (form.CanonicalJSON || len(form.IgnoreFields) > 0) && isJSON(contentType) {
		if canonical, err := canonicalise(body, form.IgnoreFields); err == nil {
			kind, body = "json", canonical
		}
	}
	return hash("keep request 1", method, path, query, kind, string(body))
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// canonicalise returns the RFC 8785 form of body without the named fields.
func canonicalise(body []byte, ignore []string) ([]byte, error) {
	if err := checkNumbers(body); err != nil {
		return nil, err
	}
	// The transformer wants an object or array at the top.
	out, err := jcs.Transform(append(append([]byte{'['}, body...), ']'))
	if err != nil {
		return nil, fmt.Errorf("canonicalise: %w", err)
	}
	out = out[1 : len(out)-1]
	for _, path := range ignore {
		if out, err = without(out, strings.Split(path, ".")); err != nil {
			return nil, err
		}
	}
	if len(ignore) == 0 {
		return out, nil
	}
	return jcs.Transform(append(append([]byte{'['}, out...), ']'))
}

// without returns the JSON value less the field at path. A value that has none
// comes back as it is.
func without(value []byte, path []string) ([]byte, error) {
	if len(value) == 0 || value[0] != '{' {
		return value, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, err
	}
	inner, ok := object[path[0]]
	switch {
	case !ok:
		return value, nil
	case len(path) == 1:
		delete(object, path[0])
	default:
		rest, err := without(inner, path[1:])
		if err != nil {
			return nil, err
		}
		object[path[0]] = rest
	}
	return json.Marshal(object)
}

// errNumber is returned for a number that the canonical form would round: two
// different requests could have one fingerprint.
var errNumber = errors.New("number has no exact canonical form")

func checkNumbers(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for depth, values := 0, 0; ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
		case json.Number:
			if !exact(t.String()) {
				return errNumber
			}
		}
		// "1 2" is two values, which the array around it would hide.
		if depth == 0 {
			if values++; values > 1 {
				return errors.New("more than one value")
			}
		}
	}
}

// exact reports whether a double holds the number well enough that no other
// number of up to 15 digits, and no other integer, gets the same canonical form.
func exact(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.Abs(f) > 1<<53-1 {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	digits := strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
	if len(digits) > 15 {
		return f == math.Trunc(f) && !strings.ContainsAny(number, ".eE")
	}
	return f != 0 || digits == "" // not rounded to nothing
}
