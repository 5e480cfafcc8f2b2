//go:build race

package ceiling

// Race reports whether the race detector watches this program. What it watches takes several
// times as much.
const Race = true
