package graph

// A Graph is what is to be drawn.
type Graph struct {
	Title string // what the picture shows, for those who cannot see it
	Nodes []Node
	Edges []Edge
}

// A Node is a box with two lines of text.
type Node struct {
	Label string
	Sub   string // smaller, below the label
	Kind  string // class of the box, such as "topic"
	State string // another class, such as "bad"; empty: none
	Link  string // where a click goes; empty: nowhere
	Round bool   // ends like a pill
}

// MaxEdges is how many edges of a graph are drawn: a picture with more shows nobody anything, and takes seconds to lay out.
const MaxEdges = 500

// An Edge leads from one node to another, by their places in Graph.Nodes.
type Edge struct{ From, To int }

// A Direction is where the layers go.
type Direction int

const (
	Right Direction = iota // for wide screens
	Down                   // for narrow ones
)

// Sizes of the picture, in pixels.
const (
	nodeWidth  = 172.0
	nodeHeight = 52.0
	padding    = 12.0
)

// spacing says how large nodes are and how far apart, along the layers and across.
type spacing struct {
	along, across       float64 // of a node
	gapAlong, gapAcross float64
}

func (d Direction) spacing() spacing {
	if d == Down {
		return spacing{nodeHeight, nodeWidth, 40, 16}
	}
	return spacing{nodeWidth, nodeHeight, 56, 26}
}

// point is a place of the layout: along the layers, and across them.
type point struct{ along, across float64 }

// A layout is where everything goes.
type layout struct {
	size  point
	nodes []point   // centres
	edges [][]point // the points of each edge; an edge from a node to itself has none
}

// A vertex is a node, or the place where a long edge crosses a layer.
type vertex struct {
	layer  int
	across float64
	bend   bool  // of an edge, not a node
	before []int // neighbours in the layer before
	after  []int // and in the layer after
}

// arrange lays g out.
func arrange(g Graph, s spacing) layout {
	n := len(g.Nodes)
	reversed := cycles(n, g.Edges)
	l := &layers{spacing: s, reversed: reversed}
	l.assign(n, g.Edges)
	chains := l.route(g.Edges)
	l.order()
	l.place()
	return l.result(n, g.Edges, chains)
}

// result turns layers and offsets into points.
func (l *layers) result(n int, edges []Edge, chains [][]int) layout {
	low, high := 0.0, 0.0
	for i, v := range l.vs {
		half := l.extent(i) / 2
		if i == 0 {
			low, high = v.across-half, v.across+half
		}
		low, high = min(low, v.across-half), max(high, v.across+half)
	}
	at := func(i int) point {
		v := l.vs[i]
		return point{
			along:  padding + l.along/2 + float64(v.layer)*(l.along+l.gapAlong),
			across: v.across - low + padding,
		}
	}
	out := layout{size: point{2*padding + float64(len(l.rows))*(l.along+l.gapAlong) - l.gapAlong, high - low + 2*padding}}
	for i := range n {
		out.nodes = append(out.nodes, at(i))
	}
	for e := range edges {
		out.edges = append(out.edges, l.points(chains[e], l.reversed[e], at))
	}
	return out
}

// points returns the points of an edge, from the border of one node to that of
// the other.
func (l *layers) points(chain []int, reversed bool, at func(int) point) []point {
	var out []point
	half := l.along / 2
	if reversed {
		half = -half
	}
	for i, v := range chain {
		p := at(v)
		switch i {
		case 0:
			p.along += half
		case len(chain) - 1:
			p.along -= half
		}
		out = append(out, p)
	}
	return out
}
