package room_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keep-run/keep/internal/room"
)

// enter lends a place, and appends its name to out when it is displaced.
func enter(t *testing.T, r *room.Room, door, from string, out *[]string) *room.Place {
	t.Helper()
	p := r.Place(door, from, func() { *out = append(*out, door+from) })
	if !p.Grow(1) {
		t.Fatalf("%s%s got no place", door, from)
	}
	return p
}

func TestDisplaced(t *testing.T) {
	t.Parallel()
	for want, entered := range map[string][]string{
		"[a1]": {"a1", "b1", "c1", "d1"}, // the oldest of equal ones
		"[b1]": {"a1", "b1", "b2", "c1"}, // of the door with the most, though another is older
		"[b2]": {"b1", "b2", "b2", "c1"}, // of the address with the most
	} {
		var out []string
		r := room.New(3)
		for _, name := range entered {
			enter(t, r, name[:1], name[1:], &out)
		}
		if fmt.Sprint(out) != want {
			t.Errorf("%v: %v went out, want %s", entered, out, want)
		}
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	var out []string
	r := room.New(8)
	var kept []*room.Place
	keep := func(door string, want int) {
		t.Helper()
		n := 0
		for {
			p := enter(t, r, door, "", &out)
			if !p.Keep() {
				break
			}
			kept, n = append(kept, p), n+1
		}
		if n != want {
			t.Errorf("%s kept %d places, want %d", door, n, want)
		}
	}
	keep("a", 4) // of 8
	keep("b", 2) // of 4
	keep("c", 1) // of 2
	if len(out) > 0 {
		t.Errorf("%v went out of a room with places", out)
	}
	first, second := enter(t, r, "d", "", &out), enter(t, r, "e", "", &out)
	if !slices.Equal(out, []string{"d"}) || first.Keep() || !second.Keep() {
		t.Errorf("%v went out, want d alone, which then has no place to keep", out)
	}
	if r.Place("f", "", nil).Grow(1) {
		t.Error("a room all of whose places are kept gave another")
	}
	kept[0].Leave()
	kept[0].Leave()
	first.Leave()
	if p := enter(t, r, "f", "", &out); !p.Keep() || r.Place("f", "", nil).Grow(1) {
		t.Error("one place that was given back is not one place")
	}
}

// What is taken in parts goes to others in parts, too: who has most of it is displaced, and of those of one address who
// grew least recently.
func TestGrow(t *testing.T) {
	t.Parallel()
	var out []string
	r := room.New(100)
	place := func(name string) *room.Place {
		return r.Place("", name[:1], func() { out = append(out, name) })
	}
	grow := func(p *room.Place, n int64, want bool, displaced ...string) {
		t.Helper()
		if out = nil; p.Grow(n) != want || !slices.Equal(out, displaced) {
			t.Errorf("growing by %d: not %t, or %v went out, want %v", n, want, out, displaced)
		}
	}
	a1, a2, b, c := place("a1"), place("a2"), place("b"), place("c")
	grow(a1, 30, true)
	grow(a2, 30, true)
	grow(b, 30, true)
	grow(a1, 5, true)
	grow(c, 10, true, "a2") // which grew before a1
	grow(a2, 1, false)
	grow(c, 91, false)  // there is not that much, and nobody is displaced for it
	grow(a1, 30, false) // it would have the most, with no other place
	grow(b, 60, true)
	if a1.Keep() || a2.Keep() || !b.Keep() {
		t.Error("who was displaced kept its place, or another did not")
	}
	grow(b, 5, true, "c") // what is kept goes before what is lent
	b.Shrink(50)
	d := place("d")
	grow(d, 60, false)
	grow(d, 55, true)
	b.Leave()
	if grow(d, 45, true); !d.Keep() {
		t.Error("a door without a name does not keep all")
	}
}

// What one request costs that displaces others grows with how many it displaces, not with how many there are: all others wait
// meanwhile.
func TestStepsOfOneGrow(t *testing.T) {
	t.Parallel()
	for _, addresses := range []int{1, 100, 16000} {
		const tiny, large = 16000, 8000
		r := room.New(2*tiny + 2*large)
		out := 0
		lend := func(from string, n int64) *room.Place {
			p := r.Place("", from, func() { out++ })
			if !p.Grow(n) {
				t.Fatalf("%s got no place", from)
			}
			return p
		}
		for i := range tiny {
			lend(fmt.Sprint("a", i%addresses), 2)
		}
		lend("a0", 2*large)
		before := r.Steps()
		if lend("b", 200); out == 0 || out > 100 {
			t.Errorf("%d addresses: %d were displaced for 200 units", addresses, out)
		}
		if steps := r.Steps() - before; steps > 100*100 {
			t.Errorf("%d addresses: %d steps, with %d displaced", addresses, steps, out)
		}
	}
}

// A lent is a place as a test knows it.
type lent struct {
	door, from string
	held       int64
	place      *room.Place
}

// sum adds up what those have that are of it.
func sum(all []*lent, of func(*lent) bool) (n int64) {
	for _, l := range all {
		if of(l) {
			n += l.held
		}
	}
	return n
}

// The sums that a room keeps say the same as all places added up.
func TestDisplacedOfMany(t *testing.T) {
	t.Parallel()
	const size = 200
	random := rand.New(rand.NewPCG(1, 2))
	r := room.New(size)
	var order, out []*lent // order: who grew least recently is the first
	for round := range 20000 {
		var l *lent
		if i := random.IntN(len(order) + 2); i < len(order) {
			l = order[i]
			order = slices.Delete(order, i, i+1)
		} else {
			l = &lent{door: fmt.Sprint(random.IntN(3)), from: fmt.Sprint(random.IntN(4))}
			l.place = r.Place(l.door, l.from, func() { out = append(out, l) })
		}
		if random.IntN(4) == 0 {
			l.place.Leave()
			continue
		}
		n := int64(1 + random.IntN(20))
		l.held += n
		order = append(order, l)
		var want []*lent
		grew := true
		for grew && sum(order, func(*lent) bool { return true }) > size {
			next := slices.MaxFunc(order, func(a, b *lent) int {
				return cmp.Or(
					cmp.Compare(sum(order, func(l *lent) bool { return l.door == a.door }), sum(order, func(l *lent) bool { return l.door == b.door })),
					cmp.Compare(sum(order, func(l *lent) bool { return l.door == a.door && l.from == a.from }), sum(order, func(l *lent) bool { return l.door == b.door && l.from == b.from })))
			})
			order = slices.DeleteFunc(order, func(l *lent) bool { return l == next })
			if grew = next != l; grew {
				want = append(want, next)
			}
		}
		out = nil
		if l.place.Grow(n) != grew || !slices.Equal(out, want) {
			t.Fatalf("round %d: %d were displaced, want %d, and %t", round, len(out), len(want), grew)
		}
	}
}
