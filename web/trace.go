package web

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/view"
)

// A saw is what is kept of what a run read and called.
type saw struct {
	Known     bool // something is kept
	Stretches []stretch
	Dropped   int // entries that did not fit in
	Left      int // entries that are kept, and that the page leaves out
}

// A sawEntry is one line of it.
type sawEntry struct {
	Phase, What, Tool, Params, Result, Error, Took string

	Cut       bool
	ForAdmins bool // the result is
}

// readSaw reads what is kept of the run, and for which read it waits.
func (s *site) readSaw(ctx context.Context, d *runData) error {
	t, some, err := view.Trace(ctx, s.cfg.Store, d.ID)
	if d.Standing != nil {
		d.Standing.Wait = view.WaitIn(d.Standing.Wait, t)
	}
	known := ""
	if d.Error != nil {
		known = d.Error.Error()
	}
	all := trace.Shown(t.Entries)
	shown := all[:min(maxShown, len(all))]
	if who, _ := access.From(ctx); !who.Role.Covers(access.Admin) { // what a producer keeps in its checkpoint
		for i := range shown {
			if shown[i].ReadsCheckpoint() {
				shown[i].Result = nil
			}
		}
	}
	out := saw{Known: some, Dropped: t.Dropped, Left: len(all) - len(shown), Stretches: waterfall(shown, known)}
	d.Saw = out
	return err
}

// whats are the kinds of entries in words.
var whats = map[trace.What]string{
	trace.Phase: "as a whole", trace.Read: "read", trace.Call: "called", trace.Lookup: "asked what became of the call", trace.Wait: "waits for",
}

// took returns how long something lasted.
func took(ms float64) string {
	switch d := time.Duration(ms * float64(time.Millisecond)); {
	case d >= time.Minute:
		return human(d.Round(time.Second))
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
