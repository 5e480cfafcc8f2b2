package engine

import (
	"testing"

	"github.com/keep-run/keep"
)

// What an actor read ahead follows its own commits.
func TestForget(t *testing.T) {
	queue := func(topic keep.TopicName, ids ...keep.MessageID) ahead {
		var q ahead
		for i, id := range ids {
			q.events = append(q.events, keep.Event{Topic: topic, MessageID: id, Seq: int64(i + 1)})
		}
		q.newest = int64(len(ids))
		return q
	}
	reserve := func(topic keep.TopicName, ids ...keep.MessageID) keep.Change {
		return keep.Reserve{Chain: "r", Reservation: keep.Reservation{Topic: topic, IDs: ids}}
	}
	for _, c := range []struct {
		name   string
		change keep.Change
		want   string // the oldest of a in topic t and of b in topic u
	}{
		{"the next event", reserve("t", "1"), "2 1"},
		{"another event", reserve("t", "2"), "- 1"},
		{"two events", reserve("t", "1", "2"), "- 1"},
		{"an event of another topic", reserve("v", "1"), "1 1"},
		{"the last event", reserve("u", "1"), "1 -"},
		{"a new event", keep.Publish{Event: keep.Event{Topic: "t"}}, "- 1"},
		{"events given back", keep.Release{}, "- -"},
		{"what concerns no event", keep.SetPaused{}, "1 1"},
	} {
		a := &actor{ahead: map[keep.HandlerName]ahead{"a": queue("t", "1", "2", "3"), "b": queue("u", "1")}}
		a.forget([]keep.Change{c.change})
		got := ""
		for i, name := range []keep.HandlerName{"a", "b"} {
			if i > 0 {
				got += " "
			}
			if q, ok := a.ahead[name]; ok {
				got += string(q.events[0].MessageID)
			} else {
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%s: the oldest are %s, want %s", c.name, got, c.want)
		}
	}
}
