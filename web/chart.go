package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/count"
	"github.com/keep-run/keep/view"
)

// A spanOf is how far back charts look, and in which steps.
type spanOf struct {
	Name  string // in the address
	Words string
	step  keep.Step
	n     int // steps
}

// spansOf are those that a reader can choose; the first is the usual one.
var spansOf = []spanOf{
	{"day", "24 hours", keep.Hour, 24},
	{"hour", "1 hour", keep.Minute, 60},
	{"month", "30 days", keep.Day, 30},
}

// overTime is what workflows did over time, drawn.
type overTime struct {
	Over   spanOf
	Spans  []spanOf
	Sum    keep.Counter
	Known  bool // something was counted
	Charts []chart
	heat   map[keep.WorkflowName][]keep.Counter
	from   time.Time
}

// A chart is a picture with what it says in words.
type chart struct {
	Title  string
	Says   string
	Legend []legend
	SVG    template.HTML
}

// A legend says what a colour means.
type legend struct{ Tone, Text string }

// overTime reads the counters of a span, and draws them. waits is what waits now.
//
// Steps begin at full hours, minutes or days, as the counters do; the last one is not over yet.
func (s *site) overTime(ctx context.Context, name string, waits keep.Counter, now time.Time) (o overTime, err error) {
	o = overTime{Over: spansOf[0], Spans: spansOf, heat: make(map[keep.WorkflowName][]keep.Counter)}
	for _, sp := range spansOf {
		if sp.Name == name {
			o.Over = sp
		}
	}
	length := o.Over.step.Length()
	o.from = now.UTC().Truncate(length).Add(-time.Duration(o.Over.n-1) * length)
	list, err := s.cfg.Store.Counters(ctx, o.Over.step, "", o.from, now.Add(length))
	if err != nil {
		return o, err
	}
	all := make([]keep.Counter, o.Over.n)
	for _, c := range list {
		i := int(c.At.Sub(o.from) / length)
		if i < 0 || i >= len(all) {
			continue // after now, by the clock of another host
		}
		waiting, asked := all[i].Waiting+c.Waiting, all[i].Asked+c.Asked // at most, of all workflows together
		all[i] = count.Add(all[i], c)
		all[i].Waiting, all[i].Asked = waiting, asked
		if o.heat[c.Workflow] == nil {
			o.heat[c.Workflow] = make([]keep.Counter, o.Over.n)
		}
		o.heat[c.Workflow][i] = c
		o.Sum = count.Add(o.Sum, c)
	}
	o.Known = len(list) > 0
	p := plot{from: o.from, step: o.Over.step, n: o.Over.n}
	o.Charts = []chart{ratesChart(p, all, o.Sum), tookChart(p, all, o.Sum), waitsChart(p, all, waits)}
	return o, nil
}

// A plot is the frame of a chart: a linear axis of time, and one of a quantity.
type plot struct {
	from time.Time
	step keep.Step
	n    int
}

// Sizes of a chart, in the units of its view box.
const (
	chartWidth, chartHeight         = 360.0, 150.0
	chartLeft, chartTop, chartFloor = 40.0, 10.0, 128.0
)

func (p plot) x(i int) float64 {
	return chartLeft + (chartWidth-chartLeft-4)*float64(i)/float64(p.n)
}

func (p plot) width() float64 { return p.x(1) - p.x(0) }

// at returns the beginning of a step, as people read it.
func (p plot) at(i int) string {
	t := p.from.Add(time.Duration(i) * p.step.Length())
	if p.step == keep.Day {
		return t.Format("Jan 2")
	}
	return t.Format("15:04")
}

// inUTC is at in a text that the browser does not put into the zone of its reader, as it does on the axis.
func (p plot) inUTC(i int) string {
	if p.step == keep.Day {
		return p.at(i)
	}
	return p.at(i) + " UTC"
}

