package sqlite

import (
	"context"
	"encoding/json"

	"github.com/keep-run/keep"
)

// What an open question e is about, and its cause, as its CauseOf has it: r is its run, and m its call.
const (
	openQuestions = ` FROM escalation e INDEXED BY escalation_open LEFT JOIN run r ON r.id = e.run LEFT JOIN mutation m ON m.key = e.mutation
		 WHERE e.closed_at = 0`
	toolOfQuestion = `coalesce(m.tool, nullif(json_extract(r.error, '$.tool'), ''), r.handler, '')`
	codeOfQuestion = `coalesce(nullif(json_extract(r.error, '$.code'), ''), json_extract(m.error, '$.code'), '')`
)

// QuestionGroups returns the open questions by their workflow and cause, that with the newest question first.
func (db *DB) QuestionGroups(ctx context.Context, limit int) ([]keep.QuestionGroup, error) {
	return rows(ctx, db, func(row scanner) (g keep.QuestionGroup, err error) {
		err = row.Scan(&g.Workflow, &g.Kind, &g.Tool, &g.Code, &g.Count, &g.Newest)
		return g, err
	}, `-- of the open questions
		SELECT g.workflow, g.kind, g.tool, g.code, g.count, q.id FROM (
			SELECT e.workflow, e.kind, `+toolOfQuestion+` AS tool, `+codeOfQuestion+` AS code, count(*) AS count, max(e.n) AS newest`+openQuestions+`
			 GROUP BY 1, 2, 3, 4 ORDER BY newest DESC LIMIT ?) g CROSS JOIN escalation q ON q.n = g.newest ORDER BY q.n DESC`, limit)
}

// QuestionsLike returns the open questions with a cause, newest first.
func (db *DB) QuestionsLike(ctx context.Context, w keep.WorkflowName, c keep.QuestionCause, pass, limit int) ([]keep.Escalation, error) {
	return rows(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+` FROM (
			SELECT e.n AS number`+openQuestions+` AND e.kind = ?1 AND (?2 = '' OR e.workflow = ?2) AND `+toolOfQuestion+` = ?3 AND `+codeOfQuestion+` = ?4
			 ORDER BY e.n DESC LIMIT ?6 OFFSET ?5) CROSS JOIN escalation ON n = number ORDER BY n DESC`,
		c.Kind, w, c.Tool, c.Code, pass, limit)
}

// QuestionsAbout returns the open questions about runs, newest first.
func (db *DB) QuestionsAbout(ctx context.Context, runs []keep.RunID) ([]keep.Escalation, error) {
	ids, err := json.Marshal(runs)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return rows(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+` FROM (SELECT DISTINCT value FROM json_each(?)) CROSS JOIN escalation INDEXED BY escalation_by_run ON run = value
		 WHERE value <> '' AND closed_at = 0 ORDER BY n DESC`, string(ids))
}

// Unasked returns the open runs but those of which there may be many that are asked about, newest first.
func (db *DB) Unasked(ctx context.Context, limit int) ([]keep.Run, error) {
	return rows(ctx, db, scanRun, `-- of the open questions
		SELECT `+bareRuns+` FROM (
			SELECT r.n AS number FROM run r INDEXED BY run_open WHERE closed = 0 AND (lane = '' OR r.kind <> 'consumer'
			    OR id NOT IN (SELECT run FROM escalation INDEXED BY escalation_open WHERE closed_at = 0))
			 ORDER BY r.n DESC LIMIT ?) CROSS JOIN run ON n = number ORDER BY n DESC`, limit)
}

// QuestionsByID returns questions, newest first.
func (db *DB) QuestionsByID(ctx context.Context, ids []keep.EscalationID) ([]keep.Escalation, error) {
	names, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return rows(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+` FROM (SELECT DISTINCT value FROM json_each(?)) CROSS JOIN escalation ON id = value ORDER BY n DESC`, string(names))
}

// OpenOf returns the open run of each chain, newest first.
func (db *DB) OpenOf(ctx context.Context, chains []keep.RunID) ([]keep.Run, error) {
	ids, err := json.Marshal(chains)
	if err != nil || len(chains) == 0 {
		return nil, err
	}
	return rows(ctx, db, scanRun, `-- of the open questions
		WITH wanted AS (SELECT DISTINCT value AS name FROM json_each(?))
		SELECT `+bareRuns+` FROM (
			SELECT run.n AS number FROM wanted CROSS JOIN run ON run.id = name AND run.chain = name AND run.closed = 0
			UNION ALL
			SELECT run.n FROM wanted CROSS JOIN run INDEXED BY run_by_chain ON run.chain = name AND run.chain <> run.id AND run.closed = 0)
		 CROSS JOIN run ON n = number ORDER BY n DESC`, string(ids))
}
