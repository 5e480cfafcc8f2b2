package repair

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// An Effect is a call, an event that is published, or an item that is begun.
type Effect struct {
	Name   string          // of the tool, or such as "publish orders" and "item sync"
	Call   bool            // of a mutate tool
	Values json.RawMessage // an object: identity, payload, subkey; or id and payload
}

// Sources are what an effect is made of: the events and the answers of a run, by a name such as
// "event mail" or "crm.find".
type Sources map[string][]json.RawMessage

// A Neighbour is a run of the same handler whose work is done.
type Neighbour struct {
	Effects  []Effect
	Sources  Sources
	Reserved int
}

// Unlike returns in what the effects of a run are not like those of its neighbours, in sentences.
// Was and is are the texts of the script before and now.
func Unlike(s Shadow, neighbours []Neighbour, was, is string) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(neighbours) == 0 {
		return nil // the verdict is not safe for that reason
	}
	most := 0
	for _, n := range neighbours {
		most = max(most, n.Reserved)
	}
	if s.Reserved > most {
		say("it reserves %d events, and runs that are done had %d at most", s.Reserved, most)
	}
	calls := count(s.Effects, func(e Effect) bool { return e.Call })
	for _, name := range names(neighbours) {
		had := slices.ContainsFunc(s.Effects, func(e Effect) bool { return e.Name == name })
		all := !slices.ContainsFunc(neighbours, func(n Neighbour) bool { return count(n.Effects, named(name)) == 0 })
		isCall := slices.ContainsFunc(neighbours, func(n Neighbour) bool {
			return slices.ContainsFunc(n.Effects, func(e Effect) bool { return e.Name == name && e.Call })
		})
		switch {
		case had:
		case isCall && calls == 0:
			say("it comes through without %s, which its neighbours have", name)
		case !isCall && all && s.Whole:
			say("it comes through without %s, which all its neighbours have", name)
		}
	}
	for _, e := range s.Effects {
		out = append(out, unlikeOne(e, s, neighbours, was, is)...)
	}
	return out
}

func named(name string) func(Effect) bool { return func(e Effect) bool { return e.Name == name } }

func count(list []Effect, f func(Effect) bool) (n int) {
	for _, e := range list {
		if f(e) {
			n++
		}
	}
	return n
}

