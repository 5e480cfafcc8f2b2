// Package jsonval looks at JSON values without ever rounding a number. Scripts
// and services pass ids as numbers, and two ids that differ beyond 2^53 are two
// ids.
package jsonval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// Fields returns the members of the one object in raw. Nothing at all counts
// as an empty object. The values keep the bytes they were written with.
func Fields(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]json.RawMessage{}, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("params must be one object: %w", err)
	}
	if fields == nil {
		return nil, errors.New("params must be one object, not null")
	}
	return fields, nil
}

// Decode returns raw as nil, bool, string, json.Number, []any or map[string]any.
func Decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// Encode writes v compactly and leaves <, > and & as they are.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Equal reports whether a and b are the same value: order of members, white
// space and the spelling of numbers and strings don't matter. What isn't JSON
// equals nothing.
func Equal(a, b json.RawMessage) bool {
	x, err := Decode(a)
	if err != nil {
		return false
	}
	y, err := Decode(b)
	return err == nil && same(x, y)
}

func same(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		y, ok := y.(json.Number)
		return ok && SameNumber(x.String(), y.String())
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if v, ok := y[k]; !ok || !same(x[k], v) {
				return false
			}
		}
		return true
	default:
		return x == y
	}
}

// SameNumber reports whether two JSON numbers are the same decimal: 1, 1.0 and
// 10e-1 are. It doesn't compute powers, so that 1e999999999 costs nothing.
func SameNumber(a, b string) bool {
	if a == b {
		return true
	}
	na, da, ea := normalize(a)
	nb, db, eb := normalize(b)
	return na == nb && da == db && ea.Cmp(eb) == 0
}

// normalize splits a JSON number into sign, digits without zeros at either end,
// and the exponent of the last digit.
func normalize(s string) (negative bool, digits string, exp *big.Int) {
	exp = new(big.Int)
	s, negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp.SetString(strings.TrimPrefix(s[i+1:], "+"), 10)
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	digits = strings.TrimLeft(whole+frac, "0")
	exp.Sub(exp, big.NewInt(int64(len(frac))))
	short := strings.TrimRight(digits, "0")
	exp.Add(exp, big.NewInt(int64(len(digits)-len(short))))
	if short == "" {
		return false, "", new(big.Int)
	}
	return negative, short, exp
}

// maxSafe is 2^53-1: scripts hold every integer up to it exactly.
const maxSafe = 1<<53 - 1

// SafeInteger reports whether the integer n survives a script.
func SafeInteger(n int64) bool { return -maxSafe <= n && n <= maxSafe }

// Safe returns v with every integer that a script would round turned into a
// string of its digits. Other numbers stay as they are written.
func Safe(v any) any {
	switch v := v.(type) {
	case json.Number:
		s := v.String()
		if strings.ContainsAny(s, ".eE") {
			return v
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && SafeInteger(n) {
			return v
		}
		return s
	case []any:
		for i := range v {
			v[i] = Safe(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = Safe(v[k])
		}
	}
	return v
}
