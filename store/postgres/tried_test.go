package postgres_test

import (
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// In a schema from before, runs that failed are linked with the event on which they
// began, and runs that a person ended with what they had.
func TestFailedRunsOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	openDB(t, url, postgres.Config{Host: true})
	exec(t, url, `DROP TABLE event_tried`)
	undoSince12(t, url)
	exec(t, url, `UPDATE meta SET value = '11' WHERE name IN ('keep_schema', 'keep_oldest')`)
	exec(t, url, `INSERT INTO lease (workflow, n) VALUES ('w', 9)`)
	exec(t, url, `INSERT INTO event (workflow, topic, n, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by) VALUES
		('w', 't', 1, 'a', 'consumed', 'run_2', '', 1, 1, '[]'),
		('w', 't', 2, 'b', 'pending', '', '', 1, 1, '[]'),
		('w', 't', 3, 'c', 'skipped', '', '', 1, 1, '[]')`)
	exec(t, url, `INSERT INTO run (n, id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
		mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at, reservations) VALUES
		(1, 'run_1', 'run_1', '', 'w', 1, 0, 'h', 'consumer', 'mutating', 'failed:logic', true, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, NULL),
		(2, 'run_2', 'run_2', 'run_1', 'w', 1, 0, 'h', 'consumer', 'committed', 'committed', true, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["a"]}]'),
		(3, 'run_3', 'run_3', '', 'w', 1, 0, 'h', 'consumer', 'prepared', 'aborted', true, 1, 't', 'c', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["b","c"]}]')`)
	db := openDB(t, url, postgres.Config{Host: true})
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
}
