package trace_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/keep-run/keep/law/trace"
)

// What a call returned is shown with the call alone; a read of the same tool, whose result was stored before,
// stays.
func TestShown(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	begins := trace.Entry{What: trace.Read, Tool: "item.begin", Params: json.RawMessage(`["row:7","Seven"]`), At: at}
	call := trace.Entry{What: trace.Call, Tool: "svc.send", At: at.Add(2 * time.Millisecond), MS: 3}
	around := trace.Entry{What: trace.Read, Tool: "svc.send", At: at.Add(time.Millisecond), MS: 5}
	other := trace.Entry{What: trace.Read, Tool: "svc.list", At: at.Add(time.Millisecond), MS: 5}
	stored := trace.Entry{What: trace.Read, Tool: "svc.send", At: at.Add(time.Second), MS: 5}
	got := trace.Shown([]trace.Entry{begins, call, around, other, stored})
	if len(got) != 4 || got[1].What != trace.Call || got[2].Tool != "svc.list" || !got[3].At.Equal(stored.At) {
		t.Errorf("shown are %+v", got)
	}
	if id, ok := trace.ItemOf(begins.Tool, begins.Params); id != "row:7" || !ok {
		t.Errorf("it begins the item %q (%t)", id, ok)
	}
	for _, params := range []string{"", "[]", "[7]", `"row:7"`} {
		if id, ok := trace.ItemOf("item.begin", json.RawMessage(params)); ok {
			t.Errorf("%s begins the item %q", params, id)
		}
	}
}
