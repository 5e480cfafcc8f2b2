package stored

// Distinct returns a list without what is in it before, in the same order: what is asked for twice is read once.
func Distinct[T comparable](list []T) []T {
	seen, out := make(map[T]bool, len(list)), make([]T, 0, len(list))
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
