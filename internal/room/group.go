package room

import "container/heap"

// A group is a part of what is lent: all of it, what a door has, what an address has there, or one place. Those of a group
// are a heap, so that who is displaced next is found in few steps: the first is the one with the most, of equal ones that
// whose own first goes before the other's. Of the places of an address it is the one that grew least recently.
type group struct {
	room  *Room
	in    *group // nil: of all
	name  string
	at    int   // in the parts of in
	sum   int64 // 0: of a place, which is displaced whole
	parts []*group
	named map[string]*group // parts, but places

	place *Place // nil: of more than one, or it is not lent any more
	grown uint64 // how often any place had grown when this one did
}

// part returns the part with a name. A new one is empty, and is put in order when it changes.
func (g *group) part(name string) *group {
	if p := g.named[name]; p != nil {
		return p
	}
	if g.named == nil {
		g.named = make(map[string]*group)
	}
	g.named[name] = g.add(&group{name: name})
	return g.named[name]
}

// add makes p a part of g.
func (g *group) add(p *group) *group {
	p.room, p.in, p.at = g.room, g, len(g.parts)
	g.parts = append(g.parts, p) // the last is behind all
	return p
}

// changed adds n to what has to do with a place that grew or is not lent any more, and puts all of it in order. A group of
// which nothing is left goes.
func (g *group) changed(n int64) {
	for ; g.in != nil; g = g.in {
		if g.place == nil && len(g.parts) == 0 {
			heap.Remove(g.in, g.at)
			delete(g.in.named, g.name)
		} else {
			heap.Fix(g.in, g.at)
		}
		g.in.sum += n
	}
}

// before reports whether what g has is displaced before what h has.
func (g *group) before(h *group) bool {
	switch {
	case g.sum != h.sum:
		return g.sum > h.sum
	case g.place != nil:
		return g.grown < h.grown
	}
	return g.parts[0].before(h.parts[0])
}

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (g *group) Len() int { return len(g.parts) }

func (g *group) Less(i, j int) bool {
	g.room.steps++
	return g.parts[i].before(g.parts[j])
}

func (g *group) Swap(i, j int) {
	g.parts[i], g.parts[j] = g.parts[j], g.parts[i]
	g.parts[i].at, g.parts[j].at = i, j
}

func (g *group) Push(p any) { g.add(p.(*group)) }

func (g *group) Pop() any {
	last := len(g.parts) - 1
	p := g.parts[last]
	g.parts[last], g.parts = nil, g.parts[:last]
	return p
}
