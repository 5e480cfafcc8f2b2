//go:build !race

package simtest

// storeSeeds is how many seeds TestStoresMakeNoDifference lives through. They
// contain every change that it wants to see.
const storeSeeds = 9

// How many seeds tests simulate unless flags say more.
const (
	fewSeeds       = 150
	fewGroupSeeds  = 25
	fewServerSeeds = 4
	fewDrills      = 1 // each
)

const raced = false
