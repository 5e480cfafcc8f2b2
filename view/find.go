package view

import (
	"fmt"
	"unicode/utf8"

	"github.com/keep-run/keep/law/search"
)

// MaxText bounds the text of a search, in characters.
const MaxText = 200

// CheckText refuses a text that is too long to search for.
func CheckText(text string) error {
	if n := utf8.RuneCountInString(text); n > MaxText {
		return fmt.Errorf("search for at most %d characters, not %d", MaxText, n)
	}
	return nil
}

// A Found is how many records a filter finds, by status.
type Found[S ~string] struct {
	By    map[S]int
	Total int
	More  bool // there are more: each number is a lower bound
}

// FoundOf returns what counts of a filter say. Stores count what a bounded one selects up to
// search.MaxCount, and everything else exactly.
func FoundOf[S ~string](bounded bool, by map[S]int) Found[S] {
	f := Found[S]{By: by}
	for _, n := range by {
		f.Total += n
	}
	if bounded && f.Total > search.MaxCount {
		f.Total, f.More = search.MaxCount, true
	}
	return f
}
