package rename

import (
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// Says reports whether a script says of anything what it was.
func Says(w keep.Definition) bool { return w.Was != "" || len(called(w)) > 0 }

// Follow returns what a script declares as a database continues it: the workflow, and its topics, jobs and producers
// that say what they were, by the first names that these had. A name in between will do, and so it does for one that
// gets its first name back. Current are the versions in force. The error is a [Doubt]: a workflow says that it was
// another one, and it may have been one of two, or one of which the records do not say what it was called since.
func Follow(current []keep.Deployment, w keep.Definition) (keep.Definition, error) {
	script := w.Name
	first, err := firstOf(current, w)
	if err != nil {
		return w, err
	}
	w.Name = first
	i := slices.IndexFunc(current, func(d keep.Deployment) bool { return d.Workflow == first })
	if i >= 0 {
		if w, err = followParts(current[i].Definition, w); err != nil {
			return w, err
		}
	}
	if script != first {
		w.Renamed = []keep.Renamed{{Kind: keep.RenamedWorkflow, Name: string(script), First: string(first)}}
	}
	return w, nil
}

// firstOf returns the first name of a workflow that says what it was.
func firstOf(current []keep.Deployment, w keep.Definition) (keep.WorkflowName, error) {
	has := func(name keep.WorkflowName) bool {
		return slices.ContainsFunc(current, func(d keep.Deployment) bool { return d.Workflow == name })
	}
	var may []keep.WorkflowName // that it may be
	unsaid := func(d keep.Definition) bool {
		return d.Was == d.Name && !slices.ContainsFunc(d.Renamed, func(r keep.Renamed) bool { return r.Kind == keep.RenamedWorkflow })
	}
	switch {
	case w.Was == "" || w.Was == w.Name:
		return w.Name, nil
	case has(w.Was):
		may = []keep.WorkflowName{w.Was}
	default:
		for _, d := range current {
			if _, had := earlier(d.Definition, keep.RenamedWorkflow, string(w.Was)); had {
				may = append(may, d.Workflow)
			}
		}
	}
	switch {
	case len(may) == 1 && (may[0] == w.Name || !has(w.Name)):
		return may[0], nil
	case len(may) > 0 && has(w.Name):
		return "", Doubt{Kind: Both, Gone: string(w.Was), Fresh: string(w.Name)}
	case len(may) > 1:
		return "", Doubt{Kind: Workflow, Gone: string(may[0]), Fresh: string(w.Name)}
	case has(w.Name):
		return w.Name, nil
	}
	// An earlier version of Keep did not record what a workflow was called since.
	if i := slices.IndexFunc(current, func(d keep.Deployment) bool { return unsaid(d.Definition) }); i >= 0 {
		return "", Doubt{Kind: Workflow, Gone: string(current[i].Workflow), Fresh: string(w.Name)}
	}
	return w.Name, nil
}

// followParts gives the parts of w that say what they were the first names that those of was had.
func followParts(was, w keep.Definition) (keep.Definition, error) {
	topics := make(map[keep.TopicName]keep.TopicName)
	for _, c := range w.Called {
		if first, had := earlier(was, keep.RenamedTopic, string(c.First)); had && !was.HasTopic(c.First) {
			if other := slices.Collect(maps.Values(topics)); w.HasTopic(keep.TopicName(first)) || slices.Contains(other, keep.TopicName(first)) {
				return w, taken(w, Topic, first, string(c.Name))
			}
			topics[c.First] = keep.TopicName(first)
		}
	}
	w = w.KeepAs(topics)
	w.Handlers = slices.Clone(w.Handlers)
	for i, h := range w.Handlers {
		first, had := earlier(was, string(h.Kind), h.ItemsOf())
		if !had || h.ItemsOf() == string(h.Name) || has(was.Handlers, h.Kind, keep.HandlerName(h.ItemsOf())) {
			continue
		}
		if has(w.Handlers, h.Kind, keep.HandlerName(first)) {
			return w, taken(w, Kind(h.Kind), first, string(h.Name))
		}
		w.Handlers[i].Items = first
	}
	return w, nil
}

// taken is the doubt about a part whose first name another part has.
func taken(w keep.Definition, k Kind, first, fresh string) Doubt {
	return Doubt{Kind: k, Workflow: w.Name, Gone: first, Fresh: fresh, Taken: true}
}

// earlier returns the first name of what a version, or one before it, called by name, and whether there is one.
func earlier(d keep.Definition, kind, name string) (string, bool) {
	for _, r := range slices.Concat(d.Renamed, called(d)) {
		if r.Kind == kind && r.Name == name {
			return r.First, true
		}
	}
	return "", false
}

// Remember returns d with the names that it gives to what has another first name, and with those of the version before.
func Remember(d, before keep.Definition) keep.Definition {
	var known []keep.Renamed // of two things that had a name, the later one
	for _, r := range slices.Concat(d.Renamed, called(d), before.Renamed, called(before)) {
		if len(known) < keep.MaxRenamed && !slices.ContainsFunc(known, func(k keep.Renamed) bool { return k.Kind == r.Kind && k.Name == r.Name }) {
			known = append(known, r)
		}
	}
	d.Renamed = known
	return d
}

// called returns the names that the script of d gives to parts that have another first name.
func called(d keep.Definition) (all []keep.Renamed) {
	for _, c := range d.Called {
		all = append(all, keep.Renamed{Kind: keep.RenamedTopic, Name: string(c.Name), First: string(c.First)})
	}
	for _, h := range d.Handlers {
		if h.ItemsOf() != string(h.Name) {
			all = append(all, keep.Renamed{Kind: string(h.Kind), Name: string(h.Name), First: h.ItemsOf()})
		}
	}
	return all
}
