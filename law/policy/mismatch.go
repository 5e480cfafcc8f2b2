package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// A Mismatch is a connection that is not the same on all hosts of a database.
type Mismatch struct {
	Connection string
	Ways       [][]keep.Host // hosts that have it alike, most hosts first
	Without    []keep.Host   // hosts that have no such connection
}

// Mismatches compares the connections of the hosts that are there at now. A host of a
// version that does not say what it has is left out.
func Mismatches(hosts []keep.Host, now time.Time) (list []Mismatch) {
	names := make(map[string]bool)
	var there []keep.Host
	for _, h := range hosts {
		if h.Connections == nil || !h.Until.After(now) {
			continue
		}
		there = append(there, h)
		for name := range h.Connections {
			names[name] = true
		}
	}
	slices.SortFunc(there, func(a, b keep.Host) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(names)) {
		m := Mismatch{Connection: name}
		ways := make(map[string][]keep.Host)
		for _, h := range there {
			if how, has := h.Connections[name]; has {
				ways[how] = append(ways[how], h)
			} else {
				m.Without = append(m.Without, h)
			}
		}
		for _, how := range slices.Sorted(maps.Keys(ways)) {
			m.Ways = append(m.Ways, ways[how])
		}
		slices.SortStableFunc(m.Ways, func(a, b []keep.Host) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Name, b[0].Name))
		})
		if len(m.Ways) > 1 || len(m.Without) > 0 {
			list = append(list, m)
		}
	}
	return list
}

// Of reports whether h is among the hosts that were compared.
func (m Mismatch) Of(h keep.HostID) bool {
	return slices.ContainsFunc(append(m.Ways, m.Without), func(hs []keep.Host) bool {
		return slices.ContainsFunc(hs, func(o keep.Host) bool { return o.ID == h })
	})
}

// String says it in a sentence for people.
func (m Mismatch) String() string {
	var parts []string
	for i, way := range m.Ways {
		word := " another way"
		if i == 0 {
			word = " one way"
		}
		parts = append(parts, namesOf(way)+word)
	}
	if len(m.Without) > 0 {
		parts = append(parts, namesOf(m.Without)+" without it")
	}
	return fmt.Sprintf("connection %s is not the same on all hosts: %s", m.Connection, strings.Join(parts, "; "))
}

func namesOf(hosts []keep.Host) string {
	var names []string
	for _, h := range hosts {
		names = append(names, cmp.Or(h.Name, string(h.ID)))
	}
	return strings.Join(names, ", ")
}
