//go:build race

package gateway_test

// fewWorlds is how many seeds TestWorlds simulates unless a flag says more.
const fewWorlds = 8
