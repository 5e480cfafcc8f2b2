package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	proposalColumns = stored.Proposals.Columns("")
	scanProposal    = scanOf(stored.Proposals)
	insertProposal  = stored.Proposals.Insert("proposal", "?")
)

// writeProposal writes a row of a plan: one that is new, or one whose wait ends.
func (t *tx) writeProposal(p *commit.Proposal) error {
	if p.New {
		return t.addProposal(*p.Put)
	}
	n, err := t.exec(`
		UPDATE proposal SET state = ?1, ended_at = ?2
		 WHERE workflow = ?3 AND major = ?4 AND minor = ?5 AND state = ?6`,
		p.State, t.at, t.workflow, p.Version.Major, p.Version.Minor, keep.ProposalWaiting)
	return written("proposal", p.Version.String(), n, err)
}

// addProposal adds a row.
func (t *tx) addProposal(p keep.Proposal) error {
	_, _, err := write(t.conn, insertProposal, stored.Proposals, &p)
	if isUnique(err) {
		err = errUnexpected
	}
	if err != nil {
		return fmt.Errorf("proposal %s: %w", p.ID(), err)
	}
	return nil
}

// readProposals reads those of the workflow.
func (t *tx) readProposals(s *commit.Snapshot) error {
	return t.each(`SELECT major, minor, state FROM proposal WHERE workflow = ?`,
		[]any{t.workflow}, func(row []driver.Value) error {
			v := keep.Version{Major: number(row[0]), Minor: number(row[1])}
			s.Proposals.Put(commit.VersionKey{Workflow: t.workflow, Version: v}, &commit.Proposal{Version: v, State: name[keep.ProposalState](row[2])})
			return nil
		})
}

// Proposal returns a version that waits or waited; see store.Proposals.
func (db *DB) Proposal(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Proposal, error) {
	return one(ctx, db, "version", string(w)+" "+v.String(), scanProposal, `
		SELECT `+proposalColumns+` FROM proposal WHERE workflow = ? AND major = ? AND minor = ?`, w, v.Major, v.Minor)
}

// Proposals returns those of a workflow; see store.Proposals.
func (db *DB) Proposals(ctx context.Context, w keep.WorkflowName) ([]keep.Proposal, error) {
	bare := `SELECT ` + stored.Proposals.Bare("", "NULL") + ` FROM proposal `
	if w == "" {
		return rows(ctx, db, scanProposal, bare+`ORDER BY workflow DESC, major DESC, minor DESC`)
	}
	return rows(ctx, db, scanProposal, bare+`WHERE workflow = ? ORDER BY major DESC, minor DESC`, w)
}