// open begins a picture with both axes; y are the labels of the quantity, from the floor up.
func (p plot) open(b *strings.Builder, label string, y []string) {
	fmt.Fprintf(b, `<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(label))
	for i, text := range y {
		at := chartFloor - (chartFloor-chartTop)*float64(i)/float64(len(y)-1)
		fmt.Fprintf(b, `<path class="grid" d="M%.0f %.1fH%.0f"/><text class="t" x="%.0f" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, at, chartWidth-4, chartLeft-5, at+4, text)
	}
	for _, i := range []int{0, p.n / 3, 2 * p.n / 3} {
		t := p.from.Add(time.Duration(i) * p.step.Length())
		attr := ""
		if p.step != keep.Day {
			attr = ` data-clock="` + t.Format(machineTime) + `"`
		}
		fmt.Fprintf(b, `<text class="t" x="%.1f" y="%.0f"%s>%s</text>`, p.x(i), chartHeight-6, attr, p.at(i))
	}
	fmt.Fprintf(b, `<text class="t" x="%.0f" y="%.0f" text-anchor="end">now</text>`, chartWidth-4, chartHeight-6)
}

// round returns the least number of 1, 2, 5, 10, … that is not below n.
func round(n int) int {
	for unit := 1; ; unit *= 10 {
		for _, f := range []int{1, 2, 5} {
			if f*unit >= n {
				return f * unit
			}
		}
	}
}

// short writes a number in the room that the labels of an axis have.
func short(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%gM", math.Round(float64(n)/1e5)/10)
	case n >= 10_000:
		return fmt.Sprintf("%gk", math.Round(float64(n)/1e2)/10)
	}
	return number(n)
}

