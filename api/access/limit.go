package access

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Who guesses gets this many tries at once, and then one per period.
const (
	maxTries = 10
	tryEvery = 6 * time.Second
)

// maxPlaces is how many addresses are remembered (law: bounded). Beyond it all
// new ones share one allowance.
const maxPlaces = 4096

// A limiter bounds failed tries by address.
type limiter struct {
	mu     sync.Mutex // protects places
	places map[netip.Prefix]allowance
}

// An allowance is how many tries were left at a time.
type allowance struct {
	left float64
	at   time.Time
}

// refill returns an allowance as it is now.
func (a allowance) refill(now time.Time) allowance {
	a.left = min(maxTries, a.left+float64(now.Sub(a.at))/float64(tryEvery))
	a.at = now
	return a
}

// place returns what stands for the sender: his address, or the network of 64
// bits that one sender has in IPv6.
func place(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if addr = addr.Unmap(); addr.Is4() {
		bits = 32
	}
	p, _ := addr.WithZone("").Prefix(bits)
	return p
}

// allows reports whether the sender may try once more.
func (l *limiter) allows(remote string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, known := l.places[l.known(place(remote))]
	return !known || a.refill(now).left >= 1
}

// failed counts a try that was wrong.
func (l *limiter) failed(remote string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) >= maxPlaces {
		l.forget(now)
	}
	p := l.known(place(remote))
	a, known := l.places[p]
	if !known {
		a = allowance{maxTries, now}
	}
	a = a.refill(now)
	a.left = max(a.left-1, 0)
	if l.places == nil {
		l.places = make(map[netip.Prefix]allowance)
	}
	l.places[p] = a
}

// known returns p, or the place of all when too many are remembered.
func (l *limiter) known(p netip.Prefix) netip.Prefix {
	if _, ok := l.places[p]; !ok && len(l.places) >= maxPlaces {
		return netip.Prefix{}
	}
	return p
}

// forget drops those that have all their tries again.
func (l *limiter) forget(now time.Time) {
	for p, a := range l.places {
		if a.refill(now).left >= maxTries {
			delete(l.places, p)
		}
	}
}
