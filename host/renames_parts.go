package host

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/rename"
)

// parts adds to s what the law must know of the jobs, topics and producers of a workflow whose version
// in force is d. What a script leaves as it is costs no read.
func (r renames) parts(ctx context.Context, d keep.Deployment, w rename.Written, s *rename.Stored) (err error) {
	if s.Jobs, s.Ran, err = r.jobs(ctx, d, w); err != nil {
		return err
	}
	if s.Events, err = r.events(ctx, d, w); err != nil {
		return err
	}
	s.Checkpoints, err = r.checkpoints(ctx, d, w)
	return err
}

// jobs returns the names of the items of the jobs of a workflow that ever ran, and of its
// handlers that did; none if every job of the script is one of the current version, or if
// there are no items.
func (r renames) jobs(ctx context.Context, d keep.Deployment, w rename.Written) (jobs, ran []keep.HandlerName, err error) {
	if !appears(d, w, keep.Job) {
		return nil, nil, nil
	}
	if some, err := r.hasItems(ctx, d.Workflow); !some || err != nil {
		return nil, nil, err
	}
	return r.first(ctx, d, keep.Job)
}

// events returns the topics that ever had an event; none if every topic of the script is one of the
// current version.
func (r renames) events(ctx context.Context, d keep.Deployment, w rename.Written) (topics []keep.TopicName, err error) {
	if !slices.ContainsFunc(w.Topics, func(t keep.TopicName) bool { return !d.Definition.HasTopic(t) }) {
		return nil, nil
	}
	counts, err := r.db.TopicCounts(ctx, d.Workflow)
	for _, c := range counts {
		if c.Pending+c.Reserved+c.Consumed+c.Skipped > 0 {
			topics = append(topics, c.Topic)
		}
	}
	return topics, err
}

// checkpoints returns the names of the checkpoints that have something in them; none if every producer
// of the script is one of the current version.
func (r renames) checkpoints(ctx context.Context, d keep.Deployment, w rename.Written) (names []keep.HandlerName, err error) {
	if !appears(d, w, keep.Producer) {
		return nil, nil
	}
	all, _, err := r.first(ctx, d, keep.Producer)
	if err != nil {
		return nil, err
	}
	for _, h := range d.Definition.Handlers { // a person may have set one before the first run
		if h.Kind == keep.Producer {
			all = append(all, keep.HandlerName(h.ItemsOf()))
		}
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		size, err := r.db.KVSize(ctx, d.Workflow, name)
		if err != nil {
			return nil, err
		}
		if size > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// appears reports whether a script has a handler of a kind that the current version does not have.
func appears(d keep.Deployment, w rename.Written, kind keep.Kind) bool {
	return slices.ContainsFunc(w.Handlers, func(h keep.Handler) bool {
		old, ok := d.Definition.Handler(h.Name)
		return h.Kind == kind && !(ok && old.Kind == kind && old.ItemsOf() == h.ItemsOf())
	})
}

// first returns the handlers of a kind that ever ran, and the names under which what they did is kept.
func (r renames) first(ctx context.Context, d keep.Deployment, kind keep.Kind) (kept, ran []keep.HandlerName, err error) {
	states, err := r.db.Handlers(ctx, d.Workflow)
	if err != nil {
		return nil, nil, err
	}
	all, err := r.db.Deployments(ctx, d.Workflow)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range states {
		if s.Kind != kind || s.LastRun == "" {
			continue
		}
		ran = append(ran, s.Handler)
		of := s.Handler
		for _, v := range all { // newest first
			if h, ok := v.Definition.Handler(s.Handler); ok && h.Kind == kind {
				of = keep.HandlerName(h.ItemsOf())
				break
			}
		}
		kept = append(kept, of)
	}
	return kept, ran, nil
}
