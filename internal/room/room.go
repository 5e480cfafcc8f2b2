// Package room bounds how many requests are read and worked on at once, so that whoever holds places keeps nobody
// else out.
//
// A request takes a place before its body is read. Until the body is there and its sender is verified the place is
// lent: if the room is full, the next request displaces one whose place is lent. Which one: of the door with the most
// of them, of the address there with the most of them, the oldest. So half a body, which costs its sender nothing,
// holds a place only as long as nobody wants it, and a sender displaces his own first. Then the place is kept, and
// nobody takes it; but a door keeps no more places than are free, so that one always leaves some for the others.
package room

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Room has a number of places. Make one with New.
type Room struct {
	// mu protects all below.
	mu   sync.Mutex
	size int
	lent []*Place       // the oldest first
	kept map[string]int // by door
	all  int            // the sum of kept
}

// New returns a room with size places.
func New(size int) *Room { return &Room{size: size, kept: make(map[string]int)} }

// A Place is what a request holds in a room.
type Place struct {
	room       *Room
	door, from string
	cut        func()
	isKept     bool
	displaced  bool
}

// Enter lends a place. Door is what senders want to reach, such as a hook, or who they are; from is where a request
// comes from. Cut ends the reading of the request if its place is needed: it is called at most once, before Keep and
// Leave return, and must not wait. Enter returns nil if all places are kept.
func (r *Room) Enter(door, from string, cut func()) *Place {
	p := &Place{room: r, door: door, from: from, cut: cut}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= r.size {
		return nil
	}
	if r.all+len(r.lent) >= r.size {
		r.displace()
	}
	r.lent = append(r.lent, p)
	return p
}

// EnterRequest is Enter for a request that is being answered. A place that is displaced ends the reading of its body.
func (r *Room) EnterRequest(door string, w http.ResponseWriter, req *http.Request) *Place {
	conn := http.NewResponseController(w)
	return r.Enter(door, networkOf(req.RemoteAddr), func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // it has passed
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

// displace takes a place from who has most of those that are lent.
func (r *Room) displace() {
	doors, addresses := make(map[string]int), make(map[[2]string]int)
	for _, p := range r.lent {
		doors[p.door]++
		addresses[[2]string{p.door, p.from}]++
	}
	out := slices.MaxFunc(r.lent, func(p, q *Place) int { // of equal ones the first, which is the oldest
		return cmp.Or(cmp.Compare(doors[p.door], doors[q.door]),
			cmp.Compare(addresses[[2]string{p.door, p.from}], addresses[[2]string{q.door, q.from}]))
	})
	r.remove(out)
	out.displaced = true
	out.cut()
}

// remove takes a place out of those that are lent, and reports whether it was one.
func (r *Room) remove(p *Place) bool {
	i := slices.Index(r.lent, p)
	if i >= 0 {
		r.lent = slices.Delete(r.lent, i, i+1)
	}
	return i >= 0
}

// Displaced reports whether the place went to another.
func (p *Place) Displaced() bool {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	return p.displaced
}

// Keep keeps the place until Leave. It reports false, and the place is gone, if it was displaced before or if the door
// keeps as many places as are free.
func (p *Place) Keep() bool {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.remove(p) || r.kept[p.door] >= r.size-r.all {
		return false
	}
	p.isKept = true
	r.kept[p.door]++
	r.all++
	return true
}

// Leave gives the place back. It may be called again.
func (p *Place) Leave() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p)
	if !p.isKept {
		return
	}
	p.isKept = false
	r.all--
	if r.kept[p.door]--; r.kept[p.door] == 0 {
		delete(r.kept, p.door)
	}
}
