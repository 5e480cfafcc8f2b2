package repair

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// A Script is what is known of a script before it is tried.
type Script struct {
	Definition keep.Definition
	Files      []string        // that it is made of
	Calls      []keep.ToolName // that it mentions
	Names      []string        // that stand for ctx, for what it has, or for a function that uses it

	Keys map[keep.HandlerName]string // texts of the functions that give order keys
	Code map[keep.HandlerName]string // texts of the other functions of handlers
}

// Rekeyed returns a sentence for each consumer that computes order keys otherwise than in base. Which
// events wait for one another may show only with one that no run had.
func Rekeyed(base, now Script) []string {
	var out []string
	for _, h := range slices.Sorted(maps.Keys(base.Keys)) {
		if now.Keys[h] != base.Keys[h] {
			out = append(out, fmt.Sprintf("key of %s is another function, and which events wait for one another may show only with another event", h))
		}
	}
	return out
}

// Admit returns why a script may not be proposed in the place of base, in sentences; none: it
// may. The grant is that of the workflow; the zero Grant: none was ever given, and it may call
// what base calls.
func Admit(base, now Script, g keep.Grant) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	was, is := base.Definition, now.Definition
	if is.Name != was.Name {
		say("its name is %q, not %q", is.Name, was.Name)
	}
	if is.Was != was.Was || is.New != was.New {
		say("it says something else about the name that it had before")
	}
	if is.OnBlocked != was.OnBlocked {
		say("onBlocked was %q and is %q", was.OnBlocked, is.OnBlocked)
	}
	if !slices.Equal(is.Topics, was.Topics) {
		say("its topics are %q, not %q", is.Topics, was.Topics)
	}
	if !slices.Equal(is.Called, was.Called) || !slices.Equal(is.NewTopics, was.NewTopics) {
		say("it says something else about the names that its topics had before")
	}
	for _, h := range was.Handlers {
		other, ok := is.Handler(h.Name)
		if !ok {
			say("the %s %s is gone", h.Kind, h.Name)
			continue
		}
		out = append(out, otherHandler(h, other)...)
	}
	for _, h := range is.Handlers {
		if _, ok := was.Handler(h.Name); !ok {
			say("the %s %s is new", h.Kind, h.Name)
		}
	}
	for _, f := range now.Files {
		if !slices.Contains(base.Files, f) {
			say("it is made of another file, %s", f)
		}
	}
	for _, tool := range now.Calls {
		if granted(base, g, tool) {
			continue
		}
		say("it calls %s, which the workflow may not", tool)
	}
	return out
}

// granted reports whether a tool may be called.
func granted(base Script, g keep.Grant, tool keep.ToolName) bool {
	if g.N == 0 {
		return slices.Contains(base.Calls, tool)
	}
	return g.Covers(tool)
}

// otherHandler says in what two handlers of one name differ.
func otherHandler(was, is keep.Handler) []string {
	var out []string
	say := func(what string) { out = append(out, fmt.Sprintf("%s of %s is another", what, was.Name)) }
	if is.Kind != was.Kind {
		return []string{fmt.Sprintf("%s was a %s and is a %s", was.Name, was.Kind, is.Kind)}
	}
	if is.Schedule != was.Schedule {
		say("the schedule")
	}
	if !slices.Equal(is.Subscribe, was.Subscribe) {
		say("what is subscribed to")
	}
	if !slices.Equal(is.Publishes, was.Publishes) || (is.Publishes == nil) != (was.Publishes == nil) {
		say("what may be published")
	}
	if is.Order != was.Order {
		say("the order")
	}
	if is.HasMutate != was.HasMutate || is.HasNext != was.HasNext {
		say("the set of phases")
	}
	if is.ItemsOf() != was.ItemsOf() || is.New != was.New {
		say("the name that it had before")
	}
	return out
}
