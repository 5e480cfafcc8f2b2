package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/store"
)

// atOnce notes how many questions were read at once: each has its payload.
type atOnce struct {
	store.Reader
	most int
}

func (a *atOnce) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	qs, next, err := a.Reader.Escalations(ctx, f, p)
	a.most = max(a.most, len(qs))
	return qs, next, err
}

// What lists questions, and leaves their payloads out, holds the payloads of a few at a time: those of a thousand would be more than a
// host has memory for.
func TestListsHoldFewPayloads(t *testing.T) {
	db := &atOnce{}
	w := newWorld(t, func(c *api.Config) { db.Reader, c.Store = c.Store, db })
	const n = 230
	for i := range n {
		q := fullEscalation
		q.ID, q.Run, q.Mutation, q.Item, q.Decision, q.Choices = keep.EscalationID(fmt.Sprintf("esc_x%03d", i)), "", "", "", nil, nil
		q.ClosedAt, q.Title = time.Time{}, "Word"
		w.commit(keep.OpenEscalation{Escalation: q})
	}
	for _, path := range []string{"/escalations?limit=1000", "/escalations?limit=1000&full=true&q=word", "/escalations/counts?q=word", "/status"} {
		db.most = 0
		a := w.ask("ann viewer", "GET", api.Prefix+path, "")
		a.want(t, 200)
		if db.most == 0 || db.most > 100 {
			t.Errorf("%s: %d questions were read at once, want 100 at most", path, db.most)
		}
		if strings.HasPrefix(path, "/escalations?") {
			var page struct{ Items []struct{ ID string } }
			if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Items) < n {
				t.Fatalf("%s: %d questions, %v", path, len(page.Items), err)
			}
			for i, it := range page.Items[:n] {
				if want := fmt.Sprintf("esc_x%03d", n-1-i); it.ID != want {
					t.Fatalf("%s: question %d is %s, want %s", path, i, it.ID, want)
				}
			}
		}
	}
}
