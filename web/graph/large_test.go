package graph

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A workflow with all the handlers and topics that a script may have, each handler feeding each topic, is drawn, with the
// first of its edges, and says so.
func TestLargeGraph(t *testing.T) {
	g := Graph{Title: "large"}
	const topics, handlers = 200, 100
	for i := range topics {
		g.Nodes = append(g.Nodes, Node{Label: fmt.Sprint("t", i)})
	}
	for i := range handlers {
		g.Nodes = append(g.Nodes, Node{Label: fmt.Sprint("h", i)})
		g.Edges = append(g.Edges, Edge{i, topics + i})
		for to := range topics {
			if to != i {
				g.Edges = append(g.Edges, Edge{topics + i, to})
			}
		}
	}
	for _, d := range []Direction{Right, Down} {
		svg := SVG(g, d, "g")
		if n := strings.Count(svg, `class="edge"`); n > MaxEdges || n < MaxEdges/2 {
			t.Errorf("%d edges are drawn, of %d", n, len(g.Edges))
		}
		if n := strings.Count(svg, `class="node`); n != len(g.Nodes) {
			t.Errorf("%d nodes are drawn, of %d", n, len(g.Nodes))
		}
		if want := "It has the first 500 of 20000 edges."; !strings.Contains(svg, want) {
			t.Errorf("the description does not say %q", want)
		}
	}
}

// Crossings are counted as by looking at each two edges.
func TestCrossings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		l := &layers{spacing: Right.spacing(), reversed: cycles(len(g.Nodes), g.Edges)}
		l.assign(len(g.Nodes), g.Edges)
		l.route(g.Edges)
		place := make([]float64, len(l.vs))
		l.number(place)
		want := 0
		for _, row := range l.rows {
			for i, a := range row {
				for _, b := range row[i+1:] {
					for _, x := range l.vs[a].after {
						for _, y := range l.vs[b].after {
							if place[x] > place[y] {
								want++
							}
						}
					}
				}
			}
		}
		if got := l.crossings(place); got != want {
			t.Fatalf("%d edges cross, want %d", got, want)
		}
	})
}
