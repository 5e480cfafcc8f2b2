package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// Law bounded: a page in full has no more of payloads than a host has memory for, whatever limit is asked for; the cursor
// continues behind what it has.
func TestFullPagesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	const n, size = 14, 1 << 20
	payload := json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
	for i := range n {
		e := fullEvent
		e.MessageID, e.Payload, e.ReservedBy, e.Seq = keep.MessageID(fmt.Sprintf("large%d", i)), payload, "", 0
		w.commit(keep.Publish{Event: e})
	}
	seen, pages := map[keep.MessageID]bool{}, 0
	for cursor := ""; ; pages++ {
		var p struct {
			Items []struct {
				ID      keep.MessageID `json:"message_id"`
				Payload string         `json:"payload"`
			} `json:"items"`
			Next *string `json:"next"`
		}
		a := w.ask("vera viewer", "GET", api.Prefix+"/workflows/invoices/events?full=true&limit=1000&cursor="+url.QueryEscape(cursor), "")
		if len(a.Body) > 12*size {
			t.Fatalf("a page has %d MiB (law: bounded)", len(a.Body)>>20)
		}
		if err := json.Unmarshal([]byte(strings.Replace(a.Body, `"payload":{`, `"payload":"","x":{`, 2)), &p); err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Items {
			if seen[e.ID] {
				t.Errorf("event %s is on two pages", e.ID)
			}
			seen[e.ID] = true
		}
		if p.Next == nil {
			break
		}
		cursor = *p.Next
	}
	if len(seen) != n+2 || pages < 1 {
		t.Errorf("%d events on %d pages, want %d on several", len(seen), pages+1, n+2)
	}
}
