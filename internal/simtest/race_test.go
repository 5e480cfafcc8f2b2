//go:build race

package simtest

// storeSeeds is how many seeds TestStoresMakeNoDifference lives through. The race
// detector makes SQLite ten times slower.
const storeSeeds = 2
