package postgres_test

import (
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// In a schema from before, free events in a topic to which no consumer of the current version
// subscribes keep no input waiting any more; what is read, reserved or of a workflow
// without a version counts as before.
func TestUnreadTopicsOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	openDB(t, url, postgres.Config{Host: true})
	undoSince12(t, url)
	exec(t, url, `UPDATE meta SET value = '12' WHERE name IN ('keep_schema', 'keep_oldest')`)
	exec(t, url, `INSERT INTO lease (workflow, n) VALUES ('w', 9), ('bare', 9)`)
	exec(t, url, `INSERT INTO workflow (name, major, minor, created_at, updated_at) VALUES ('w', 2, 0, 1, 1)`)
	exec(t, url, `INSERT INTO deployment (workflow, major, minor, n, hash, entry, definition, created_at) VALUES
		('w', 1, 0, 1, 'h', 'e', '{"name":"w","topics":["t","u"],"handlers":[{"name":"c","kind":"consumer","subscribe":["t","u"]}]}', 1),
		('w', 2, 0, 2, 'h', 'e', '{"name":"w","topics":["t","u"],"handlers":[{"name":"c","kind":"consumer","subscribe":["t"]},{"name":"p","kind":"producer"}]}', 1)`)
	exec(t, url, `INSERT INTO topic (workflow, name, pending) VALUES ('w', 't', 1), ('w', 'u', 3), ('bare', 't', 1)`)
	exec(t, url, `INSERT INTO input (id, workflow, source, type, external_id, n, title, status, unfinished, created_at) VALUES
		('in_unread', 'w', 's', 't', '1', 1, '', 'pending', 1, 1), ('in_both', 'w', 's', 't', '2', 2, '', 'pending', 2, 1),
		('in_held', 'w', 's', 't', '3', 3, '', 'pending', 1, 1), ('in_skipped', 'w', 's', 't', '4', 4, '', 'skipped', 1, 1),
		('in_bare', 'bare', 's', 't', '5', 5, '', 'pending', 1, 1)`)
	exec(t, url, `INSERT INTO event (workflow, topic, n, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by) VALUES
		('w', 'u', 1, 'a', 'pending', '', '', 1, 1, '["in_unread","in_both"]'),
		('w', 't', 2, 'b', 'pending', '', '', 1, 1, '["in_both"]'),
		('w', 'u', 3, 'c', 'pending', 'run_1', '', 1, 1, '["in_held"]'),
		('w', 'u', 4, 'd', 'pending', '', '', 1, 1, '["in_skipped"]'),
		('bare', 't', 5, 'e', 'pending', '', '', 1, 1, '["in_bare"]')`)
	db := openDB(t, url, postgres.Config{Host: true})
	for id, want := range map[keep.InputID]keep.InputStatus{"in_unread": keep.InputDone, "in_both": keep.InputPending,
		"in_held": keep.InputPending, "in_skipped": keep.InputSkipped, "in_bare": keep.InputPending} {
		in, err := db.Input(t.Context(), id)
		if err != nil || in.Status != want {
			t.Errorf("%s is %s, %v, want %s", id, in.Status, err, want)
		}
	}
}

// undoSince12 takes away what the migrations since the twelfth made.
func undoSince12(t *testing.T, url string) {
	exec(t, url, `ALTER TABLE topic DROP COLUMN unread`)
	exec(t, url, `DROP TABLE hook`)
	exec(t, url, `DROP TABLE account`)
	exec(t, url, `DROP TABLE gate`)
	exec(t, url, `ALTER TABLE escalation DROP COLUMN connection`)
	exec(t, url, `ALTER TABLE escalation DROP COLUMN approval, DROP COLUMN expires_at`)
	exec(t, url, `ALTER TABLE escalation DROP COLUMN budget, DROP COLUMN decided_result`)
	exec(t, url, `ALTER TABLE mutation DROP COLUMN spent_at`)
	exec(t, url, `ALTER TABLE mutation DROP COLUMN spent, DROP COLUMN summed_at`)
	exec(t, url, `DROP TABLE spent_sum`)
	exec(t, url, `DROP TABLE run_trace`)
	exec(t, url, `ALTER TABLE event DROP COLUMN redone`)
	exec(t, url, `DROP TABLE repair`)
	exec(t, url, `DROP TABLE granted`)
	exec(t, url, `DROP TABLE proposal`)
	exec(t, url, `ALTER TABLE workflow DROP COLUMN granted, DROP COLUMN pause_note`)
	exec(t, url, `ALTER TABLE run DROP COLUMN lane`)
	exec(t, url, `CREATE UNIQUE INDEX run_open ON run (workflow) WHERE NOT closed`)
	exec(t, url, `DROP INDEX mutation_by_identity`)
	exec(t, url, `DROP INDEX mutation_failed_after_doubt`)
	exec(t, url, `ALTER TABLE host DROP COLUMN connections, DROP COLUMN in_go`)
	exec(t, url, `ALTER TABLE lease DROP COLUMN commits, DROP COLUMN decided`)
	exec(t, url, `ALTER TABLE item DROP COLUMN swept`)
	exec(t, url, `DROP TABLE counter`)
	exec(t, url, `DROP INDEX run_by_end`)
	exec(t, url, `DROP INDEX run_failed`)
	exec(t, url, `DROP TABLE decision`)
	exec(t, url, `DROP INDEX escalation_by_item`)
	exec(t, url, `DROP INDEX mutation_item_doubt`)
	exec(t, url, `DROP INDEX escalation_said_done`)
	exec(t, url, `ALTER TABLE run DROP COLUMN idle`)
}
