package key

import (
	"errors"
	"strings"

	"github.com/dunglas/httpsfv"
)

// The headers that name a key. Both name the same one.
const (
	Header       = "Idempotency-Key"
	LegacyHeader = "X-Idempotency-Key"
)

// MaxLength is the most characters that a key has.
const MaxLength = 255

// Errors returned when the headers do not name a key.
var (
	// ErrMissing is returned when there is neither header.
	ErrMissing = errors.New("the request has no Idempotency-Key header")

	// ErrRepeated is returned when a header has more than one line: a proxy on
	// the way may have kept another one than we would.
	ErrRepeated = errors.New("the key header occurs more than once")

	// ErrDiffer is returned when both headers are there and name two keys.
	ErrDiffer = errors.New("Idempotency-Key and X-Idempotency-Key name different keys")

	// ErrEmpty is returned when the key has no characters.
	ErrEmpty = errors.New("the key is empty")

	// ErrTooLong is returned when the key has over MaxLength characters.
	ErrTooLong = errors.New("the key has more than 255 characters")

	// ErrCharacter is returned when a key has a character that is not allowed.
	ErrCharacter = errors.New("the key may only have printable ASCII characters, and spaces only in quotes")

	// ErrQuote is returned when a key that starts with a quote is no structured
	// string (RFC 9651).
	ErrQuote = errors.New("the key starts with a quote but is no structured string")
)

// FromHeader returns the key that a request names, without quotes. The names of
// headers are canonical, as net/http has them.
func FromHeader(h map[string][]string) (string, error) {
	std, errStd := fromLines(h[Header])
	legacy, errLegacy := fromLines(h[LegacyHeader])
	switch {
	case errors.Is(errLegacy, ErrMissing):
		return std, errStd
	case errors.Is(errStd, ErrMissing):
		return legacy, errLegacy
	case errStd != nil:
		return "", errStd
	case errLegacy != nil:
		return "", errLegacy
	case std != legacy:
		return "", ErrDiffer
	}
	return std, nil
}

func fromLines(lines []string) (string, error) {
	switch len(lines) {
	case 0:
		return "", ErrMissing
	case 1:
		return Parse(lines[0])
	}
	return "", ErrRepeated
}

// Parse returns the key that one header value names: a structured string, whose
// parameters are ignored, or the characters as they are.
func Parse(value string) (string, error) {
	value = strings.Trim(value, " \t")
	bare := !strings.HasPrefix(value, `"`)
	if !bare {
		item, err := httpsfv.UnmarshalItem([]string{value})
		if err != nil {
			return "", ErrQuote
		}
		quoted, ok := item.Value.(string)
		if !ok {
			return "", ErrQuote
		}
		value = quoted
	}
	return value, check(value, bare)
}

// Text returns the key that a text is, as it is: one that is not in a header of keys.
func Text(text string) (string, error) { return text, check(text, false) }

// check refuses what is not a key. A quoted key was read by a parser that only
// accepts printable ASCII; it is checked all the same.
func check(key string, bare bool) error {
	switch {
	case key == "":
		return ErrEmpty
	case len(key) > MaxLength:
		return ErrTooLong
	}
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' || c == ' ' && bare {
			return ErrCharacter
		}
	}
	return nil
}
