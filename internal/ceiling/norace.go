//go:build !race

package ceiling

const race = false
