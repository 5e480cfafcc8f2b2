package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// Two jobs of a workflow do not share items: each has a name under which its items are
// kept, which is the first name that the job had. In ids that are stored it stands before
// the id that the script gave, but for the first job that the workflow ever had: most
// workflows have one job, and their ids are what scripts say.

// An itemSpace tells where the items of a version's jobs are.
type itemSpace struct {
	version keep.Version
	first   string               // whose items have bare ids
	others  []string             // of the version
	since   map[string]time.Time // when a version first kept the items of a job apart
}

// spaces returns where the items of the jobs of x's version are.
func (x *execution) spaces(ctx context.Context) (*itemSpace, error) {
	if s := x.a.items; s != nil && s.version == x.v.Version {
		return s, nil
	}
	all, err := x.e.store.Deployments(ctx, x.a.name)
	if err != nil {
		return nil, &storeError{err}
	}
	s := &itemSpace{version: x.v.Version, since: make(map[string]time.Time)}
	for _, d := range slices.Backward(all) { // oldest first
		for _, h := range d.Definition.Handlers {
			if h.Kind != keep.Job {
				continue
			}
			s.first = cmp.Or(s.first, h.ItemsOf())
			if _, ok := s.since[h.ItemsOf()]; !ok && h.Items != "" {
				s.since[h.ItemsOf()] = d.CreatedAt
			}
		}
	}
	for _, h := range x.v.Definition.Handlers {
		if h.Kind == keep.Job && h.ItemsOf() != s.first {
			s.others = append(s.others, h.ItemsOf())
		}
	}
	x.a.items = s
	return s, nil
}

// storedID returns the id under which the item of this job is stored that the script
// calls id.
func (h *scriptHost) storedID(ctx context.Context, id string, c HostCall) (string, error) {
	s, err := h.x.spaces(ctx)
	if err != nil {
		return "", err
	}
	of := h.x.def.ItemsOf()
	if of == s.first || s.first == "" {
		for _, other := range s.others {
			if rest, yes := keep.CutItemID(other, id); yes {
				return "", c.logicf("bad-item", "ctx.withItem(%q, title, handler): the item %q of the job %s is called so; give the id another beginning", id, rest, other)
			}
		}
		return id, nil
	}
	stored := keep.ItemID(of, id)
	if _, err := h.knownItem(ctx, stored); err == nil || !isNotFound(err) {
		return stored, wrapped(err)
	}
	old, err := h.knownItem(ctx, id)
	switch {
	case isNotFound(err):
		return stored, nil
	case err != nil:
		return "", wrapped(err)
	}
	// Before the jobs of a workflow had items of their own, they shared them: what this
	// job did for such an item is under the bare id.
	if mine, known, err := h.workedOn(ctx, id, of); err != nil {
		return "", err
	} else if known {
		if mine {
			return id, nil
		}
		return stored, nil
	}
	if since, ok := s.since[of]; !ok || old.CreatedAt.Before(since) {
		return id, nil // nothing says whose it is; it is not done again
	}
	return stored, nil
}

// wrapped returns an error of the store as one.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}

// workedOn reports whether a job made calls for an item, and whether there are calls by
// which that is known.
func (h *scriptHost) workedOn(ctx context.Context, item, of string) (mine, known bool, err error) {
	runs := make(map[keep.RunID]bool)
	for m, err := range store.All(ctx, h.x.e.store.Mutations, keep.MutationFilter{Workflow: h.x.a.name, Item: item}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return false, false, &storeError{err}
		}
		if runs[m.Run] {
			continue
		}
		runs[m.Run] = true
		r, err := h.x.e.store.Run(ctx, m.Run)
		switch {
		case isNotFound(err):
		case err != nil:
			return false, false, &storeError{err}
		case string(r.Handler) == of || r.Handler == h.x.run.Handler:
			return true, true, nil
		default:
			known = true
		}
	}
	return false, known, nil
}
