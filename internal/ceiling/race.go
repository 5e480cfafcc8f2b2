//go:build race

package ceiling

// slower is how much more the race detector takes.
const slower = 10
