package jsonval

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Alike reports whether two values may be the same in another spelling. Of an object, what was sent
// is looked for: services add members.
func Alike(got, want json.RawMessage) bool {
	x, errX := Decode(got)
	y, errY := Decode(want)
	return errX == nil && errY == nil && alikeValues(x, y)
}

func alikeValues(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !alikeValues(object[name], value) {
				return false
			}
		}
		return true
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(list, want, alikeValues)
	}
	x, okX := spelled(got)
	y, okY := spelled(want)
	return okX && okY && (x == y || sameTime(x, y) || isNumber(x) && isNumber(y) && SameNumber(x, y))
}

// spelled returns a text, number or truth value as a text without what services change of one; false: it is
// none of them.
func spelled(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return strings.ToLower(strings.Join(strings.Fields(v), " ")), true
	case json.Number:
		return v.String(), true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	}
	return "", false
}

// isNumber reports whether a text is a number as JSON writes it.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}

// sameTime reports whether two texts are one moment, to the second.
func sameTime(x, y string) bool {
	a, errA := time.Parse(time.RFC3339, strings.ToUpper(x))
	b, errB := time.Parse(time.RFC3339, strings.ToUpper(y))
	return errA == nil && errB == nil && a.Unix() == b.Unix()
}
