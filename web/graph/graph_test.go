package graph

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyGraph draws a graph of up to 40 nodes, with cycles, double edges, loops and
// parts that are not connected.
func anyGraph(t *rapid.T) Graph {
	n := rapid.IntRange(1, 40).Draw(t, "nodes")
	node := rapid.IntRange(0, n-1)
	g := Graph{Title: "any"}
	for i := range n {
		g.Nodes = append(g.Nodes, Node{Label: fmt.Sprintf("n%d", i), Kind: "topic"})
	}
	for range rapid.IntRange(0, 60).Draw(t, "edges") {
		g.Edges = append(g.Edges, Edge{node.Draw(t, "from"), node.Draw(t, "to")})
	}
	return g
}

func TestNoTwoNodesOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		for _, d := range []Direction{Right, Down} {
			s := d.spacing()
			l := arrange(g, s)
			for i, a := range l.nodes {
				for j, b := range l.nodes[:i] {
					if math.Abs(a.along-b.along) < s.along && math.Abs(a.across-b.across) < s.across {
						t.Fatalf("direction %d: nodes %d at %v and %d at %v overlap", d, i, a, j, b)
					}
				}
				if a.along-s.along/2 < 0 || a.across-s.across/2 < 0 || a.along+s.along/2 > l.size.along || a.across+s.across/2 > l.size.across {
					t.Fatalf("direction %d: node %d at %v is outside of %v", d, i, a, l.size)
				}
			}
		}
	})
}

func TestEdgesGoForwardButInCycles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		reversed := cycles(len(g.Nodes), g.Edges)
		l := arrange(g, Right.spacing())
		for i, points := range l.edges {
			if len(points) == 0 {
				if g.Edges[i].From != g.Edges[i].To {
					t.Fatalf("edge %v has no points", g.Edges[i])
				}
				continue
			}
			forward := points[0].along < points[len(points)-1].along
			if forward == reversed[i] {
				t.Fatalf("edge %v goes from %v to %v, and reversed is %t", g.Edges[i], points[0], points[len(points)-1], reversed[i])
			}
		}
	})
}

func TestSamePictureForSameGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		if a, b := SVG(g, Right, "g"), SVG(g, Right, "g"); a != b {
			t.Fatalf("two pictures of one graph:\n%s\n%s", a, b)
		}
	})
}

// A tree of producers, topics and consumers has no edge that crosses another.
func TestNoCrossingsWhereNoneAreNeeded(t *testing.T) {
	g := Graph{Edges: []Edge{{0, 5}, {1, 4}, {4, 6}, {6, 7}, {6, 8}, {7, 9}, {8, 10}, {5, 11}, {11, 12}, {12, 6}}}
	for range 13 {
		g.Nodes = append(g.Nodes, Node{})
	}
	l := &layers{spacing: Right.spacing(), reversed: cycles(13, g.Edges)}
	l.assign(13, g.Edges)
	l.route(g.Edges)
	l.order()
	place := make([]float64, len(l.vs))
	l.number(place)
	if n := l.crossings(place); n != 0 {
		t.Errorf("%d edges cross", n)
	}
}

func TestNamesCannotBreakThePicture(t *testing.T) {
	bad := `"><script>alert(1)</script>&amp;` + strings.Repeat("x", 10000)
	g := Graph{Title: bad, Nodes: []Node{{Label: bad, Sub: bad, Kind: bad, State: bad, Link: "/x?" + bad}, {Label: "b"}}, Edges: []Edge{{0, 1}, {1, 0}, {0, 0}}}
	d := xml.NewDecoder(strings.NewReader(SVG(g, Down, bad)))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Fatal("a name became an element")
		}
	}
}

func TestEmptyGraph(t *testing.T) {
	if got := SVG(Graph{}, Right, "g"); !strings.HasPrefix(got, "<svg") {
		t.Errorf("SVG of nothing = %q", got)
	}
}

func BenchmarkSVG(b *testing.B) {
	g := Graph{}
	for i := range 40 {
		g.Nodes = append(g.Nodes, Node{Label: "node"})
		if i > 0 {
			g.Edges = append(g.Edges, Edge{(i * 7) % i, i})
		}
	}
	for b.Loop() {
		SVG(g, Right, "g")
	}
}
