// Package canonical writes JSON in the one form of RFC 8785, so that two texts that
// mean the same have the same hash. Everything in Keep that hashes JSON does it here.
//
// Object names are sorted, white space is dropped, 1.0 becomes 1. Strings are compared
// as they are: Unicode is not normalised, so two spellings of one letter differ.
//
// # On disk
//
// Hashes of these bytes are kept for years: the keys of items and the payload hashes
// of the ledger, the fingerprints of idempotency keys. The bytes are version 1. A change
// of them needs a new version beside each hash that is kept (fingerprints have it, see
// key.Version); TestVersion1 pins them.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// maxSafe is the largest integer that a JavaScript number holds exactly with both of
// its neighbours.
const maxSafe = 1<<53 - 1

// A NumberError is returned for a number that JavaScript, and so RFC 8785, would
// round: two different ids could hash alike.
type NumberError struct{ Number string }

// Error names the number and what to write instead.
func (e *NumberError) Error() string {
	return fmt.Sprintf("the number %s is beyond 2^53 and would be rounded: pass it as a string", e.Number)
}

// errInexact is returned by Exact for a number that another one is rounded to.
var errInexact = errors.New("number has no exact canonical form")

// JSON returns the canonical form of one JSON value; no text is null. Numbers beyond
// 2^53, names that occur twice and text that is no Unicode are refused.
func JSON(text []byte) ([]byte, error) {
	return form(text, func(number string) error {
		if f, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(f) > maxSafe {
			return &NumberError{number}
		}
		return nil
	})
}

// Exact is JSON for text that others sent: it also refuses decimals with more digits
// than the canonical form keeps, so that no two different texts become one.
func Exact(text []byte) ([]byte, error) {
	return form(text, func(number string) error {
		if !exact(number) {
			return errInexact
		}
		return nil
	})
}

// Held is JSON for text that is passed on as it is recorded: it also refuses a decimal of which a double does not hold every
// digit, since it would be another number.
func Held(text []byte) ([]byte, error) {
	return form(text, func(number string) error {
		if _, err := JSON([]byte(number)); err != nil {
			return err
		}
		f, _ := strconv.ParseFloat(number, 64) // it is one
		if decimalOf(number) != decimalOf(strconv.FormatFloat(f, 'e', -1, 64)) {
			return fmt.Errorf("the number %.60s would be rounded: pass it as a string", number)
		}
		return nil
	})
}

// A decimal is a number without its sign: its digits, and where they are.
type decimal struct {
	digits   string // with no zeros at either end
	exponent int    // of the last digit
}

// decimalOf reads a number of JSON.
func decimalOf(number string) decimal {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	e, err := strconv.Atoi(strings.TrimPrefix(exponent, "+"))
	if err != nil && exponent != "" {
		return decimal{number, 0} // it is no other number's
	}
	digits := strings.TrimRight(whole+fraction, "0")
	e += len(whole) - len(digits) // of what is behind the digits
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return decimal{}
	}
	return decimal{digits, e}
}

// form returns the canonical form of text if check accepts each of its numbers.
func form(text []byte, check func(number string) error) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return []byte("null"), nil
	}
	if err := checkTokens(text, check); err != nil {
		return nil, err
	}
	// The transformer takes an object or an array only.
	out, err := jcs.Transform(append(append([]byte{'['}, text...), ']'))
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	return out[1 : len(out)-1], nil
}

// checkTokens checks the numbers of text, and that it is one value: the array that
// form puts around it would hide a second one.
func checkTokens(text []byte, check func(number string) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for depth, values := 0, 0; ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read JSON: %w", err)
		}
		switch t := tok.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
		case json.Number:
			if err := check(t.String()); err != nil {
				return err
			}
		}
		if depth == 0 {
			if values++; values > 1 {
				return errors.New("read JSON: more than one value")
			}
		}
	}
}

// leastNormal is the smallest number of which a double holds 15 digits.
const leastNormal = 0x1p-1022

// exact reports whether a double holds the number well enough that no other number of
// up to 15 digits, and no other integer, gets the same canonical form.
func exact(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.Abs(f) > maxSafe {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	digits := strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
	if len(digits) > 15 {
		return f == math.Trunc(f) && !strings.ContainsAny(number, ".eE")
	}
	return math.Abs(f) >= leastNormal || digits == "" // below it a double holds fewer digits, or none
}

// Object is JSON of an object whose values are still as they came. Values that the
// canonical form would not change are not parsed again: params are mostly long
// strings, and this is on the path of every call.
func Object(m map[string]json.RawMessage) ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
	})
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("canonical JSON: %w", err)
		}
		for _, part := range [][]byte{key, m[name]} {
			if !plainString(part) {
				if part, err = JSON(part); err != nil {
					return nil, err
				}
			}
			out = append(append(out, part...), ':')
		}
		out = out[:len(out)-1]
	}
	return append(out, '}'), nil
}

// plainString reports whether raw is a JSON string without escapes, and so canonical
// as it is.
func plainString(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) {
		return false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Text reads a JSON string that identifies something; null is none. It refuses half of a surrogate
// pair, which JavaScript's strings can hold and Unicode cannot: encoding/json puts the
// same character for every half, and two different ids would be one.
func Text(raw []byte) (string, error) {
	var s string
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("want a text, not %.60s", raw)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	if plainString(raw) {
		return s, nil
	}
	if err := WellFormed(raw); err != nil {
		return "", fmt.Errorf("%.60q %w", s, err)
	}
	return s, nil
}

// WellFormed returns an error if JSON has a text that Unicode cannot hold: half of a
// surrogate pair, or bytes that are not UTF-8.
func WellFormed(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("is not valid UTF-8")
	}
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+2 > len(text) {
			return nil
		}
		r, size := escaped(text[i:])
		if text = text[i+size:]; !utf16.IsSurrogate(r) {
			continue
		}
		low, size := escaped(text)
		if utf16.DecodeRune(r, low) == unicode.ReplacementChar {
			return errors.New("is cut within a character (half of a surrogate pair): cut text with Array.from(text), or use text.toWellFormed()")
		}
		text = text[size:]
	}
	return nil
}

// escaped reads an escape of JSON at the beginning of text: what it stands for, if it is a
// code unit of UTF-16, and its length.
func escaped(text []byte) (unit rune, size int) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, min(2, len(text))
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(n), 6
}

// Without returns an exact canonical value less the field at path, in canonical form.
// A path goes through objects only; a value that lacks the field comes back as it is.
func Without(value []byte, path []string) ([]byte, error) {
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
		rest, err := Without(inner, path[1:])
		if err != nil {
			return nil, err
		}
		object[path[0]] = rest
	}
	return Object(object)
}
