package connector

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of numbers in what services answer (law: bounded). Whoever computes with a
// number such as 1e999999 needs a million digits for it.
const (
	maxDigits   = 1000
	maxExponent = 400
)

// CheckNumbers returns an error if raw has a number with more than 1,000 digits or an
// exponent beyond ±400. Raw is JSON; what is not is not looked at further.
func CheckNumbers(raw json.RawMessage) error {
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i = skipString(raw, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("0123456789.eE+-", raw[end]) >= 0 {
				end++
			}
			if err := checkNumber(raw[i:end]); err != nil {
				return err
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// skipString returns the position after the string that begins at i.
func skipString(raw []byte, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func checkNumber(number []byte) error {
	digits, exponent, _ := strings.Cut(strings.ToLower(string(number)), "e")
	if n := len(digits); n > maxDigits {
		return fmt.Errorf("a number has %d digits: at most %d", n, maxDigits)
	}
	if exponent == "" {
		return nil
	}
	if n, err := strconv.Atoi(exponent); err != nil || n > maxExponent || n < -maxExponent {
		return fmt.Errorf("a number has the exponent %.20s: at most ±%d", exponent, maxExponent)
	}
	return nil
}
