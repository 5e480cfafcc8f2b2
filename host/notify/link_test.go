//go:build unix

package notify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store/memory"
)

// A message has the link to its question, the same in each attempt, and none if links do not
// answer the question.
func TestMessageHasALink(t *testing.T) {
	db := memory.New()
	now := time.Now()
	for _, q := range []keep.Escalation{
		{ID: "esc_1", Kind: keep.AskLogic, Run: "run_1", Choices: []keep.Choice{{Action: keep.Retry}}},
		{ID: "esc_2", Kind: keep.AskGrant, Choices: []keep.Choice{{Action: keep.Approve}}},
	} {
		q.Workflow, q.CreatedAt = "w", now
		if err := db.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{keep.OpenEscalation{Escalation: q}}}); err != nil {
			t.Fatal(err)
		}
	}
	to := newTarget(errors.New("not now"))
	n, err := notify.New(notify.Config{Store: db, Targets: []notify.Target{to}, Links: link.New(db, "https://keep.example.com/", []keep.Sink{"test"}),
		Encode: func(q keep.Escalation) (json.RawMessage, error) { return json.Marshal(q.ID) },
		Retry:  policy.Backoff{First: 1, Max: 1, Attempts: 5}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.Flush(t.Context())
	}
	links := map[string]map[string]bool{}
	for _, m := range to.messages {
		var body struct{ Data, Link string }
		if err := json.Unmarshal(m.Body, &body); err != nil {
			t.Fatal(err)
		}
		if links[body.Data] == nil {
			links[body.Data] = map[string]bool{}
		}
		links[body.Data][body.Link] = true
		if m.Code != "" && !strings.HasSuffix(body.Link, "?code="+m.Code) {
			t.Errorf("the code %s is not that of %s", m.Code, body.Link)
		}
	}
	if len(to.messages) < 3 || len(links["esc_1"]) != 1 || len(links["esc_2"]) != 1 || !links["esc_2"][""] {
		t.Errorf("%d messages have the links %v", len(to.messages), links)
	}
	for l := range links["esc_1"] {
		if !strings.HasPrefix(l, "https://keep.example.com/decide/esc_1?code=") {
			t.Errorf("the link is %s", l)
		}
	}
}

// A program that prints its input puts no code into the log, nor into what is recorded of it,
// wherever its output is cut.
func TestCodeIsNotLogged(t *testing.T) {
	const code = "abcdefghijklmnopqrstuvwxyz234567"
	for _, before := range []int{0, 4<<10 - 40, 4<<10 - 31, 4<<10 - 7, 4<<10 - 1} {
		for _, status := range []string{"0", "1"} {
			var log bytes.Buffer
			c, _ := command(t, "cat; exit "+status, &log)
			err := c.Deliver(t.Context(), notify.Message{ID: "esc_1", Code: code, Body: []byte(strings.Repeat("-", before) + code + " " + code)})
			text := log.String()
			if err != nil {
				text += err.Error()
			}
			if strings.Contains(text, code[:4]) || (err != nil) != (status == "1") {
				t.Errorf("after %d bytes and status %s: %v, the log has a code", before, status, err)
			}
		}
	}
}
