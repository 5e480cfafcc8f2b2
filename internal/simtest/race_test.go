//go:build race

package simtest

// storeSeeds is how many seeds TestStoresMakeNoDifference lives through. The race
// detector makes SQLite ten times slower.
const storeSeeds = 2

// How many seeds tests simulate unless flags say more. The race detector makes each several
// times slower; without it a thousand are simulated before (.ci/check sim).
const (
	fewSeeds       = 30
	fewGroupSeeds  = 8
	fewServerSeeds = 2
	fewDrills      = 7 // each seventh
)

// raced reports whether the race detector watches. What looks at the oracle and not at Keep is
// left to the run without it.
const raced = true
