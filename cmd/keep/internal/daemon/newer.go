package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// isNewer reports whether the version that is current came after the one that sc has the text of, and
// from no file: who has not changed a file since does not want that taken back. keep deploy deploys it
// all the same.
func (s *Session) isNewer(ctx context.Context, e Env, sc project.Script) (bool, error) {
	w, err := s.DB.Workflow(ctx, sc.Name)
	if errors.Is(err, keep.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all, err := s.DB.Deployments(ctx, sc.Name)
	if err != nil {
		return false, err
	}
	has := func(d keep.Deployment) bool { return d.Hash == sc.Bundle.Hash() && d.Entry == sc.Bundle.Entry }
	if slices.ContainsFunc(all, func(d keep.Deployment) bool { return d.Version == w.Version && has(d) }) {
		return false, nil // whatever came in between
	}
	proposed, err := s.DB.Proposals(ctx, sc.Name)
	if err != nil {
		return false, err
	}
	// What was repaired came from where the first of its major number did.
	from := author(keep.Version{Major: w.Version.Major}, all, proposed)
	for _, d := range all {
		how := from
		if how == "" && w.Version.Minor > 0 && d.Version.Major == w.Version.Major {
			how = "repaired"
		}
		if how != "" && has(d) {
			e.Log.WarnContext(ctx, fmt.Sprintf("a file has the text of a version that was %s, and the later version continues", how),
				"workflow", sc.Name, "file", sc.File, "replaced", d.Version.String(), "current", w.Version.String(),
				"text", fmt.Sprintf("keep workflows show %s --source", sc.Name))
			return true, nil
		}
	}
	return false, nil
}

// author says what became of the version before one that no file needs to have; empty: from a file.
func author(v keep.Version, all []keep.Deployment, proposed []keep.Proposal) string {
	if slices.ContainsFunc(all, func(d keep.Deployment) bool { return d.Version == v && d.Definition.Writing.Pages }) {
		return "replaced on the pages"
	}
	i := slices.IndexFunc(proposed, func(p keep.Proposal) bool { return p.Version == v && p.State == keep.ProposalApproved })
	if i < 0 {
		return ""
	}
	return map[keep.Origin]string{keep.OriginEdit: "replaced by an edit", keep.OriginAgent: "replaced by an agent"}[proposed[i].Origin()]
}
