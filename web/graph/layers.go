package graph

import "slices"

// layers is a layout under way.
type layers struct {
	spacing
	reversed []bool // edges that are walked backwards, so that there is no cycle
	vs       []vertex
	rows     [][]int // vertices of each layer, in their order
}

// cycles returns which edges close a cycle, found depth first in the order of the
// nodes.
func cycles(n int, edges []Edge) []bool {
	out := make([][]int, n)
	for i, e := range edges {
		out[e.From] = append(out[e.From], i)
	}
	const (
		unseen = iota
		open
		done
	)
	reversed, state := make([]bool, len(edges)), make([]int, n)
	var visit func(int)
	visit = func(v int) {
		state[v] = open
		for _, e := range out[v] {
			switch to := edges[e].To; state[to] {
			case unseen:
				visit(to)
			case open:
				reversed[e] = true
			}
		}
		state[v] = done
	}
	for v := range n {
		if state[v] == unseen {
			visit(v)
		}
	}
	return reversed
}

// ends returns the nodes of edge i in the direction that it is walked, and false
// for an edge from a node to itself.
func (l *layers) ends(edges []Edge, i int) (from, to int, ok bool) {
	from, to = edges[i].From, edges[i].To
	if l.reversed[i] {
		from, to = to, from
	}
	return from, to, from != to
}

// assign gives each node the layer after the farthest of those before it, and
// pulls nodes with none before them next to their first successor.
func (l *layers) assign(n int, edges []Edge) {
	layer := make([]int, n)
	for changed := true; changed; {
		changed = false
		for i := range edges {
			if from, to, ok := l.ends(edges, i); ok && layer[to] <= layer[from] {
				layer[to], changed = layer[from]+1, true
			}
		}
	}
	first := make([]int, n) // layer of the first successor; 0: none
	hasBefore := make([]bool, n)
	for i := range edges {
		if from, to, ok := l.ends(edges, i); ok {
			hasBefore[to] = true
			if first[from] == 0 || layer[to] < first[from] {
				first[from] = layer[to]
			}
		}
	}
	l.vs = make([]vertex, n)
	for v := range n {
		if !hasBefore[v] && first[v] > 0 {
			layer[v] = first[v] - 1
		}
		l.vs[v].layer = layer[v]
	}
}

// route cuts edges that pass layers into pieces of one layer, and returns the
// vertices of each edge in its own direction.
func (l *layers) route(edges []Edge) [][]int {
	chains := make([][]int, len(edges))
	for i := range edges {
		from, to, ok := l.ends(edges, i)
		if !ok {
			continue
		}
		chain := []int{from}
		for layer := l.vs[from].layer + 1; layer < l.vs[to].layer; layer++ {
			l.vs = append(l.vs, vertex{layer: layer, bend: true})
			chain = append(chain, len(l.vs)-1)
		}
		chain = append(chain, to)
		for j := 1; j < len(chain); j++ {
			a, b := chain[j-1], chain[j]
			l.vs[a].after = append(l.vs[a].after, b)
			l.vs[b].before = append(l.vs[b].before, a)
		}
		if l.reversed[i] {
			slices.Reverse(chain)
		}
		chains[i] = chain
	}
	for i, v := range l.vs {
		for len(l.rows) <= v.layer {
			l.rows = append(l.rows, nil)
		}
		l.rows[v.layer] = append(l.rows[v.layer], i)
	}
	return chains
}

// extent is how much room a vertex takes in its layer.
func (l *layers) extent(v int) float64 {
	if l.vs[v].bend {
		return 10
	}
	return l.across
}
