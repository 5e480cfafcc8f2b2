package repair

import (
	"encoding/json"

	"github.com/keep-run/keep"
)

// IsNeighbour reports whether a run counts as one whose work is done.
func IsNeighbour(r, failed keep.Run) bool {
	return r.Workflow == failed.Workflow && r.Handler == failed.Handler && r.Kind == failed.Kind && r.Status == keep.StatusCommitted
}

// Happened reports whether a call counts as an effect of a neighbour.
func Happened(m keep.Mutation) bool { return m.State == keep.Applied }

// CallEffect returns the effect of a call.
func CallEffect(tool keep.ToolName, subkey string, identity, payload json.RawMessage) Effect {
	return Effect{Name: string(tool), Call: true, Values: object(map[string]any{"identity": raw(identity), "payload": raw(payload), "subkey": subkey})}
}

// PublishEffect returns the effect of an event. An id that Keep makes is like any other.
func PublishEffect(topic keep.TopicName, id keep.MessageID, made bool, payload json.RawMessage) Effect {
	values := map[string]any{"payload": raw(payload)}
	if !made {
		values["id"] = id
	}
	return Effect{Name: "publish " + string(topic), Values: object(values)}
}

// ItemEffect returns the effect of an item that is begun.
func ItemEffect(id string) Effect {
	return Effect{Name: "item", Values: object(map[string]any{"id": id})}
}

// raw returns JSON that can be part of more; nothing is null.
func raw(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}

func object(v map[string]any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null") // of what no store and no script can hold
	}
	return b
}
