package config

import (
	"slices"

	"github.com/keep-run/keep/internal/spelling"
)

// suggest returns "did you mean …?" with the known word that is nearest to got,
// or nothing if none is near.
func suggest(got string, known []string) string {
	// The longer the word, the more mistakes still look like it.
	best, least := "", len(got)/3+2
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := spelling.Distance(got, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}
