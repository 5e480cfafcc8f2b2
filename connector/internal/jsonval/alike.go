package jsonval

import (
	"bytes"
	"encoding/json"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Alike reports whether two values may be the same, as a service shows what it was sent: in another spelling, rounded, cut, or left out
// since it is empty. Of an object, what was sent is looked for: services add members. Got may be nothing at all.
func Alike(got, want json.RawMessage) bool {
	if len(bytes.TrimSpace(got)) == 0 {
		got = json.RawMessage("null")
	}
	x, errX := Decode(got)
	y, errY := Decode(want)
	return errX == nil && errY == nil && alikeValues(x, y)
}

func alikeValues(got, want any) bool {
	if got == nil {
		return isEmpty(want)
	}
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
	return okX && okY && (x == y || isCut(x, y) || sameTime(x, y) || isNumber(x) && isNumber(y) && rounds(x, y) || isBool(got, y) || isBool(want, x))
}

// isEmpty reports whether services leave a value out that was sent.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, value := range v {
			if !isEmpty(value) {
				return false
			}
		}
	case []any:
		return len(v) == 0
	case string:
		return strings.TrimSpace(v) == ""
	case json.Number:
		return SameNumber(v.String(), "0")
	case bool:
		return !v
	}
	return true
}

// Spelled returns a text without what services change of one: case, white space, the form of its letters in Unicode, characters that nobody
// sees, and those that HTML escapes.
func Spelled(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, html.UnescapeString(s))
	return strings.Join(strings.Fields(norm.NFKC.String(cases.Fold().String(norm.NFKC.String(s)))), " ")
}

// spelled returns a text, number or truth value as a text without what services change of one; false: it is
// none of them.
func spelled(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return Spelled(v), true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// isBool reports whether v is true or false, and a text is 1 or 0.
func isBool(v any, text string) bool {
	b, ok := v.(bool)
	return ok && (b && text == "1" || !b && text == "0")
}

// shortestCut is how long a column is, at least, whose service cuts what is longer. Below it, a beginning of a text is another text.
const shortestCut = 32

// isCut reports whether got may be the beginning of want, cut to the size of a column or with an ellipsis. One that ends within a number is
// another one of a series.
func isCut(got, want string) bool {
	start := strings.TrimSpace(strings.TrimSuffix(got, "...")) // which NFKC makes of …
	if start == "" || len(start) >= len(want) || !strings.HasPrefix(want, start) {
		return false
	}
	within := isDigit(start[len(start)-1]) && isDigit(want[len(start)])
	return start != got || utf8.RuneCountInString(start) >= shortestCut && !within
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isNumber reports whether a text is a number as JSON writes it.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}

// rounds reports whether got is the number want, or what a service makes of its fraction with fewer digits.
func rounds(got, want string) bool {
	if SameNumber(got, want) {
		return true
	}
	_, digits, _ := strings.Cut(got, ".")
	x, errX := strconv.ParseFloat(got, 64)
	y, errY := strconv.ParseFloat(want, 64)
	return errX == nil && errY == nil && y != math.Trunc(y) && !strings.ContainsAny(got, "eE") && math.Abs(x-y) < math.Pow10(-len(digits))*(1-1e-9)
}

// layouts are how services write a time, and whether it has a zone and an hour then.
var layouts = []struct {
	layout     string
	zone, hour bool
}{
	{time.RFC3339, true, true}, {"2006-01-02T15:04:05Z0700", true, true}, {"2006-01-02 15:04:05Z07:00", true, true}, {"2006-01-02T15:04:05", false, true},
	{"2006-01-02 15:04:05", false, true}, {"2006-01-02T15:04", false, true}, {"2006-01-02 15:04", false, true}, {time.DateOnly, false, false},
}

// A moment is a time as it was written.
type moment struct {
	time.Time
	zone, hour bool
}

// momentOf reads a time; false: the text is none.
func momentOf(s string) (moment, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 1e8 { // seconds since 1970, or milliseconds
		if n >= 1e11 {
			n /= 1000
		}
		return moment{time.Unix(n, 0).UTC(), true, true}, true
	}
	for _, l := range layouts {
		if at, err := time.Parse(l.layout, strings.ToUpper(s)); err == nil {
			return moment{at, l.zone, l.hour}, true
		}
	}
	return moment{}, false
}

// sameTime reports whether two texts are one moment, to the second. One without a zone or an hour is the other one's, of there or of UTC.
// Two numbers are none.
func sameTime(x, y string) bool {
	a, okA := momentOf(x)
	b, okB := momentOf(y)
	switch {
	case !okA || !okB || isNumber(x) && isNumber(y):
		return false
	case a.zone && b.zone:
		return a.Unix() == b.Unix()
	}
	layout := time.DateTime
	if !a.hour || !b.hour {
		layout = time.DateOnly
	}
	return a.Format(layout) == b.Format(layout) || a.UTC().Format(layout) == b.UTC().Format(layout)
}
