package web

import (
	"context"
	"fmt"

	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/view"
)

// A saw is what is kept of what a run read and called.
type saw struct {
	Known   bool // something is kept
	Entries []sawEntry
	Dropped int // entries that did not fit in, and those that the page leaves out
}

// A sawEntry is one line of it.
type sawEntry struct {
	Phase, What, Tool, Params, Result, Error, Took string

	Cut bool
}

// readSaw reads what is kept of the run, and for which read it waits.
func (s *site) readSaw(ctx context.Context, d *runData) error {
	t, some, err := view.Trace(ctx, s.cfg.Store, d.ID)
	if d.Standing != nil {
		d.Standing.Wait = view.WaitIn(d.Standing.Wait, t)
	}
	out := saw{Known: some, Dropped: t.Dropped + max(0, len(t.Entries)-maxShown)}
	for _, e := range t.Entries[:min(maxShown, len(t.Entries))] {
		line := sawEntry{Phase: e.Phase, What: whats[e.What], Tool: e.Tool, Params: string(e.Params), Result: string(e.Result), Cut: e.Cut, Took: took(e.MS)}
		if e.Error != nil {
			line.Error = e.Error.Error()
		}
		out.Entries = append(out.Entries, line)
	}
	d.Saw = out
	return err
}

// whats are the kinds of entries in words.
var whats = map[trace.What]string{
	trace.Phase: "took, as a whole", trace.Read: "read", trace.Call: "called", trace.Lookup: "asked what became of the call", trace.Wait: "waits for",
}

// took returns how long something lasted.
func took(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
