package graph

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// maxLabel is how many characters of a label fit into a node.
const maxLabel = 23

// SVG returns the picture of g. Its parts have the classes node, edge, sub and
// those of the nodes; colours are the page's. id must be unique in the page: the
// parts that are referred to are named after it.
//
// Of more than MaxEdges edges it has the first, and its description says so.
func SVG(g Graph, d Direction, id string) string {
	all := len(g.Edges)
	g.Edges = g.Edges[:min(all, MaxEdges)]
	l := arrange(g, d.spacing())
	if d == Down {
		l = l.turned()
	}
	var b strings.Builder
	id = html.EscapeString(id)
	fmt.Fprintf(&b, `<svg class="graph" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="group" aria-labelledby="%s-title %s-desc">`,
		l.size.along, l.size.across, l.size.along, l.size.across, id, id)
	fmt.Fprintf(&b, `<title id="%s-title">%s</title><desc id="%s-desc">%s</desc>`,
		id, html.EscapeString(g.Title), id, html.EscapeString(g.description()+more(len(g.Edges), all)))
	fmt.Fprintf(&b, `<defs><marker id="%s-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="head"/></marker></defs>`, id)
	for _, points := range l.edges {
		if len(points) > 0 {
			fmt.Fprintf(&b, `<path class="edge" d="%s" marker-end="url(#%s-head)"/>`, path(points), id)
		}
	}
	for i, at := range l.nodes {
		g.Nodes[i].write(&b, at)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// turned swaps the axes, so that along is always x.
func (l layout) turned() layout {
	turn := func(p point) point { return point{p.across, p.along} }
	out := layout{size: turn(l.size)}
	for _, p := range l.nodes {
		out.nodes = append(out.nodes, turn(p))
	}
	for _, points := range l.edges {
		var turned []point
		for _, p := range points {
			turned = append(turned, turn(p))
		}
		out.edges = append(out.edges, turned)
	}
	return out
}

// description says in words what the picture shows.
func (g Graph) description() string {
	var b strings.Builder
	for i, e := range g.Edges {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s feeds %s.", g.Nodes[e.From].Label, g.Nodes[e.To].Label)
	}
	return b.String()
}

// more says how many edges there are, if not all are drawn.
func more(drawn, all int) string {
	if drawn == all {
		return ""
	}
	return fmt.Sprintf(" It has the first %d of %d edges.", drawn, all)
}

// write draws a node around a point.
func (n Node) write(b *strings.Builder, at point) {
	radius := 8.0
	if n.Round {
		radius = nodeHeight / 2
	}
	if n.Link != "" {
		fmt.Fprintf(b, `<a href="%s">`, html.EscapeString(n.Link))
	}
	fmt.Fprintf(b, `<g class="node %s %s" transform="translate(%.1f %.1f)"><title>%s, %s</title><rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="%.0f"/><text y="-3">%s</text><text y="14" class="sub">%s</text></g>`,
		html.EscapeString(n.Kind), html.EscapeString(n.State), at.along, at.across,
		html.EscapeString(n.Label), html.EscapeString(n.Sub),
		-nodeWidth/2, -nodeHeight/2, nodeWidth, nodeHeight, radius,
		html.EscapeString(truncate(n.Label, maxLabel)), html.EscapeString(truncate(n.Sub, maxLabel+6)))
	if n.Link != "" {
		b.WriteString(`</a>`)
	}
}

// truncate returns s in at most n characters.
func truncate(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// path draws points as a curve: through the middle of each two, bent at each.
func path(p []point) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", p[0].along, p[0].across)
	if len(p) == 2 {
		fmt.Fprintf(&b, "L%.1f %.1f", p[1].along, p[1].across)
		return b.String()
	}
	for i := 1; i < len(p)-1; i++ {
		end := point{(p[i].along + p[i+1].along) / 2, (p[i].across + p[i+1].across) / 2}
		if i == len(p)-2 {
			end = p[i+1]
		}
		fmt.Fprintf(&b, "Q%.1f %.1f %.1f %.1f", p[i].along, p[i].across, end.along, end.across)
	}
	return b.String()
}
