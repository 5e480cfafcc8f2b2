package config

import "slices"

// suggest returns "did you mean …?" with the known word that is nearest to got,
// or nothing if none is near.
func suggest(got string, known []string) string {
	// The longer the word, the more mistakes still look like it.
	best, least := "", len(got)/3+2
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(got, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// distance returns how many insertions, deletions and replacements of bytes
// turn a into b.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 200 // no typing mistake
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
