package graph

import (
	"cmp"
	"slices"
)

// sweeps is how often the order of the layers is improved at most.
const sweeps = 24

// order puts the vertices of each layer into an order in which few edges cross.
// It sorts each layer by the mean place of its neighbours, forwards and backwards
// in turn, and keeps the best order that it saw.
func (l *layers) order() {
	place := make([]float64, len(l.vs))
	l.number(place)
	best, least := l.cloneRows(), l.crossings(place)
	for sweep := range l.rounds(sweeps) {
		if least == 0 {
			break
		}
		forward := sweep%2 == 0
		for k := range l.rows {
			row := l.rows[k]
			if !forward {
				row = l.rows[len(l.rows)-1-k]
			}
			l.sortRow(row, place, forward)
		}
		if n := l.crossings(place); n < least {
			best, least = l.cloneRows(), n
		}
	}
	l.rows = best
}

// large is how many vertices a layout is improved of as often as it takes; of more, so often that it takes no longer.
const large = 5000

// rounds returns how often a layout is improved where n times is best.
func (l *layers) rounds(n int) int {
	return max(min(n, n*large/max(len(l.vs), 1)), 2)
}

// sortRow sorts a layer by its neighbours in the layer that was sorted before.
func (l *layers) sortRow(row []int, place []float64, forward bool) {
	key := make(map[int]float64, len(row))
	for _, v := range row {
		near := l.vs[v].after
		if forward {
			near = l.vs[v].before
		}
		key[v] = mean(near, place, place[v])
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(key[a], key[b]) })
	for i, v := range row {
		place[v] = float64(i)
	}
}

// mean returns the mean place of vertices, or otherwise if there are none.
func mean(vs []int, place []float64, otherwise float64) float64 {
	if len(vs) == 0 {
		return otherwise
	}
	sum := 0.0
	for _, v := range vs {
		sum += place[v]
	}
	return sum / float64(len(vs))
}

func (l *layers) number(place []float64) {
	for _, row := range l.rows {
		for i, v := range row {
			place[v] = float64(i)
		}
	}
}

func (l *layers) cloneRows() [][]int {
	out := make([][]int, len(l.rows))
	for i, row := range l.rows {
		out[i] = slices.Clone(row)
	}
	return out
}

// crossings counts the pairs of edges that cross between two layers, in a time that hardly grows faster than their number.
func (l *layers) crossings(place []float64) int {
	count := 0
	var ends []float64 // of the edges of a row, by where they begin
	for _, row := range l.rows {
		ends = ends[:0]
		for _, v := range row {
			from := len(ends)
			for _, w := range l.vs[v].after {
				ends = append(ends, place[w])
			}
			slices.Sort(ends[from:]) // two edges of one vertex do not cross
		}
		count += inversions(ends, make([]float64, len(ends)))
	}
	return count
}

// inversions sorts list, and returns how many pairs in it were out of order. spare is as long.
func inversions(list, spare []float64) int {
	if len(list) < 2 {
		return 0
	}
	mid := len(list) / 2
	count := inversions(list[:mid], spare[:mid]) + inversions(list[mid:], spare[mid:])
	i, j := 0, mid
	for k := range spare {
		if j == len(list) || i < mid && list[i] <= list[j] {
			spare[k] = list[i]
			i++
		} else {
			spare[k] = list[j]
			j++
			count += mid - i
		}
	}
	copy(list, spare)
	return count
}
