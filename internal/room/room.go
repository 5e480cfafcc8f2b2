// Package room bounds what requests take at once while they are read and worked on, such as places or bytes of memory,
// so that whoever holds them keeps nobody else out.
//
// A request takes what it needs of a room as its body is read. Until the body is there and its sender is verified that is
// lent: if the room is full, the next to need some displaces one to whom it is lent. Which one: of the door with the most,
// of the address there with the most, the one that grew least recently. So half a body, which costs its sender nothing,
// holds what it has only as long as nobody wants it, and a sender displaces his own first. Then the place is kept, and
// nobody takes it; but a door keeps no more than is free, so that one always leaves some for the others. A door without
// a name is everybody's, and has no such bound.
package room

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// A Room has a number of units. Make one with New.
type Room struct {
	// mu protects all below. Whoever comes waits for it, so it is held for few steps, however many places there are.
	mu      sync.Mutex
	size    int64
	lent    group  // all that is lent
	growths uint64 // of places that are lent something
	steps   int    // comparisons of groups, for tests
	kept    map[string]int64
	keptAll int64 // the sum of kept, which is by door
}

// New returns a room with size units.
func New(size int64) *Room {
	r := &Room{size: size, kept: make(map[string]int64)}
	r.lent.room = r
	return r
}

// A Place is what a request holds in a room.
type Place struct {
	room       *Room
	door, from string
	cut        func()
	held       int64
	lent       *group // nil: it is lent nothing
	isKept     bool
	displaced  bool
}

// Place returns a place that holds nothing yet. Door is what senders want to reach, such as a hook, or who they are; from
// is where a request comes from. Cut ends the reading of the request if what it holds is needed: it is called at most
// once, before Keep and Leave return, and must not wait.
func (r *Room) Place(door, from string, cut func()) *Place {
	return &Place{room: r, door: door, from: from, cut: cut}
}

// PlaceOf is Place for a request that is being answered. If it is displaced, the reading of its body ends.
func (r *Room) PlaceOf(door string, w http.ResponseWriter, req *http.Request) *Place {
	conn := http.NewResponseController(w)
	return r.Place(door, networkOf(req.RemoteAddr), func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // it has passed
}

// EnterRequest is PlaceOf with one unit. It returns nil if all are kept.
func (r *Room) EnterRequest(door string, w http.ResponseWriter, req *http.Request) *Place {
	if p := r.PlaceOf(door, w, req); p.Grow(1) {
		return p
	}
	return nil
}

// networkOf returns the part of an address that its user can't choose: with IPv6 a whole network is one user's.
func networkOf(remote string) string {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := peer.Addr().Unmap()
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64) // an address of IPv6 has as many bits
	return network.String()
}

// displace takes away what is lent to who has most. It reports false if that is p itself, whose reading its caller ends.
func (r *Room) displace(p *Place) bool {
	first := &r.lent
	for first.place == nil {
		first = first.parts[0]
	}
	out := first.place
	r.remove(out)
	out.held, out.displaced = 0, true
	if out == p {
		return false
	}
	out.cut()
	return true
}

// lend adds n units to what a place is lent.
func (r *Room) lend(p *Place, n int64) {
	if p.lent == nil {
		p.lent = r.lent.part(p.door).part(p.from).add(&group{place: p})
	}
	r.growths++
	p.lent.grown = r.growths
	p.held += n
	p.lent.changed(n)
}

// remove takes a place out of those that are lent, if it is one. What it holds is still to be set.
func (r *Room) remove(p *Place) {
	if p.lent != nil {
		p.lent.place = nil
		p.lent.changed(-p.held)
		p.lent = nil
	}
}

// Displaced reports whether what the place was lent went to another.
func (p *Place) Displaced() bool {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	return p.displaced
}

// Grow takes n more units, which are lent until the place is kept. It reports false, and the place has what it had, if
// they are not there; or if it is the place itself that is displaced, because its address has the most and no other place.
func (p *Place) Grow(n int64) bool {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.isKept && r.keptAll+n <= r.size:
		p.held += n
		r.keptAll += n
		r.kept[p.door] += n
	case !p.isKept && !p.displaced && r.keptAll+p.held+n <= r.size:
		r.lend(p, n)
	default:
		return false
	}
	for r.keptAll+r.lent.sum > r.size {
		if !r.displace(p) {
			return false
		}
	}
	return true
}

// Keep keeps what the place has until Leave. It reports false, and the place has nothing, if it was displaced before or
// if the door would keep more than is free.
func (p *Place) Keep() bool {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p)
	if p.displaced || p.door != "" && r.kept[p.door]+p.held > r.size-r.keptAll {
		p.held = 0
		return false
	}
	p.isKept = true
	r.kept[p.door] += p.held
	r.keptAll += p.held
	return true
}

// Shrink gives back n units of a place that is kept.
func (p *Place) Shrink(n int64) {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	p.shrink(n)
}

// shrink is Shrink while the room is locked.
func (p *Place) shrink(n int64) {
	r := p.room
	p.held -= n
	r.keptAll -= n
	if r.kept[p.door] -= n; r.kept[p.door] == 0 {
		delete(r.kept, p.door)
	}
}

// Leave gives back all. It may be called again.
func (p *Place) Leave() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.isKept {
		p.shrink(p.held)
	} else {
		r.remove(p)
	}
	p.isKept, p.held = false, 0
}
