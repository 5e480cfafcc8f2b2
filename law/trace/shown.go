package trace

import (
	"encoding/json"
	"slices"
	"time"
)

// beginsItem is the host call with which a job begins an item.
const beginsItem = "item.begin"

// ItemOf returns the id of the item that a read begins in a job; false: it is another one.
func ItemOf(tool string, params json.RawMessage) (id string, ok bool) {
	var args []json.RawMessage
	if tool != beginsItem || json.Unmarshal(params, &args) != nil || len(args) == 0 {
		return "", false
	}
	return id, json.Unmarshal(args[0], &id) == nil
}

// Shown returns entries as people read them. What a call of a job returned is recorded as a read around the
// call, since a replay needs it; it is left out.
func Shown(entries []Entry) []Entry {
	calls := make(map[string][]time.Time)
	for _, e := range entries {
		if e.What == Call {
			calls[e.Tool] = append(calls[e.Tool], e.At)
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		end := e.At.Add(time.Duration(e.MS * float64(time.Millisecond)))
		return e.What == Read && slices.ContainsFunc(calls[e.Tool], func(at time.Time) bool { return !at.Before(e.At) && !at.After(end) })
	})
}
