package postgres

import (
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// escape begins a byte that Postgres does not take in a text: NUL, or one that is
// not UTF-8. Two hex digits follow. It escapes itself, so every Go string has one
// stored form, and equal strings have equal ones.
const escape = "\x1a"

// text returns s as it is stored. Scripts choose names, titles and log lines, and
// JavaScript allows what Postgres does not.
func text(s string) string {
	if !strings.ContainsAny(s, "\x00"+escape) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == 0 || r == rune(escape[0]) || r == utf8.RuneError && size == 1 {
			b.WriteString(escape + hex.EncodeToString([]byte(s[:1])))
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// plain is the opposite of text.
func plain(s string) string {
	before, rest, escaped := strings.Cut(s, escape)
	if !escaped {
		return s
	}
	var b strings.Builder
	for {
		b.WriteString(before)
		if !escaped {
			return b.String()
		}
		digits := rest[:min(2, len(rest))]
		c, err := hex.DecodeString(digits)
		if err != nil { // nothing that text made; shown as it is
			c = []byte(escape + digits)
		}
		b.Write(c)
		before, rest, escaped = strings.Cut(rest[len(digits):], escape)
	}
}

// sizeOf is the expression for how many bytes the text in a column has; as it is stored, it may have more.
func sizeOf(column string) string {
	return "(octet_length(" + column + ") - 2 * (octet_length(" + column + ") - octet_length(replace(" + column + `, E'\x1a', ''))))`
}

// texts returns names as an array that is stored or looked for.
func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(string(v))
	}
	return out
}

// into scans a text into a string of any type.
func into[T ~string](p *T) pgtype.TextScanner { return textTo[T]{p} }

type textTo[T ~string] struct{ p *T }

// ScanText is how pgx hands a text over.
func (t textTo[T]) ScanText(v pgtype.Text) error {
	*t.p = T(plain(v.String))
	return nil
}

// values returns the arguments of a query as pgx takes them.
func values(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case nil, int, int64, bool, []byte, []string, []int64:
			out[i] = v
		case time.Time:
			out[i] = millis(v)
		case json.RawMessage:
			out[i] = []byte(v)
		default:
			out[i] = text(reflect.ValueOf(v).String()) // the names and states of keep are strings
		}
	}
	return out
}

// millis returns t as it is stored; 0 means not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// moment is the opposite of millis.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
