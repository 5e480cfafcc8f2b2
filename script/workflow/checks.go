package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

// The checks of this file read the arguments of calls. What they cannot read, such as
// a spread or the result of a function, is no finding.

// severity of a tool that a phase forbids. A change in a phase that reads or publishes
// can never work; a call that is only mentioned, or a name that may mean something else
// in an inner function, may.
func severity(where policy.Place, e connector.Effect, called bool) Severity {
	reads := where == policy.InPrepare || where == policy.InProducer || where == policy.InNext
	if called && reads && e == connector.Mutate {
		return Error
	}
	return Warning
}

// literal returns the properties of an argument that is an object literal. It reports
// false if it is not, or has properties that cannot be read.
func (f *file) literal(arg span) (properties map[string]span, ok bool) {
	if !f.tokens[arg.value].is("{") || f.match(arg.value) != arg.end-1 {
		return nil, false
	}
	properties = make(map[string]span)
	for _, part := range f.parts(arg.value) {
		k := f.keyOf(part)
		key := f.keyText(k)
		if key == "" || f.tokens[part.key].is("...") || f.tokens[part.key].is("[") && f.tokens[k].kind != tString {
			return nil, false
		}
		properties[key] = f.keyed(part)
	}
	return properties, true
}

// says reports whether a value is exactly that one word.
func (f *file) says(s span, word string) bool {
	return s.end-s.value == 1 && s.value != s.key && f.tokens[s.value].text == word
}

// message checks the message of a publish, whose call is at token i.
func (w *walk) message(args []span, where policy.Place, i int) {
	if slices.ContainsFunc(args, func(a span) bool { return w.f.tokens[a.value].is("...") }) {
		return
	}
	properties := map[string]span{}
	if len(args) > 1 {
		var ok bool
		if properties, ok = w.f.literal(args[1]); !ok {
			return
		}
	}
	id, given := properties["messageId"]
	if given && !w.f.says(id, "undefined") {
		w.stable(id, where, "a messageId")
		return
	}
	once, said := properties["once"]
	if where != policy.InProducer || said && !w.f.says(once, "true") {
		return
	}
	w.find(Error, NoMessageID, w.position(i), where, "a producer's publish needs a messageId: what is read again would be handled again without one",
		"take the id that the service gave the thing, or write once: false if each publish is meant to be an event of its own")
}

// params checks the params of a tool whose call is from token i on, with its bracket at
// token open.
func (w *walk) params(t ToolReport, where policy.Place, i, open int) {
	spec := w.specs[t.Tool]
	args := w.f.parts(open)
	properties := map[string]span{}
	if len(args) > 0 {
		var ok bool
		if properties, ok = w.f.literal(args[0]); !ok {
			return
		}
	}
	var missing []string
	for _, name := range w.needs[t.Tool] {
		if _, ok := properties[name]; !ok {
			missing = append(missing, fmt.Sprintf("%q", name))
		}
	}
	if len(missing) > 0 {
		w.find(Error, MissingParam, w.position(i), where, fmt.Sprintf("%s needs %s", t.Tool, join(missing)), "")
	}
	if spec.Effect != connector.Mutate {
		return
	}
	for _, name := range append([]string{"subkey"}, spec.Identity...) {
		if p, ok := properties[name]; ok {
			w.stable(p, where, fmt.Sprintf("%q, which says what %s changes,", name, t.Tool))
		}
	}
}

// stable warns about an id that is made of time or chance: it is another one each time
// that the same thing is handled.
func (w *walk) stable(s span, where policy.Place, what string) {
	const hops = 3 // through names
	if by := w.unstable(s, hops); by != "" {
		w.find(Warning, UnstableID, w.position(s.value), where, fmt.Sprintf("%s is made of %s, so it is another one each time", what, by),
			"use what the service calls the thing")
	}
}

// unstable returns what of time or chance is in an expression, or nothing.
func (w *walk) unstable(s span, hops int) string {
	const longest = 200 // tokens
	toks := w.f.tokens
	for i := s.value; i < min(s.end, s.value+longest); i++ {
		if toks[i].kind != tName || i > 0 && (toks[i-1].is(".") || toks[i-1].is("?.")) {
			continue
		}
		member := func(name string) bool { return i+2 < len(toks) && toks[i+1].is(".") && toks[i+2].text == name }
		switch text := toks[i].text; {
		case text == "Date":
			return "Date"
		case text == "Math" && member("random"):
			return "Math.random"
		case text == "crypto" && (member("randomUUID") || member("getRandomValues")):
			return "crypto." + toks[i+2].text
		}
		if way, _, ok := w.chain(i); ok && len(way) == 1 && way[0] == "now" {
			return "ctx.now()"
		}
		if i+1 < s.end && toks[i+1].is(":") {
			continue // the key of a property
		}
		if value, ok := w.initial(toks[i].text); ok && hops > 0 {
			if by := w.unstable(value, hops-1); by != "" {
				return by
			}
		}
	}
	return ""
}

// initial returns what a const of the function at hand is given, if the function
// declares one of that name and no other does.
func (w *walk) initial(name string) (span, bool) {
	if w.initials == nil {
		w.initials = make(map[string]int)
		toks := w.f.tokens
		for i := 1; i+2 < len(toks); i++ {
			if toks[i].kind != tName || !w.f.isName(i-1, "const") && !w.f.isName(i-1, "let") && !w.f.isName(i-1, "var") {
				continue
			}
			if _, twice := w.initials[toks[i].text]; twice || i < w.from || i >= w.to || !toks[i+1].is("=") || w.f.looksLikeFunction(i+2) {
				w.initials[toks[i].text] = -1
				continue
			}
			w.initials[toks[i].text] = i
		}
	}
	i, ok := w.initials[name]
	if !ok || i < 0 {
		return span{}, false
	}
	return span{key: i, value: i + 2, end: w.f.statementEnd(i + 2)}, true
}

