package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/keep-run/keep"
)

// What an open question is about, and its cause, as its CauseOf has it: r is its run, and m its call. An error is not read
// as JSON: Postgres cannot read a text with an escaped NUL. No text in it has the name of a field between quotes that are not escaped.
const (
	openQuestions = ` FROM escalation LEFT JOIN run r ON r.id = escalation.run LEFT JOIN mutation m ON m.key = escalation.mutation
		 WHERE escalation.closed_at = 0`
	toolOfQuestion = `coalesce(m.tool, nullif(substring(r.error FROM '"tool":"([^"]*)"'), ''), r.handler, '')`
	codeOfQuestion = `coalesce(nullif(` + codeOfRun + `, ''), ` + codeOfCall + `, '')`
	codeOfRun      = beforeCode + `r.error` + afterCode
	codeOfCall     = beforeCode + `m.error` + afterCode

	// The letters of a code in JSON are read as JSON, with a NUL as text stores it.
	beforeCode = `('"' || replace(replace(replace(substring(`
	afterCode  = ` FROM '"code":"((?:[^"\\]|\\.)*)"'), '\\', '\u005c'), '\u001a', '\u001a1a'), '\u0000', '\u001a00') || '"')::json #>> '{}'`
)

// QuestionGroups returns the open questions by their workflow and cause, that with the newest question first.
func (db *DB) QuestionGroups(ctx context.Context, limit int) ([]keep.QuestionGroup, error) {
	return collect(ctx, db, func(row pgx.CollectableRow) (g keep.QuestionGroup, err error) {
		err = row.Scan(into(&g.Workflow), into(&g.Kind), into(&g.Tool), into(&g.Code), &g.Count, into(&g.Newest))
		return g, err
	}, `-- of the open questions
		SELECT g.workflow, g.kind, g.tool, g.code, g.count, q.id FROM (
			SELECT escalation.workflow, escalation.kind, `+toolOfQuestion+` AS tool, `+codeOfQuestion+` AS code, count(*) AS count, max(escalation.n) AS newest`+openQuestions+`
			 GROUP BY 1, 2, 3, 4 ORDER BY newest DESC, 1 DESC LIMIT $1) g JOIN escalation q ON q.n = g.newest AND q.workflow = g.workflow ORDER BY q.n DESC, q.workflow DESC`, limit)
}

// QuestionsLike returns the open questions with a cause, newest first.
func (db *DB) QuestionsLike(ctx context.Context, w keep.WorkflowName, c keep.QuestionCause, pass, limit int) ([]keep.Escalation, error) {
	return collect(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+openQuestions+` AND escalation.kind = $1 AND ($2 = '' OR escalation.workflow = $2)
		   AND `+toolOfQuestion+` = $3 AND `+codeOfQuestion+` = $4 ORDER BY escalation.n DESC, escalation.workflow DESC LIMIT $6 OFFSET $5`,
		c.Kind, w, c.Tool, c.Code, pass, limit)
}

// QuestionsAbout returns the open questions about runs, newest first.
func (db *DB) QuestionsAbout(ctx context.Context, runs []keep.RunID) ([]keep.Escalation, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return collect(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+` FROM escalation WHERE run = ANY($1) AND run <> '' AND closed_at = 0 ORDER BY n DESC, workflow DESC`, texts(runs))
}

// Unasked returns the open runs but those of which there may be many that are asked about, newest first.
func (db *DB) Unasked(ctx context.Context, limit int) ([]keep.Run, error) {
	return collect(ctx, db, scanRun, `-- of the open questions
		SELECT `+bareRuns+` FROM run WHERE NOT closed AND (lane = '' OR kind <> 'consumer'
		    OR NOT EXISTS (SELECT 1 FROM escalation WHERE escalation.run = run.id AND escalation.closed_at = 0)) ORDER BY n DESC, workflow DESC LIMIT $1`, limit)
}

// QuestionsByID returns questions, newest first.
func (db *DB) QuestionsByID(ctx context.Context, ids []keep.EscalationID) ([]keep.Escalation, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return collect(ctx, db, scanEscalation, `-- of the open questions
		SELECT `+escalationColumns+` FROM escalation WHERE id = ANY($1) ORDER BY n DESC, workflow DESC`, texts(ids))
}

// OpenOf returns the open run of each chain, newest first.
func (db *DB) OpenOf(ctx context.Context, chains []keep.RunID) ([]keep.Run, error) {
	if len(chains) == 0 {
		return nil, nil
	}
	return collect(ctx, db, scanRun, `-- of the open questions
		SELECT `+bareRuns+` FROM run WHERE NOT closed AND id IN (
			SELECT id FROM run WHERE id = ANY($1) AND chain = id
			UNION ALL SELECT id FROM run WHERE chain = ANY($1) AND chain <> id AND NOT closed) ORDER BY n DESC, workflow DESC`, texts(chains))
}
