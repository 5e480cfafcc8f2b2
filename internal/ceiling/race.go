//go:build race

package ceiling

const race = true
