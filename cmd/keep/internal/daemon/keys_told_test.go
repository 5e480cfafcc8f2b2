package daemon_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/sqlite"
)

// Each key that is unknown is told, also those that a page of newer ones hides.
func TestOldKeysAreTold(t *testing.T) {
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows strings.Builder
	const all = 1001 // more than a page
	for i := range all {
		fmt.Fprintf(&rows, `{"user_id":"u","key":"k%d","status":"in_progress","method":"POST","path":"/act","created_at":"2026-01-02T15:04:05Z"}`+"\n", i)
	}
	if n, err := idempotency.Import(t.Context(), db.Keys(), strings.NewReader(rows.String()), "X-User-Id", 100*365*24*time.Hour, time.Now()); err != nil || n.Added != all {
		t.Fatalf("%+v, %v", n, err)
	}
	list, err := daemon.UnknownKeys(db.Keys())(t.Context())
	if err != nil || len(list) != all {
		t.Errorf("told: %d keys, %v, want %d", len(list), err, all)
	}
}

// Law nothing-lost: a question about a call with much data, such as a mail with attachments, comes through: receivers take a
// megabyte, and refuse more at each attempt. One about a call with little data has all of it.
func TestLargeQuestionIsTold(t *testing.T) {
	for size, whole := range map[int]bool{1000: true, 3 << 20: false} {
		payload, err := json.Marshal(map[string]any{"to": "ada@example.com", "attachments": []any{map[string]any{"name": "a.pdf", "base64": strings.Repeat("QUJD", size/4)}}})
		if err != nil {
			t.Fatal(err)
		}
		q := keep.Escalation{ID: "esc_1", Kind: keep.AskApproval, Question: "May mail.send be made?", Attempted: "mail.send on ada@example.com with " + string(payload),
			Approval: &keep.Approval{Tool: "mail.send", Target: "ada@example.com", Payload: payload}, Choices: []keep.Choice{{Action: keep.Approve}}}
		text, err := daemon.Told(q)
		if err != nil {
			t.Fatal(err)
		}
		var told struct {
			ID, Question, Attempted string
			Payload                 any
			Actions                 []any
		}
		if err := json.Unmarshal(text, &told); err != nil || len(text) > 1<<20 || told.ID != "esc_1" || told.Question != q.Question || len(told.Actions) != 1 ||
			!strings.HasPrefix(told.Attempted, q.Attempted[:100]) || (told.Payload != nil) != whole || (told.Attempted == q.Attempted) != whole {
			t.Errorf("a question about %d bytes is told in %d: %.300s, %v", len(payload), len(text), text, err)
		}
	}
}
