package sqlite_test

import (
	"testing"

	"github.com/keep-run/keep"
)

// Of a file from before, runs that failed are linked with the event on which they
// began, and runs that a person ended with what they had.
func TestFailedRunsOfAnOlderFile(t *testing.T) {
	const runs = `INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
		mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at, reservations) VALUES `
	db := openOlder(t, 11, `
		INSERT INTO topic VALUES ('w', 't', 1, 1, 1);
		INSERT INTO event (workflow, topic, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by, payload) VALUES
			('w', 't', 'a', 'consumed', 'run_2', '', 1, 1, '[]', '{}'),
			('w', 't', 'b', 'pending', '', '', 1, 1, '[]', '{}'),
			('w', 't', 'c', 'skipped', '', '', 1, 1, '[]', '{}');`+
		runs+`('run_1', 'run_1', '', 'w', 1, 0, 'h', 'consumer', 'mutating', 'failed:logic', 1, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, NULL),
			('run_2', 'run_2', 'run_1', 'w', 1, 0, 'h', 'consumer', 'committed', 'committed', 1, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["a"]}]'),
			('run_3', 'run_3', '', 'w', 1, 0, 'h', 'consumer', 'prepared', 'aborted', 1, 1, 't', 'c', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["b","c"]}]')`)
	for id, want := range map[keep.MessageID]string{"a": "run_2 run_1 ", "b": "run_3 ", "c": "run_3 "} {
		list, err := db.RunsOfEvent(t.Context(), "w", "t", id, 10)
		got := ""
		for _, r := range list {
			got += string(r.ID) + " "
		}
		if err != nil || got != want {
			t.Errorf("event %s has the runs %q, %v, want %q", id, got, err, want)
		}
	}
	clean(t, db)
}
