//go:build !race

package simtest

// storeSeeds is how many seeds TestStoresMakeNoDifference lives through. They
// contain every change that it wants to see.
const storeSeeds = 9
