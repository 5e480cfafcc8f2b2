package sandbox

// A Usage is how busy a runtime is.
type Usage struct {
	Waiting int // phases that wait for a processor
	Idle    int // instances that are kept for the next phase
}

// Usage returns how busy the runtime is now.
func (rt *Runtime) Usage() Usage {
	rt.pool.mu.Lock()
	defer rt.pool.mu.Unlock()
	return Usage{Waiting: int(rt.gate.waiting.Load()), Idle: len(rt.pool.idle)}
}
