package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

// A walk reads the tokens of one function. It knows which names stand for ctx,
// for a connection or for a tool, without regard to scopes: a name means the
// same in the whole function.
type walk struct {
	*reader
	code
	where policy.Place
	names map[string][]string // way from ctx; empty: ctx itself
	outer string              // the parameter that is ctx; empty: it is taken apart, or there is none
	items []itemHandler       // given to withItem
	seen  map[string]bool     // functions of the file that were read, so that none is read twice
	calls []span              // calls of tools, to find those in a try

	unguarded []span         // handlers given to withItem that do not look at isDone
	initials  map[string]int // by name: the one token that declares it in this function, or -1
}

// builtins are the calls of ctx that are not tools. log, now and item are
// allowed everywhere and not here.
var builtins = map[string]policy.Call{
	"publish": policy.CallPublish, "peek": policy.CallTopics, "getByIds": policy.CallTopics,
	"registerInput": policy.CallIngress, "kv": policy.CallIngress, "withItem": policy.CallWithItem,
}

// harmless are the other members of ctx.
var harmless = []string{"log", "now", "item"}

// name makes the nth parameter stand for ctx. If the function has none that can
// be read, ctx is the name if fallback is set.
func (w *walk) name(n int, fallback bool) {
	params := w.parameters()
	if n < len(params) {
		w.pattern(params[n], nil)
		w.outer = w.f.plainName(params[n])
	}
	if len(w.names) == 0 && fallback {
		w.names["ctx"] = nil
	}
}

// An itemHandler is a function that is given to withItem.
type itemHandler struct {
	span
	ctx string // its parameter; empty: it is taken apart, or there is none
}

// plainName returns the name of a parameter; empty: it is a pattern.
func (f *file) plainName(s span) string {
	if s.value < s.end && f.tokens[s.value].kind == tName {
		return f.tokens[s.value].text
	}
	return ""
}

// pattern gives the names in a declaration their meaning: a plain name stands
// for way, and { crm: { create: c } } for what is below it.
func (w *walk) pattern(s span, way []string) {
	toks := w.f.tokens
	if s.value >= s.end || len(way) > 2 {
		return
	}
	if toks[s.value].kind == tName {
		next := toks[min(s.value+1, len(toks)-1)] // a type, a default
		if s.end-s.value == 1 || next.is(":") || next.is("=") || next.is("?") {
			w.names[toks[s.value].text] = way
		}
		return
	}
	if !toks[s.value].is("{") {
		return
	}
	for _, part := range w.f.parts(s.value) {
		key := w.f.keyText(part.key)
		if key == "" || toks[part.key].kind == tPunct {
			continue
		}
		if part.key+1 < part.end && toks[part.key+1].is(":") {
			part.value = part.key + 2
		}
		w.pattern(part, append(slices.Clone(way), key))
	}
}

// read reads the whole function.
func (w *walk) read() {
	for i := w.from; i < w.to && len(w.report.Findings) < maxProblems; i++ {
		if way, end, ok := w.chain(i); ok {
			w.mention(i, end, way)
		}
		w.declaration(i)
		w.helper(i)
		w.absent(i)
	}
	w.caught()
	w.guarded()
	w.reached()
}

// chain reads a.b?.c["d"] at token i if a is a known name, and returns its way
// from ctx and the token after it.
func (w *walk) chain(i int) (way []string, end int, ok bool) {
	toks := w.f.tokens
	if toks[i].kind != tName || i > 0 && (toks[i-1].is(".") || toks[i-1].is("?.")) {
		return nil, 0, false
	}
	base, ok := w.names[toks[i].text]
	if !ok {
		return nil, 0, false
	}
	way = slices.Clone(base)
	for i++; i+1 < w.to; {
		switch {
		case (toks[i].is(".") || toks[i].is("?.")) && toks[i+1].kind == tName:
			way = append(way, toks[i+1].text)
			i += 2
		case toks[i].is("?.") && toks[i+1].is("["):
			i++
		case toks[i].is("[") && i+2 < w.to && toks[i+1].kind == tString && toks[i+2].is("]"):
			way = append(way, unquote(toks[i+1].text))
			i += 3
		default:
			return way, i, true
		}
	}
	return way, i, true
}

// declaration learns new names from const x = ctx.crm and const { crm } = ctx.
func (w *walk) declaration(i int) {
	toks := w.f.tokens
	if toks[i].kind != tName || !slices.Contains([]string{"const", "let", "var"}, toks[i].text) || i+3 >= w.to {
		return
	}
	end := i + 2
	if toks[i+1].is("{") {
		end = w.f.match(i+1) + 1
	}
	end = w.f.stop(end)
	if end+1 >= w.to || !toks[end].is("=") {
		return
	}
	way, after, ok := w.chain(end + 1)
	if !ok || after < w.to && toks[after].is("(") || len(way) > 2 {
		return
	}
	w.pattern(span{key: i + 1, value: i + 1, end: end}, way)
}

