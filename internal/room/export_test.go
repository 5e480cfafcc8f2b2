package room

// Steps returns how many comparisons the room has made.
func (r *Room) Steps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps
}