// names returns the names of all effects of neighbours, sorted.
func names(neighbours []Neighbour) (list []string) {
	for _, n := range neighbours {
		for _, e := range n.Effects {
			list = append(list, e.Name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// A pair is an effect of a neighbour with what it was made of.
type pair struct {
	values  values
	sources values
}

// unlikeOne compares one effect with those of its name.
func unlikeOne(e Effect, s Shadow, neighbours []Neighbour, was, is string) (out []string) {
	say := func(format string, args ...any) { out = append(out, e.Name+": "+fmt.Sprintf(format, args...)) }
	var pairs []pair
	most := 0
	for _, n := range neighbours {
		most = max(most, count(n.Effects, named(e.Name)))
		for _, o := range n.Effects {
			if o.Name == e.Name {
				pairs = append(pairs, pair{flatten(o.Values), n.Sources.flatten()})
			}
		}
	}
	if len(pairs) == 0 {
		say("no run that is done had this")
		return out
	}
	if n := count(s.Effects, named(e.Name)); n > most {
		say("it is there %d times, and %d times at most in runs that are done", n, most)
	}
	mine, own := flatten(e.Values), s.Sources.flatten()
	for _, path := range mine.paths() {
		if why := unlikeValue(path, mine[path], own, pairs, was, is); why != "" {
			say("%s", why)
		}
	}
	for _, path := range pairs[0].values.paths() {
		everywhere := !slices.ContainsFunc(pairs, func(p pair) bool { return p.values[path] == nil })
		if everywhere && mine[path] == nil {
			say("it lacks %s, which all runs that are done had", path)
		}
	}
	return out
}

// unlikeValue returns why the values at a path are not like those of the neighbours; empty: they
// are.
func unlikeValue(path string, mine []string, own values, pairs []pair, was, is string) string {
	var there []pair
	for _, p := range pairs {
		if p.values[path] != nil {
			there = append(there, p)
		}
	}
	if len(there) == 0 {
		return fmt.Sprintf("%s is something that no run that is done had", path)
	}
	same := !slices.ContainsFunc(there, func(p pair) bool { return !slices.Equal(p.values[path], there[0].values[path]) })
	if same && len(there) > 1 {
		if !slices.Equal(mine, there[0].values[path]) {
			return fmt.Sprintf("%s is another than in all runs that are done", path)
		}
		return ""
	}
	if slices.ContainsFunc(there, func(p pair) bool { return slices.Equal(p.values[path], mine) }) && same {
		return "" // the one neighbour has it
	}
	for _, v := range mine {
		if brings(is, v) && !brings(was, v) {
			return fmt.Sprintf("%s has a value that the script brings itself, and not its data", path)
		}
	}
	if same {
		return "" // one neighbour says nothing of where it comes from
	}
	return fromElsewhere(path, mine, own, there)
}

// fromElsewhere says whether values come from other places than those of the neighbours.
func fromElsewhere(path string, mine []string, own values, there []pair) string {
	var from []string // where the values of all neighbours are
	for q := range there[0].sources {
		if !slices.ContainsFunc(there, func(p pair) bool {
			return slices.ContainsFunc(p.values[path], func(v string) bool { return !slices.Contains(p.sources[q], v) })
		}) {
			from = append(from, q)
		}
	}
	slices.Sort(from)
	for _, v := range mine {
		if why := originOf(v, path, from, own, there); why != "" {
			return path + why
		}
	}
	return ""
}

// originOf returns why a value does not come from where it should; empty: it does.
func originOf(v, path string, from []string, own values, there []pair) string {
	if len(from) == 0 {
		if mine := skeleton(v, own); !slices.ContainsFunc(there, func(p pair) bool {
			return slices.ContainsFunc(p.values[path], func(w string) bool { return skeleton(w, p.sources) == mine })
		}) {
			return " is not made as in runs that are done"
		}
		return ""
	}
	known := false
	for _, q := range from {
		if slices.Contains(own[q], v) {
			return ""
		}
		known = known || slices.ContainsFunc(own[q], func(v string) bool { return v != "null" && v != "" })
	}
	if known {
		return fmt.Sprintf(" does not come from %s, as in runs that are done", from[0])
	}
	switch moved := movedTo(from, kindOf(there[0].values[path][0]), own, there); {
	case len(moved) == 0 || !own.has(v):
		return fmt.Sprintf(" is nowhere in what is new, and was in %s in runs that are done", from[0])
	case len(moved) > 1:
		return fmt.Sprintf(" was in %s in runs that are done, and may be in %s now", from[0], strings.Join(moved[:min(len(moved), 5)], " or "))
	case !slices.Contains(own[moved[0]], v):
		return fmt.Sprintf(" was in %s in runs that are done, and is not what is in %s", from[0], moved[0])
	}
	return ""
}

// movedTo returns the places that no neighbour has and where a value of that kind is, which may
// be what is gone from its place: those of the same name, or else all.
func movedTo(from []string, kind string, own values, there []pair) (all []string) {
	var named []string
	for _, q := range own.paths() {
		old := slices.ContainsFunc(there, func(p pair) bool { return p.sources[q] != nil })
		if old || !slices.ContainsFunc(own[q], func(v string) bool { return kindOf(v) == kind }) {
			continue
		}
		all = append(all, q)
		if slices.ContainsFunc(from, func(f string) bool { return lastOf(f) == lastOf(q) }) {
			named = append(named, q)
		}
	}
	if len(named) > 0 {
		return named
	}
	return all
}

// lastOf returns the name at the end of a path.
func lastOf(path string) string {
	return strings.TrimSuffix(path[strings.LastIndexByte(path, '.')+1:], "[]")
}

// kindOf tells texts apart by what they look like.
func kindOf(v string) string {
	_, err := strconv.ParseFloat(strings.Replace(v, ",", ".", 1), 64)
	switch {
	case err == nil:
		return "number"
	case strings.ContainsAny(v, " \t\n"):
		return "text"
	case strings.Contains(v, "://"):
		return "address of a page"
	case strings.Contains(v, "@"):
		return "address"
	}
	return "word"
}

// skeleton returns a value without what it has from its sources: what the script adds.
func skeleton(v string, sources values) string {
	const slot = "\x00"
	var parts []string
	for _, all := range sources {
		for _, s := range all {
			if len(s) > 1 && s != "null" && strings.Contains(v, s) {
				parts = append(parts, s)
			}
		}
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, s := range slices.Compact(parts) {
		v = strings.ReplaceAll(v, s, slot)
	}
	return v
}

// places are what names somebody or something outside: addresses, pages, numbers of accounts.
var places = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)+|\w+://[^\s"'` + "`" + `]+|\b[A-Za-z]{0,4}[0-9]{6,}\b`)
})

// Brings returns the addresses, pages and long numbers in a script that the one before did not
// have: what they are for may show only later, with an event that is not there yet.
func Brings(was, is string) []string {
	var out []string
	for _, word := range places().FindAllString(is, -1) {
		if !strings.Contains(was, word) && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// brings reports whether a script has a value in its text. What is short may be there by chance.
func brings(script, value string) bool { return len(value) >= 3 && strings.Contains(script, value) }

// Values are the texts of what is at each path of a document; elements of a list have the same
// path.
type values map[string][]string

func (v values) paths() []string { return slices.Sorted(maps.Keys(v)) }

// has reports whether a value is anywhere.
func (v values) has(value string) bool {
	for _, all := range v {
		if slices.Contains(all, value) {
			return true
		}
	}
	return false
}

// flatten returns all values of all sources.
func (s Sources) flatten() values {
	out := values{}
	for name, list := range s {
		for _, raw := range list {
			out.add(name, decoded(raw))
		}
	}
	return out
}

func flatten(raw json.RawMessage) values {
	out := values{}
	out.add("", decoded(raw))
	return out
}

func decoded(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

func (v values) add(path string, x any) {
	switch x := x.(type) {
	case map[string]any:
		for key, e := range x {
			v.add(strings.TrimPrefix(path+"."+key, "."), e)
		}
	case []any:
		for _, e := range x {
			v.add(path+"[]", e)
		}
	case nil:
		v[path] = append(v[path], "null")
	default:
		v[path] = append(v[path], fmt.Sprint(x))
	}
}
