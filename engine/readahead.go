package engine

// maxReadAhead is how much is read at once, at most: so many items or results.
const maxReadAhead = 256

// maxResultAhead is the largest result that is read ahead, in bytes. Larger ones
// are read when their call is made.
const maxResultAhead = 4 << 10

// A readAhead is what a run of a job has read of one thing before it comes to it.
// Jobs come to items, and make calls, in the order in which they did so the first
// time, more often than not. A run for which it does not help is soon left alone
// with it. The zero value has nothing.
type readAhead[K comparable, V any] struct {
	found map[K]V
	asked int // how much was asked for
	hits  int // how much of that was of use
}

// take returns what was read of k.
func (r *readAhead[K, V]) take(k K) (V, bool) {
	v, ok := r.found[k]
	if ok {
		r.hits++
	}
	return v, ok
}

// more calls read for the next, if that pays, and makes room for them. It reads
// little the first time: most runs need no second.
func (r *readAhead[K, V]) more(read func(limit int) ([]V, error)) ([]V, error) {
	if r.hits < r.asked/8 {
		return nil, nil
	}
	n := min(maxReadAhead, max(16, 2*r.asked))
	r.asked += n
	r.found = make(map[K]V, n)
	return read(n)
}

// forget drops what was read, since it may have changed.
func (r *readAhead[K, V]) forget() { r.found = nil }
