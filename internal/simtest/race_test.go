//go:build race

package simtest

// How many seeds tests simulate unless flags say more. The race detector makes each several
// times slower; without it a thousand are simulated before (.ci/check sim).
const (
	fewSeeds      = 16
	fewGroupSeeds = 4
	fewDrills     = 7 // each seventh
)

// raced reports whether the race detector watches. What looks at the oracle and not at Keep is
// left to the run without it.
const raced = true