// mention handles a member of ctx that is mentioned at token i.
func (w *walk) mention(i, end int, way []string) {
	called := end < w.to && w.f.tokens[end].is("(")
	if len(way) == 0 || slices.Contains(harmless, way[0]) {
		return
	}
	where := w.placeAt(i)
	if call, ok := builtins[way[0]]; ok {
		w.builtin(call, way, where, i, end, called)
		return
	}
	if way = w.today(i, way, where); !slices.Contains(w.conns, way[0]) {
		w.unknown(way, w.position(i), where, called)
		return
	}
	if len(way) == 1 || w.f.isKey(i) {
		return
	}
	t, ok := w.tools[keep.ToolName(way[0]+"."+way[1])]
	if !ok {
		w.lacks(way)
		w.find(Error, UnknownTool, w.position(i), where, fmt.Sprintf("connection %q has no tool %q", way[0], way[1]),
			didYouMean(way[1], w.toolsOf(way[0])))
		return
	}
	// A tool that is only mentioned may be called later, under another name, so
	// it counts as used here; whether the phase allows it is the same question.
	w.use(t, where, func() Position { return w.position(i) })
	if f := policy.Check(where, callOf(t.Effect), string(t.Tool)); f != nil {
		w.find(severity(where, t.Effect, called), ForbiddenCall, w.position(i), where, f.Message, "")
		return
	}
	if called {
		w.calls = append(w.calls, span{key: i, value: end, end: w.f.match(end) + 1})
		w.params(t, where, i, end)
		if where == policy.InMutate && t.Effect == connector.Mutate {
			w.terminal(i, w.f.match(end)+1, t.Tool)
		}
	}
}

// today returns the way to a tool by the name that it has today. A script that calls it as it was works, and
// the report says so.
func (w *walk) today(i int, way []string, where policy.Place) []string {
	if len(way) < 2 {
		return way
	}
	was := keep.ToolName(way[0] + "." + way[1])
	name, renamed := w.former[was]
	if _, there := w.tools[was]; there || !renamed {
		return way
	}
	w.find(Warning, FormerName, w.position(i), where, fmt.Sprintf("%s is called %s today", was, name), "write ctx."+string(name))
	if !slices.Contains(w.report.Former, was) {
		w.report.Former = append(w.report.Former, was)
	}
	conn, tool, _ := strings.Cut(string(name), ".")
	return append([]string{conn, tool}, way[2:]...)
}

// unknown reports a member of ctx that is neither a connection nor built in.
func (w *walk) unknown(way []string, at Position, where policy.Place, called bool) {
	fix := didYouMean(way[0], slices.Concat(w.conns, harmless, slices.Sorted(maps.Keys(builtins))))
	switch {
	case len(way) > 1:
		w.lacks(way)
		w.find(Error, UnknownConnection, at, where, fmt.Sprintf("there is no connection %q", short(way[0])), fix)
	case called:
		w.find(Error, UnknownCall, at, where, fmt.Sprintf("ctx has no %q", short(way[0])), fix)
	}
}

// lacks notes a tool that no connection has.
func (w *walk) lacks(way []string) {
	if name := keep.ToolName(way[0] + "." + way[1]); !slices.Contains(w.report.Missing, name) {
		w.report.Missing = append(w.report.Missing, name)
	}
}

// isKey reports whether token i is the key of a property.
func (f *file) isKey(i int) bool {
	return i > 0 && i+1 < len(f.tokens) && f.tokens[i+1].is(":") && (f.tokens[i-1].is("{") || f.tokens[i-1].is(","))
}

// callOf returns what kind of call a tool with that effect is. What is not known
// counts as a mutation, the most restricted.
func callOf(e connector.Effect) policy.Call {
	switch e {
	case connector.List:
		return policy.CallList
	case connector.Get:
		return policy.CallGet
	default:
		return policy.CallMutate
	}
}

// placeAt returns the place of token i: a job's handler has items in it. The job's own ctx is outside of them,
// wherever it is used.
func (w *walk) placeAt(i int) policy.Place {
	if h := w.itemAt(i); h != nil && (h.ctx == w.outer || w.f.tokens[i].text != w.outer) {
		return policy.InItem
	}
	return w.where
}

// itemAt returns the handler of an item that token i is in, or nil.
func (w *walk) itemAt(i int) *itemHandler {
	if n := slices.IndexFunc(w.items, func(h itemHandler) bool { return h.key <= i && i < h.end }); n >= 0 {
		return &w.items[n]
	}
	return nil
}

