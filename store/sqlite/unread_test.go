package sqlite_test

import (
	"testing"

	"github.com/keep-run/keep"
)

// Of a file from before, free events in a topic to which no consumer of the current version
// subscribes keep no input waiting any more; what is read, reserved or of a workflow
// without a version counts as before.
func TestUnreadTopicsOfAnOlderFile(t *testing.T) {
	db := openOlder(t, 12, `
		INSERT INTO workflow (name, major, minor, paused, created_at, updated_at) VALUES ('w', 2, 0, 0, 1, 1);
		INSERT INTO deployment (workflow, major, minor, hash, entry, definition, created_at, code, map) VALUES
			('w', 1, 0, 'h', 'e', '{"name":"w","topics":["t","u"],"handlers":[{"name":"c","kind":"consumer","subscribe":["t","u"]}]}', 1, x'', x''),
			('w', 2, 0, 'h', 'e', '{"name":"w","topics":["t","u"],"handlers":[{"name":"c","kind":"consumer","subscribe":["t"]},{"name":"p","kind":"producer"}]}', 1, x'', x'');
		INSERT INTO topic (workflow, name, pending) VALUES ('w', 't', 1), ('w', 'u', 3), ('bare', 't', 1);
		INSERT INTO input (id, workflow, source, type, external_id, title, status, unfinished, created_at) VALUES
			('in_unread', 'w', 's', 't', '1', '', 'pending', 1, 1), ('in_both', 'w', 's', 't', '2', '', 'pending', 2, 1),
			('in_held', 'w', 's', 't', '3', '', 'pending', 1, 1), ('in_skipped', 'w', 's', 't', '4', '', 'skipped', 1, 1),
			('in_bare', 'bare', 's', 't', '5', '', 'pending', 1, 1);
		INSERT INTO event (seq, workflow, topic, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by, payload) VALUES
			(1, 'w', 'u', 'a', 'pending', '', '', 1, 1, '["in_unread","in_both"]', '{}'),
			(2, 'w', 't', 'b', 'pending', '', '', 1, 1, '["in_both"]', '{}'),
			(3, 'w', 'u', 'c', 'pending', 'run_1', '', 1, 1, '["in_held"]', '{}'),
			(4, 'w', 'u', 'd', 'pending', '', '', 1, 1, '["in_skipped"]', '{}'),
			(5, 'bare', 't', 'e', 'pending', '', '', 1, 1, '["in_bare"]', '{}');
		INSERT INTO event_cause (input, event) VALUES ('in_unread', 1), ('in_both', 1), ('in_both', 2), ('in_held', 3), ('in_skipped', 4), ('in_bare', 5);
		INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
			mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at, reservations) VALUES
			('run_1', 'run_1', '', 'w', 1, 0, 'c', 'consumer', 'prepared', 'paused:transient', 0, 1, 'u', 'c', '', '', 0, 0, 9, 0, 0, 1, 1, '[{"topic":"u","ids":["c"]}]')`)
	for id, want := range map[keep.InputID]keep.InputStatus{"in_unread": keep.InputDone, "in_both": keep.InputPending,
		"in_held": keep.InputPending, "in_skipped": keep.InputSkipped, "in_bare": keep.InputPending} {
		in, err := db.Input(t.Context(), id)
		if err != nil || in.Status != want {
			t.Errorf("%s is %s, %v, want %s", id, in.Status, err, want)
		}
	}
	clean(t, db)
}
