package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/trace"
)

// A stretch is a time in which a run did something, on a linear axis of its own: a call that
// took milliseconds is not lost beside a wait of a night.
type stretch struct {
	Waited string // how long nothing happened before; empty: it is the first
	At     time.Time
	Axis   template.HTML
	Rows   []bar
	last   time.Time
}

// A bar is one thing that a run did, with when and how long.
type bar struct {
	sawEntry
	Phases bool // it is a phase as a whole
	Item   bool // it is the work on an item, with all that follows up to the next one
	Inner  []bar
	Tone   string
	SVG    template.HTML

	from, to time.Time
}

// leastBar is the least width of a bar, in parts of a hundred.
const leastBar = 0.6

// longGap is the least time in which nothing happens that ends a stretch.
const longGap = time.Second

// waterfall puts what a run saw on linear axes. An error is said once, where it happened: a phase
// that ended by it, and the page that says known, do not say it again.
func waterfall(entries []trace.Entry, known string) []stretch {
	said := map[string]bool{known: true}
	for _, e := range entries {
		if e.Error != nil && e.What != trace.Phase {
			said[e.Error.Error()] = true
		}
	}
	var rows []bar
	for _, e := range entries {
		if e.What == trace.Wait {
			continue // the run says so itself
		}
		line := sawEntry{Phase: e.Phase, What: whats[e.What], Tool: e.Tool, Params: string(e.Params), Result: string(e.Result), Cut: e.Cut, Took: took(e.MS)}
		line.ForAdmins = e.ReadsCheckpoint() && e.Result == nil && e.Error == nil && !e.Cut
		id, begins := trace.ItemOf(e.Tool, e.Params)
		if begins {
			line.What, line.Tool = "item", id
			line.Params, line.Result = "", ""
		}
		if e.What == trace.Lookup && ledger.ToolMissing(e.Error) {
			line.What = "found no tool to ask"
		}
		if e.Error != nil {
			line.Error = e.Error.Error()
			if line.Error == known || e.What == trace.Phase && said[line.Error] {
				line.Error = ""
			}
		}
		rows = append(rows, bar{sawEntry: line, Phases: e.What == trace.Phase, Item: begins, Tone: toneOf(e),
			from: e.At, to: e.At.Add(time.Duration(e.MS * float64(time.Millisecond)))})
	}
	slices.SortStableFunc(rows, func(a, b bar) int { // a phase before what is in it
		return cmp.Or(a.from.Compare(b.from), b.to.Compare(a.to))
	})
	var out []stretch
	for _, r := range byItem(rows) {
		if n := len(out); n == 0 || r.from.Sub(out[n-1].last) > longGap {
			s := stretch{At: r.from, last: r.to}
			if n > 0 {
				s.Waited = human(r.from.Sub(out[n-1].last).Round(100 * time.Millisecond))
			}
			out = append(out, s)
		}
		s := &out[len(out)-1]
		s.Rows = append(s.Rows, r)
		if r.to.After(s.last) {
			s.last = r.to
		}
	}
	for i := range out {
		out[i].draw()
	}
	return out
}

// byItem puts what a job did for an item into the row of that. It has the colour of what went worst.
func byItem(rows []bar) []bar {
	var out []bar
	for _, r := range rows {
		n := len(out)
		if r.Phases || r.Item || n == 0 || !out[n-1].Item || out[n-1].Phase != r.Phase {
			out = append(out, r)
			continue
		}
		it := &out[n-1]
		it.Inner = append(it.Inner, r)
		if r.to.After(it.to) {
			it.to = r.to
		}
		if tones := []string{"", "ok", "doubt", "err"}; slices.Index(tones, r.Tone) > slices.Index(tones, it.Tone) {
			it.Tone = r.Tone
		}
		it.Took = took(float64(it.to.Sub(it.from)) / float64(time.Millisecond))
	}
	return out
}

// toneOf is the colour of a bar.
func toneOf(e trace.Entry) string {
	switch {
	case e.Error != nil && e.Error.Class == keep.ClassUnknown:
		return "doubt"
	case e.Error != nil:
		return "err"
	case e.What == trace.Call:
		return "ok"
	case e.What == trace.Lookup:
		return "doubt"
	case e.What == trace.Phase:
		return "run"
	}
	return ""
}

// draw draws the axis and the bars, in parts of a hundred, so that both are as wide as the page.
//
// A bar of a moment still has leastBar, and is moved to the left if it would end outside.
func (s *stretch) draw() {
	total := max(s.last.Sub(s.At), time.Millisecond)
	x := func(t time.Time) float64 { return 100 * float64(t.Sub(s.At)) / float64(total) }
	draw := func(r *bar) {
		w := min(max(x(r.to)-x(r.from), leastBar), 100)
		r.SVG = template.HTML(fmt.Sprintf(`<svg class="fall" aria-hidden="true"><rect class="track" width="100%%" height="100%%"/><rect class="%s" x="%.2f%%" width="%.2f%%" height="100%%"/></svg>`,
			r.Tone, min(x(r.from), 100-w), w))
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		draw(r)
		for j := range r.Inner {
			draw(&r.Inner[j])
		}
	}
	var b strings.Builder
	step := tick(total)
	fmt.Fprintf(&b, `<svg class="axis" role="img" aria-label="Axis of %s, linear">`, human(total))
	for at := time.Duration(0); at <= total; at += step {
		px, anchor := x(s.At.Add(at)), "middle"
		switch {
		case at == 0:
			anchor = "start"
		case px > 92:
			anchor = "end"
		}
		fmt.Fprintf(&b, `<rect class="tick" x="%.2f%%" y="14" width="1" height="6"/><text x="%.2f%%" y="11" text-anchor="%s">%s</text>`, min(px, 99.7), px, anchor, ticked(at))
	}
	b.WriteString(`</svg>`)
	s.Axis = template.HTML(b.String())
}

// tick returns the distance of the times on an axis: 1, 2 or 5 times a power of ten, at most
// six on it.
func tick(total time.Duration) time.Duration {
	for unit := 100 * time.Microsecond; ; unit *= 10 {
		for _, f := range []time.Duration{1, 2, 5} {
			if total <= 5*f*unit {
				return f * unit
			}
		}
	}
}

// ticked writes a time on an axis.
func ticked(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%g s", d.Seconds())
	}
	return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond))
}
