package graph

// pulls is how often nodes are pulled towards their neighbours; the last few look
// both ways.
const (
	pulls    = 40
	bothWays = 30
)

// place gives each vertex its place across the layers: near its neighbours, in
// the order of its layer, and apart from the next one.
func (l *layers) place() {
	for _, row := range l.rows {
		at := 0.0
		for _, v := range row {
			l.vs[v].across = at + l.extent(v)/2
			at += l.extent(v) + l.gapAcross
		}
	}
	for pull := range l.rounds(pulls) {
		for k := range l.rows {
			row := l.rows[k]
			if pull%2 == 1 {
				row = l.rows[len(l.rows)-1-k]
			}
			l.pull(row, pull)
		}
	}
}

// pull moves the vertices of a layer as near as possible to where they want to be.
func (l *layers) pull(row []int, pull int) {
	ideal := make([]float64, len(row))  // where each would be best
	offset := make([]float64, len(row)) // the least distance from the first
	for j, v := range row {
		ideal[j] = l.ideal(v, pull)
		if j > 0 {
			offset[j] = offset[j-1] + l.extent(row[j-1])/2 + l.extent(v)/2 + l.gapAcross
		}
	}
	for j, at := range ascending(ideal, offset) {
		l.vs[row[j]].across = at + offset[j]
	}
}

// ideal returns the mean place of the neighbours that count in this pull.
func (l *layers) ideal(v, pull int) float64 {
	sum, n := 0.0, 0
	add := func(near []int) {
		for _, w := range near {
			sum += l.vs[w].across
			n++
		}
	}
	if pull > bothWays || pull%2 == 0 {
		add(l.vs[v].before)
	}
	if pull > bothWays || pull%2 == 1 {
		add(l.vs[v].after)
	}
	if n == 0 {
		return l.vs[v].across
	}
	return sum / float64(n)
}

// ascending returns the numbers nearest to ideal[j]-offset[j] that never fall, by
// pooling neighbours that are out of order (isotonic regression).
func ascending(ideal, offset []float64) []float64 {
	type pool struct{ sum, n float64 }
	var pools []pool
	for j := range ideal {
		pools = append(pools, pool{ideal[j] - offset[j], 1})
		for last := len(pools) - 1; last > 0 && pools[last-1].sum/pools[last-1].n > pools[last].sum/pools[last].n; last-- {
			pools[last-1].sum += pools[last].sum
			pools[last-1].n += pools[last].n
			pools = pools[:last]
		}
	}
	out := make([]float64, 0, len(ideal))
	for _, p := range pools {
		for range int(p.n) {
			out = append(out, p.sum/p.n)
		}
	}
	return out
}