// statementEnd returns the token after the expression that begins at token i, of which a
// line may be the end.
func (f *file) statementEnd(i int) int {
	end := f.expressionEnd(i)
	for j := i; j < end; j++ {
		if f.tokens[j].opens() {
			j = f.match(j)
		}
		if j+1 < end && f.beginsStatement(j+1) {
			return j + 1
		}
	}
	return end
}

// beginsStatement reports whether the line of token i may be another statement than the token before it.
func (f *file) beginsStatement(i int) bool {
	complete := f.tokens[i-1].kind != tPunct || f.tokens[i-1].closes()
	return complete && f.tokens[i].kind == tName && f.lineOf(i) > f.lineOf(i-1)
}

// guard notes a handler of an item that does not look whether the item is done.
func (w *walk) guard(s span) {
	for i := s.value; i < s.end; i++ {
		if w.f.isName(i, "isDone") || w.f.isName(i, "status") && w.f.isName(i-2, "item") {
			return
		}
	}
	w.unguarded = append(w.unguarded, s)
}

// guarded warns about the first change in each handler of an item that does not look
// whether the item is done: when the job comes to it again, the call fails.
func (w *walk) guarded() {
	for _, s := range w.unguarded {
		for i := s.value; i < s.end; i++ {
			way, end, ok := w.chain(i)
			if !ok || len(way) < 2 || end >= len(w.f.tokens) || !w.f.tokens[end].is("(") {
				continue
			}
			if t, known := w.tools[toolName(way)]; known && t.Effect == connector.Mutate {
				w.find(Warning, UnguardedMutation, w.position(i), policy.InItem, fmt.Sprintf("%s is called whether or not the item is done, and fails in one that is", t.Tool),
					"begin the handler with if (ctx.item.isDone) return")
				break
			}
		}
	}
}

// absentFunctions and absentObjects are what scripts elsewhere have, and what to use
// here.
var (
	absentFunctions = map[string]string{
		"fetch":        "use a tool of a connection",
		"require":      "use import, of files in the project",
		"setTimeout":   "return wakeAt from prepare, or give the handler a schedule",
		"setInterval":  "give the handler a schedule",
		"setImmediate": "await what must come first",
		"alert":        "use ctx.log",
	}
	absentObjects = map[string]string{
		"process":        "put what is configured into keep.toml, and secrets into its connections",
		"Buffer":         "use TextEncoder, TextDecoder, atob and btoa",
		"Deno":           "use a tool of a connection",
		"Bun":            "use a tool of a connection",
		"window":         "",
		"document":       "",
		"localStorage":   "use ctx.kv in a producer",
		"sessionStorage": "use ctx.kv in a producer",
		"performance":    "use ctx.now()",
	}
)

// absent warns about a global of other hosts that the sandbox has not. Names that the
// file gives a meaning of its own are left in peace.
func (w *walk) absent(i int) {
	toks := w.f.tokens
	if toks[i].kind != tName || i+1 >= w.to || i > 0 && (toks[i-1].is(".") || toks[i-1].is("?.") || w.f.isName(i-1, "function")) {
		return
	}
	fix, function := absentFunctions[toks[i].text]
	objectFix, object := absentObjects[toks[i].text]
	switch {
	case function && toks[i+1].is("("):
	case object && (toks[i+1].is(".") || toks[i+1].is("[")):
		fix = objectFix
	default:
		return
	}
	if !w.f.binds(toks[i].text) {
		w.find(Warning, UnknownGlobal, w.position(i), w.placeAt(i), "scripts have no "+toks[i].text, fix)
	}
}

// binds reports whether a file may give a name a meaning of its own, or asks whether it
// has one: it is not only called, or looked into.
func (f *file) binds(name string) bool {
	binds, known := f.bound[name]
	if !known {
		binds = f.findBinding(name)
		f.bound[name] = binds
	}
	return binds
}

func (f *file) findBinding(name string) bool {
	for i, t := range f.tokens {
		if t.kind != tName || t.text != name || i > 0 && (f.tokens[i-1].is(".") || f.tokens[i-1].is("?.")) {
			continue
		}
		used := i+1 < len(f.tokens) && (f.tokens[i+1].is("(") || f.tokens[i+1].is(".") || f.tokens[i+1].is("?.") || f.tokens[i+1].is("["))
		method := i > 0 && i+1 < len(f.tokens) && f.tokens[i+1].is("(") && (f.tokens[i-1].is("{") || f.tokens[i-1].is(",") || f.isName(i-1, "async")) &&
			f.match(i+1)+1 < len(f.tokens) && f.tokens[f.match(i+1)+1].is("{")
		if !used || method || f.isName(i-1, "function") {
			return true
		}
	}
	return false
}

// unread warns about each topic that no consumer subscribes to.
func (r *reader) unread(at location, root value) {
	topics, ok := root.get("topics")
	if !ok {
		return
	}
	for _, t := range r.def.Topics {
		if slices.ContainsFunc(r.def.Handlers, func(h keep.Handler) bool { return slices.Contains(h.Subscribe, t) }) {
			continue
		}
		r.h = keep.Handler{}
		r.find(Warning, NobodyReads, r.files.find(at.key("topics").of(topics).key(string(t))), "",
			fmt.Sprintf("no consumer subscribes to topic %q: what is published there is kept, and nothing is done about it", short(string(t))), "")
	}
}

// toolName returns the name of the tool that a way from ctx leads to.
func toolName(way []string) keep.ToolName { return keep.ToolName(strings.Join(way[:2], ".")) }