// builtin handles a call of ctx that is not a tool.
func (w *walk) builtin(call policy.Call, way []string, where policy.Place, i, end int, called bool) {
	if !called {
		return
	}
	if call == policy.CallWithItem && w.itemAt(i) != nil {
		where = policy.InItem // by whichever ctx: an item in an item never begins
	}
	if f := policy.Check(where, call, strings.Join(way, ".")); f != nil {
		w.find(Warning, ForbiddenCall, w.position(i), where, f.Message, "")
		return
	}
	args := w.f.parts(end)
	switch {
	case call == policy.CallWithItem && len(args) > 2:
		w.stable(args[0], where, "the id of an item")
		w.item(args[2])
	case len(args) > 0 && call == policy.CallPublish:
		w.topics(args[0], where, "publishes to", w.h.Publishes)
		w.message(args, where, i)
	case len(args) > 0 && call == policy.CallTopics:
		w.topics(args[0], where, "subscribes to", w.h.Subscribe)
	}
}

// item notes the handler of an item, or reads the function that it names.
func (w *walk) item(arg span) {
	if arg.end-arg.value == 1 {
		w.follow(w.f.tokens[arg.value].text, 0, policy.InItem, true)
		return
	}
	h := itemHandler{span: arg}
	w.guard(arg)
	inner := code{f: w.f, from: arg.value, to: arg.end}
	if params := inner.parameters(); len(params) > 0 {
		w.pattern(params[0], nil)
		h.ctx = w.f.plainName(params[0])
	}
	w.items = append(w.items, h)
}

// topics checks the topics that are written as text in an argument.
func (w *walk) topics(arg span, where policy.Place, verb string, allowed []keep.TopicName) {
	list := []span{arg}
	if w.f.tokens[arg.value].is("[") {
		if w.f.match(arg.value) != arg.end-1 {
			return // something is made of the list
		}
		list = w.f.parts(arg.value)
	}
	for _, s := range list {
		t := w.f.tokens[s.value]
		if t.kind != tString || s.end-s.value != 1 {
			continue
		}
		topic := keep.TopicName(unquote(t.text))
		switch {
		case !w.def.HasTopic(topic):
			w.find(Error, UnknownTopic, w.position(s.value), where, fmt.Sprintf("topic %q is not declared", short(string(topic))),
				didYouMean(string(topic), texts(w.def.Topics)))
		case allowed != nil && !slices.Contains(allowed, topic):
			w.find(Error, UnknownTopic, w.position(s.value), where, fmt.Sprintf("%s %s only %s, not %q", w.h.Name, verb, join(texts(allowed)), topic), "")
		}
	}
}

// helper reads a function of the file that is given ctx at token i.
func (w *walk) helper(i int) {
	toks := w.f.tokens
	if toks[i].kind != tName || i+1 >= w.to || !toks[i+1].is("(") || i > 0 && (toks[i-1].is(".") || toks[i-1].is("?.")) {
		return
	}
	const near = 200 // tokens; longer arguments are not ctx
	for n, arg := range w.f.partsUpTo(i+1, i+near) {
		if way, known := w.names[toks[arg.value].text]; known && len(way) == 0 && arg.end-arg.value == 1 {
			w.follow(toks[i].text, n, w.placeAt(i), false)
		}
	}
}

// manyTokens and timesOver bound how many tokens of functions are read beside those of the handlers: functions that stand in each
// other are read as often as they are deep.
const manyTokens, timesOver = 2_000_000, 16

// follow reads a function of the file whose nth parameter is ctx. If it is the handler
// of an item, it has to look itself whether the item is done.
func (w *walk) follow(name string, n int, where policy.Place, handler bool) {
	key := fmt.Sprintf("%s %d %s", name, n, where)
	c, ok := w.f.named(name)
	// Without the author's file there is nothing to look the name up in; and a
	// function that calls itself is read once.
	if !ok || w.seen[key] || !w.base.IsZero() {
		return
	}
	w.seen[key] = true
	if w.followed += c.to - c.from; w.followed > max(manyTokens, timesOver*len(w.f.tokens)) {
		if !w.skipped {
			w.skipped = true
			w.find(Warning, NotRead, w.position(w.from), where, "its functions stand in each other too often for all of them to be read: calls in some are not known", "")
		}
		return
	}
	inner := &walk{reader: w.reader, code: c, where: where, names: make(map[string][]string), seen: w.seen}
	inner.name(n, false)
	if handler {
		inner.guard(span{key: c.from, value: c.from, end: c.to})
	}
	inner.read()
}

// toolsOf returns the names of a connection's tools, sorted.
func (r *reader) toolsOf(conn string) []string {
	var out []string
	for name := range r.tools {
		if tool, ok := strings.CutPrefix(string(name), conn+"."); ok {
			out = append(out, tool)
		}
	}
	slices.Sort(out)
	return out
}

// texts returns topics as plain strings.
func texts(topics []keep.TopicName) []string {
	out := make([]string, len(topics))
	for i, t := range topics {
		out[i] = string(t)
	}
	return out
}
