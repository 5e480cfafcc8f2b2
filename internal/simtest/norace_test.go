//go:build !race

package simtest

// How many seeds tests simulate unless flags say more.
const (
	fewSeeds      = 150
	fewGroupSeeds = 25
	fewDrills     = 1 // each
)

const raced = false