// ratesChart draws how many runs ended, and how.
//
// What failed stands on what committed, at least two units high: one failure among thousands is what
// somebody looks for.
func ratesChart(p plot, all []keep.Counter, sum keep.Counter) chart {
	most := 0
	for _, c := range all {
		most = max(most, c.Committed+c.Failed)
	}
	top := max(round(most), 2)
	says := fmt.Sprintf("%s committed, %s failed", plural(sum.Committed, "run"), number(sum.Failed))
	if sum.Idle > 0 {
		says += "; " + plural(sum.Idle, "poll") + " found nothing"
	}
	var b strings.Builder
	p.open(&b, "Runs for each "+string(p.step)+": "+says, []string{"0", short(top / 2), short(top)})
	for i, c := range all {
		if c.Committed+c.Failed == 0 {
			continue
		}
		y := func(n int) float64 { return chartFloor - (chartFloor-chartTop)*float64(n)/float64(top) }
		w := max(p.width()-1.5, 1)
		fmt.Fprintf(&b, `<g><title>%s: %s committed, %s failed</title>`, p.inUTC(i), number(c.Committed), number(c.Failed))
		if c.Committed > 0 {
			fmt.Fprintf(&b, `<rect class="ok" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, p.x(i), y(c.Committed), w, chartFloor-y(c.Committed))
		}
		if c.Failed > 0 {
			fmt.Fprintf(&b, `<rect class="err" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, p.x(i), y(c.Committed+c.Failed), w, max(y(c.Committed)-y(c.Committed+c.Failed), 2))
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	return chart{"Runs for each " + string(p.step), says, []legend{{"ok", "committed"}, {"err", "failed"}}, template.HTML(b.String())}
}

// tookChart draws within what time half and nearly all committed runs were done.
//
// The axis is logarithmic, from a millisecond to 17 minutes, since runs differ by as much; what is longer
// is drawn at its top. Counters know only within which bound a run was, so the line has steps.
func tookChart(p plot, all []keep.Counter, sum keep.Counter) chart {
	says := "no run committed"
	half, some := count.Took(sum, 0.5)
	if most, _ := count.Took(sum, 0.95); some {
		says = "half within " + bound(half) + ", 95 % within " + bound(most)
	}
	var b strings.Builder
	p.open(&b, "How long committed runs took: "+says, []string{"1 ms", "100 ms", "10 s", "17 min"})
	for _, line := range []struct {
		tone  string
		share float64
	}{{"run", 0.5}, {"doubt", 0.95}} {
		var d strings.Builder
		pen := "M"
		for i, c := range all {
			took, some := count.Took(c, line.share)
			if !some {
				pen = "M"
				continue
			}
			y := chartFloor - (chartFloor-chartTop)*math.Log10(math.Min(float64(took.Milliseconds()), 1e6))/6
			fmt.Fprintf(&d, "%s%.1f %.1fH%.1f", pen, p.x(i), y, p.x(i+1))
			pen = "L"
		}
		if d.Len() > 0 {
			fmt.Fprintf(&b, `<path class="stroke %s" d="%s"/>`, line.tone, d.String())
		}
	}
	b.WriteString(`</svg>`)
	return chart{"How long committed runs took", says, []legend{{"run", "half of them"}, {"doubt", "95 %"}}, template.HTML(b.String())}
}

// bound writes a bound of keep.TookBounds.
func bound(d time.Duration) string {
	if d > time.Hour {
		return "more than 1h"
	}
	return human(d)
}

// waitsNow is how many runs wait, and how many questions are open.
func waitsNow(o *view.Overview) keep.Counter { return keep.Counter{Waiting: o.Waiting, Asked: o.Asked} }

// waitsChart draws how many runs waited, and how many questions were open, at most in each step. It
// says how many there are now.
func waitsChart(p plot, all []keep.Counter, now keep.Counter) chart {
	most := 0
	for _, c := range all {
		most = max(most, c.Waiting, c.Asked)
	}
	top := max(round(most), 2)
	says := fmt.Sprintf("now %s and %s", plural(now.Waiting, "run waits", "runs wait"), plural(now.Asked, "open question"))
	var b strings.Builder
	p.open(&b, "Waiting at most in each "+string(p.step)+"; "+says, []string{"0", short(top / 2), short(top)})
	for _, line := range []struct {
		tone string
		of   func(keep.Counter) int
	}{{"run", func(c keep.Counter) int { return c.Waiting }}, {"ask", func(c keep.Counter) int { return c.Asked }}} {
		var d strings.Builder
		for i, c := range all {
			y := chartFloor - (chartFloor-chartTop)*float64(line.of(c))/float64(top)
			fmt.Fprintf(&d, "%s%.1f %.1fH%.1f", map[bool]string{true: "M", false: "L"}[i == 0], p.x(i), y, p.x(i+1))
		}
		if most > 0 {
			fmt.Fprintf(&b, `<path class="stroke %s" d="%s"/>`, line.tone, d.String())
		}
	}
	b.WriteString(`</svg>`)
	return chart{"Waiting", says, []legend{{"run", "runs that wait"}, {"ask", "open questions"}}, template.HTML(b.String())}
}

// heatLevels is how many shades a strip has.
const heatLevels = 4

// Heat draws what one workflow did: a cell for each step, darker where more ran, and marked
// where runs failed.
func (o overTime) Heat(w keep.WorkflowName) template.HTML {
	cells := o.heat[w]
	if cells == nil {
		return ""
	}
	most := slices.MaxFunc(cells, func(a, b keep.Counter) int { return cmp.Compare(a.Committed, b.Committed) }).Committed
	var sum keep.Counter
	paths := make(map[string]*strings.Builder)
	for i, c := range cells {
		sum = count.Add(sum, c)
		class := "h0"
		switch {
		case c.Failed > 0:
			class = "err"
		case c.Committed > 0: // by its logarithm: one busy hour does not hide the others
			class = fmt.Sprintf("h%.0f", math.Ceil(heatLevels*math.Log1p(float64(c.Committed))/math.Log1p(float64(most))))
		}
		if paths[class] == nil {
			paths[class] = new(strings.Builder)
		}
		fmt.Fprintf(paths[class], "M%d 0h9v14h-9z", i*10)
	}
	words := fmt.Sprintf("%s: %s committed, %s failed", o.Over.Words, plural(sum.Committed, "run"), number(sum.Failed))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="heat" viewBox="0 0 %d 14" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title>`, len(cells)*10, words, words)
	for _, class := range []string{"h0", "h1", "h2", "h3", "h4", "err"} {
		if d := paths[class]; d != nil {
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, class, d.String())
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}
