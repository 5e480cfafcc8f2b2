package keep

import "time"

// A HookCount says what came to a hook. Times are zero if nothing came.
type HookCount struct {
	Name     string
	Accepted int64 // deliveries that became an event
	Repeated int64 // deliveries of an event that was there
	Refused  int64 // deliveries that became none

	LastAt        time.Time // of the last that was accepted or repeated
	LastRefusedAt time.Time
	LastRefusal   string // why it was refused
}

// Add returns the sum of two counts of one hook.
func (c HookCount) Add(o HookCount) HookCount {
	c.Accepted, c.Repeated, c.Refused = c.Accepted+o.Accepted, c.Repeated+o.Repeated, c.Refused+o.Refused
	if o.LastAt.After(c.LastAt) {
		c.LastAt = o.LastAt
	}
	if !o.LastRefusedAt.IsZero() && !o.LastRefusedAt.Before(c.LastRefusedAt) {
		c.LastRefusedAt, c.LastRefusal = o.LastRefusedAt, o.LastRefusal
	}
	return c
}
