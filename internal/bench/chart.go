package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The chart of a growth has three panels beside each other, of what a person compares: runs per second beside
// an empty database, memory, and the time that a start takes.
const (
	panelWidth, panelHeight = 260, 160
	panelGap                = 40
	chartTop, chartBottom   = 44, 46
)

// A panel is one of them. Its values are drawn from 0 to most.
type panel struct {
	title  string
	values []float64
	most   float64
	bound  float64 // a line that the values are measured by; 0: none
	say    func(v float64) string
}

// drawGrowth returns the chart of the stages, as SVG.
func drawGrowth(stages []stage) string {
	var rate, memory, start []float64
	for _, st := range stages {
		rate, memory, start = append(rate, 100*st.ratio.rate), append(memory, float64(st.rss[1])/(1<<20)), append(start, float64(st.start.Milliseconds()))
	}
	panels := []panel{
		{"Runs per second, of an empty database's", rate, 120, 90, func(v float64) string { return fmt.Sprintf("%.0f %%", v) }},
		{"Memory at most", memory, 1.2 * largest(memory), 0, func(v float64) string { return fmt.Sprintf("%.0f MiB", v) }},
		{"Start of keep serve", start, 1.2 * max(500, largest(start)), 500, func(v float64) string { return (time.Duration(v) * time.Millisecond).String() }},
	}
	var b strings.Builder
	width, height := len(panels)*(panelWidth+panelGap)+panelGap, chartTop+panelHeight+chartBottom
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="What stored runs cost" font-family="system-ui, sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for i, p := range panels {
		p.draw(&b, panelGap+i*(panelWidth+panelGap), stages)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws the panel at x, with a bar for each stage.
func (p panel) draw(b *strings.Builder, x int, stages []stage) {
	y := func(v float64) float64 { return chartTop + panelHeight*(1-v/p.most) }
	fmt.Fprintf(b, `<text x="%d" y="24" font-weight="600" fill="#222">%s</text>`+"\n", x, p.title)
	fmt.Fprintf(b, `<path d="M%d %dh%d" stroke="#888"/>`+"\n", x, chartTop+panelHeight, panelWidth)
	each := float64(panelWidth) / float64(len(p.values))
	for i, v := range p.values {
		left := float64(x) + (float64(i)+0.2)*each
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#3b6ea5"/>`+"\n", left, y(v), 0.6*each, chartTop+panelHeight-y(v))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#222">%s</text>`+"\n", left+0.3*each, y(v)-5, p.say(v))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s runs</text>`+"\n", left+0.3*each, chartTop+panelHeight+18, short(stages[i].runs))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s events</text>`+"\n", left+0.3*each, chartTop+panelHeight+34, short(stages[i].events))
	}
	if p.bound > 0 {
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#b3261e" stroke-dasharray="4 3"/>`+"\n", x, y(p.bound), panelWidth)
	}
}

// short writes a number of things as 10k or 1M.
func short(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%gM", math.Round(float64(n)/1e5)/10)
	case n >= 1000:
		return fmt.Sprintf("%gk", math.Round(float64(n)/100)/10)
	}
	return fmt.Sprint(n)
}

// largest returns the largest value, or 1 if there is none above 0.
func largest(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	if most == 0 {
		return 1
	}
	return most
}
