package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// Of a file from before, runs that failed are linked with the event on which they
// began, and runs that a person ended with what they had.
func TestFailedRunsOfAnOlderFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	file, err := sql.Open("sqlite", path)
	must(t, err)
	run := func(script string) {
		t.Helper()
		if _, err := file.ExecContext(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	run(`PRAGMA application_id = ` + strconv.Itoa(0x4b454550))
	for i, name := range names[:11] {
		script, err := os.ReadFile(name)
		must(t, err)
		run(string(script) + `; PRAGMA user_version = ` + strconv.Itoa(i+1))
	}
	const runs = `INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
		mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at, reservations) VALUES `
	run(`INSERT INTO meta VALUES ('id', 'an id');
		INSERT INTO topic VALUES ('w', 't', 1, 1, 1);
		INSERT INTO event (workflow, topic, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by, payload) VALUES
			('w', 't', 'a', 'consumed', 'run_2', '', 1, 1, '[]', '{}'),
			('w', 't', 'b', 'pending', '', '', 1, 1, '[]', '{}'),
			('w', 't', 'c', 'skipped', '', '', 1, 1, '[]', '{}');` +
		runs + `('run_1', 'run_1', '', 'w', 1, 0, 'h', 'consumer', 'mutating', 'failed:logic', 1, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, NULL),
			('run_2', 'run_2', 'run_1', 'w', 1, 0, 'h', 'consumer', 'committed', 'committed', 1, 1, 't', 'a', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["a"]}]'),
			('run_3', 'run_3', '', 'w', 1, 0, 'h', 'consumer', 'prepared', 'aborted', 1, 1, 't', 'c', '', '', 0, 0, 0, 0, 0, 1, 1, '[{"topic":"t","ids":["b","c"]}]')`)
	must(t, file.Close())
	db := openDB(t, path, sqlite.Config{})
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
