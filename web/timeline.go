package web

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// A span is a bar of the timeline. One that ends when it begins is a dot.
type span struct {
	Lane     string
	From, To time.Time
	Tone     string
	Text     string
}

// Sizes of the timeline, in pixels.
const (
	lineWidth  = 1000.0
	lineLeft   = 110.0
	lineRow    = 26.0
	lineTop    = 26.0
	leastTick  = 92.0 // between two times at the top
	leastWidth = 4.0  // of a bar
)

// spans collects what a timeline shows: attempts, what happened to the calls, and
// questions.
func spans(d *runData, now time.Time) []span {
	var out []span
	for i, r := range d.Attempts {
		end := d.stopped(i)
		if !r.Closed {
			end = later(now, end)
		}
		out = append(out, span{"Attempts", r.CreatedAt, end, tone(r.Status), fmt.Sprintf("attempt %d: %s", i+1, word(r.Status))})
	}
	for _, m := range d.Mutations {
		for _, v := range d.Moves[m.Key] {
			out = append(out, span{"Calls", v.At, v.At, tone(v.To), fmt.Sprintf("%s: %s", m.Tool, word(v.To))})
		}
	}
	for _, q := range d.Questions {
		end, t := q.ClosedAt, "ok"
		if end.IsZero() {
			end, t = later(now, q.CreatedAt), "bad"
		}
		out = append(out, span{"Questions", q.CreatedAt, end, t, kindWord(q.Kind)})
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A scale maps times to pixels. Long waits are made short: a call that took a
// second is not lost beside a question that waited for a night.
type scale struct {
	times []time.Time
	x     []float64
}

func newScale(spans []span) scale {
	var sc scale
	for _, sp := range spans {
		sc.times = append(sc.times, sp.From, sp.To)
	}
	slices.SortFunc(sc.times, time.Time.Compare)
	sc.times = slices.CompactFunc(sc.times, time.Time.Equal)
	sc.x = make([]float64, len(sc.times))
	for i := 1; i < len(sc.times); i++ {
		gap := sc.times[i].Sub(sc.times[i-1]).Seconds()
		sc.x[i] = sc.x[i-1] + 0.4 + math.Log1p(20*gap)
	}
	room := lineWidth - lineLeft - 80
	for i := range sc.x {
		if total := sc.x[len(sc.x)-1]; total > 0 {
			sc.x[i] = sc.x[i] / total * room
		}
		sc.x[i] += lineLeft
	}
	return sc
}

func (sc scale) at(t time.Time) float64 {
	i, _ := slices.BinarySearchFunc(sc.times, t, time.Time.Compare)
	return sc.x[min(i, len(sc.x)-1)]
}

// timeline draws a chain of runs as SVG. The story beside it says the same in
// words.
func timeline(d *runData, now time.Time) template.HTML {
	all := spans(d, now)
	if len(all) == 0 {
		return ""
	}
	sc := newScale(all)
	var lanes []string
	for _, sp := range all {
		if !slices.Contains(lanes, sp.Lane) {
			lanes = append(lanes, sp.Lane)
		}
	}
	height := lineTop + lineRow*float64(len(lanes)) + 8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="line" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="Timeline: %s. The story says the same in words.">`,
		lineWidth, height, lineWidth, height, plural(len(d.Attempts), "attempt"))
	sc.ticks(&b, height)
	for i, lane := range lanes {
		y := lineTop + lineRow*float64(i)
		fmt.Fprintf(&b, `<text x="4" y="%.0f">%s</text>`, y+17, lane)
		for _, sp := range all {
			if sp.Lane == lane {
				sp.write(&b, sc, y)
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// ticks writes times at the top, as many as fit.
func (sc scale) ticks(b *strings.Builder, height float64) {
	last := math.Inf(-1)
	for i, t := range sc.times {
		if sc.x[i]-last < leastTick {
			continue
		}
		last = sc.x[i]
		t = t.UTC()
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %.0fV%.0f"/><text class="t" x="%.1f" y="14" data-time="%s">%s</text>`,
			sc.x[i], lineTop-4, height, sc.x[i], t.Format(machineTime), t.Format("15:04:05"))
	}
}

func (sp span) write(b *strings.Builder, sc scale, y float64) {
	from, to := sc.at(sp.From), sc.at(sp.To)
	text := template.HTMLEscapeString(sp.Text)
	if sp.From.Equal(sp.To) && sp.Lane == "Calls" {
		fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="6"><title>%s</title></circle>`, sp.Tone, from, y+13, text)
		return
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="14" rx="4"><title>%s</title></rect>`,
		sp.Tone, from, y+6, max(to-from, leastWidth), text)
}

// path of a mutation's page.
func mutationPath(key keep.MutationKey) string { return "/mutations/" + pathEscape(string(key)) }
