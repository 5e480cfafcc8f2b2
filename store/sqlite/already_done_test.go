package sqlite_test

import (
	"testing"

	"github.com/keep-run/keep"
)

// Questions of a file from before keep their order, what was answered, and who was told
// of them, although their table is made anew.
func TestQuestionsOfAnOlderFile(t *testing.T) {
	db := openOlder(t, 15, `
		INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
			mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at) VALUES
			('run_1', 'run_1', '', 'w', 1, 0, 'h', 'consumer', 'prepared', 'failed:logic', 0, 1, '', '', '', '', 0, 0, 0, 0, 0, 1, 1);
		INSERT INTO escalation (n, id, kind, workflow, run, mutation, item, title, question, attempted, why, can_verify, verify_by_hand, payload_hash, created_at,
			closed_at, decision, decided_by, decided_at) VALUES
			(3, 'esc_a', 'logic', 'w', 'run_1', '', '', '', 'First?', '', '', 0, '', '', 1, 2, 'retry', 'ann', 2),
			(9, 'esc_b', 'logic', 'w', 'run_1', '', '', '', 'Second?', '', '', 0, '', '', 3, 0, '', '', 0);
		INSERT INTO notice VALUES (3, 'mail', 'moot', 1, 0, '', 2, 1), (9, 'mail', 'delivered', 1, 0, '', 3, 1)`)
	list, _, err := db.Escalations(t.Context(), keep.EscalationFilter{Workflow: "w"}, keep.Page{})
	must(t, err)
	got := ""
	for _, q := range list {
		got += string(q.ID) + " " + q.Question + " "
		if q.Decision != nil {
			got += string(q.Decision.Action) + " by " + q.Decision.By + " "
		}
	}
	if want := "esc_b Second? esc_a First? retry by ann "; got != want {
		t.Errorf("questions are %q, want %q", got, want)
	}
	var told int
	must(t, db.Scan(t.Context(), `SELECT count(*) FROM notice JOIN escalation ON n = escalation WHERE sink = 'mail'
		AND (n = 3 AND id = 'esc_a' OR n = 9 AND id = 'esc_b')`, &told))
	if told != 2 {
		t.Errorf("%d notices are of these questions, want 2", told)
	}
	clean(t, db)
}
