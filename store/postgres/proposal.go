package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	proposalColumns = stored.Proposals.Columns("")
	scanProposal    = scanOf(stored.Proposals)

	insertProposal = insertInto("proposal", specOf(stored.Proposals), "")
	endProposal    = updateOf("proposal", `workflow text, major bigint, minor bigint`, `state text, ended_at bigint`)
)

// writeProposal writes a row of a plan: one that is new, or one whose wait ends.
func (t *tx) writeProposal(p *commit.Proposal) error {
	if p.New {
		return t.addProposal(*p.Put)
	}
	t.add(&endProposal, text(string(t.workflow)), int64(p.Version.Major), int64(p.Version.Minor), string(p.State), t.at)
	return nil
}

// addProposal adds a row.
func (t *tx) addProposal(p keep.Proposal) error {
	if err := write(&t.writes, &insertProposal, stored.Proposals, &p); err != nil {
		return fmt.Errorf("proposal %s: %w", p.ID(), err)
	}
	return nil
}

// proposalFacts reads those of each workflow.
const proposalFacts = `SELECT workflow, major, minor, state FROM proposal WHERE workflow = ANY($1)`

func (s *snapshot) scanProposal(row pgx.CollectableRow) error {
	var w keep.WorkflowName
	p := new(commit.Proposal)
	err := row.Scan(into(&w), &p.Version.Major, &p.Version.Minor, into(&p.State))
	s.Proposals.Put(commit.VersionKey{Workflow: w, Version: p.Version}, p)
	return err
}

// Proposal returns a version that waits or waited; see store.Proposals.
func (db *DB) Proposal(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Proposal, error) {
	return one(ctx, db, "version", string(w)+" "+v.String(), scanProposal, `
		SELECT `+proposalColumns+` FROM proposal WHERE workflow = $1 AND major = $2 AND minor = $3`, w, v.Major, v.Minor)
}

// Proposals returns those of a workflow; see store.Proposals.
func (db *DB) Proposals(ctx context.Context, w keep.WorkflowName) ([]keep.Proposal, error) {
	bare := `SELECT ` + stored.Proposals.Bare("", "NULL::bytea") + ` FROM proposal `
	if w == "" {
		return collect(ctx, db, scanProposal, bare+`ORDER BY workflow COLLATE "C" DESC, major DESC, minor DESC`)
	}
	return collect(ctx, db, scanProposal, bare+`WHERE workflow = $1 ORDER BY major DESC, minor DESC`, w)
}
