package workflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Limits of one declaration (law: bounded).
const (
	MaxHandlers = 100
	MaxTopics   = 200

	maxProblems = 200 // more of them help nobody
)

// Parse reads a declaration as the sandbox describes it and returns what it
// declares. If anything is wrong the error is a *[DeclarationError] with every
// problem. src finds their lines.
func Parse(decl json.RawMessage, src Source) (keep.Definition, error) {
	c, err := parse(decl, src)
	if err != nil {
		return keep.Definition{}, err
	}
	return c.def.KeepAs(c.called), nil
}

// parse reads a declaration. Topics in its definition have the names of the script.
func parse(decl json.RawMessage, src Source) (*checker, error) {
	root, err := decode(decl)
	if err != nil {
		return nil, &DeclarationError{[]Problem{{Message: "the declaration cannot be read: " + err.Error()}}}
	}
	c := &checker{files: files{src: src}, handlers: make(map[keep.HandlerName]string),
		called: make(map[keep.TopicName]keep.TopicName), consumerOf: make(map[keep.TopicName]keep.HandlerName)}
	c.workflow(root)
	if len(c.problems) > 0 {
		sortProblems(c.problems)
		return nil, &DeclarationError{c.problems}
	}
	return c, nil
}

// A checker collects a definition and what is wrong with it.
type checker struct {
	files    files
	def      keep.Definition // valid only if there is no problem
	problems []Problem       // in the order of checking, at most maxProblems

	// handlers has the path of the first handler of each name. Producers,
	// consumers and jobs share one set of names, since runs are listed by them.
	handlers map[keep.HandlerName]string

	called map[keep.TopicName]keep.TopicName // the first names of topics that had another one

	consumerOf map[keep.TopicName]keep.HandlerName // who subscribes
}

// problem reports what is wrong at a place. fix says what to write; it may be
// empty.
func (c *checker) problem(at location, fix, format string, args ...any) {
	if len(c.problems) == maxProblems {
		return
	}
	c.problems = append(c.problems, Problem{
		Position: c.files.find(at), Path: at.String(), Message: fmt.Sprintf(format, args...), Fix: fix,
	})
}

// wrong reports a value of the wrong kind.
func (c *checker) wrong(at location, want string, got value, fix string) {
	c.problem(at, fix, "must be %s, not %s", want, got)
}

// Keys that each object may have.
var (
	workflowKeys = []string{"name", "was", "new", "topics", "producers", "consumers", "jobs", "on_blocked"}
	topicKeys    = []string{"was", "new"}
	producerKeys = []string{"schedule", "publishes", "was", "new", "handler"}
	consumerKeys = []string{"subscribe", "publishes", "order", "key", "was", "prepare", "mutate", "next"}
	jobKeys      = []string{"schedule", "was", "new", "handler"}
	scheduleKeys = []string{"interval", "cron", "timezone"}
)

const workflowShape = "export default Keep.workflow({name, topics, producers, consumers, jobs})"

// workflow checks the whole object. It continues after a problem wherever what
// follows still makes sense: an author wants to know everything at once.
func (c *checker) workflow(root value) {
	at := location{}.of(root)
	switch {
	case root.kind != kObject:
		c.wrong(at, "an object given to Keep.workflow", root, "write "+workflowShape)
		return
	case root.keep != "" && root.keep != "workflow":
		c.problem(at, "write "+workflowShape, "the script exports %s", root)
		return
	}
	c.keys(at, root, workflowKeys)
	c.name(at, root)
	c.onBlocked(at, root)
	var was string
	if was, c.def.New = c.formerName(at, root); was != "" {
		c.def.Was = keep.WorkflowName(was)
		if err := validName(c.def.Was); err != nil {
			c.problem(at.key("was"), "", "%v", err)
		}
	}
	c.topics(at, root)
	for _, m := range root.members {
		switch m.key {
		case "producers":
			c.section(at, m, c.producer)
		case "consumers":
			c.section(at, m, c.consumer)
		case "jobs":
			c.section(at, m, c.job)
		}
	}
	switch n := len(c.handlers); {
	case n == 0 && !c.reported("producers", "consumers", "jobs"):
		c.problem(at, "add a producer, a consumer or a job", "the workflow has no handler")
	case n > MaxHandlers:
		c.problem(at, "split the workflow", "%d handlers: at most %d", n, MaxHandlers)
	}
}

// reported reports whether there is a problem with one of the sections, so that
// what is missing may only be misspelt.
func (c *checker) reported(sections ...string) bool {
	return slices.ContainsFunc(c.problems, func(p Problem) bool {
		return slices.ContainsFunc(sections, func(s string) bool {
			return strings.HasPrefix(p.Path, s) || strings.Contains(p.Fix, s)
		})
	})
}

// name checks the name of the workflow.
func (c *checker) name(at location, root value) {
	const fix = `write name: "my-workflow"`
	v, ok := root.get("name")
	switch at := at.key("name"); {
	case !ok:
		c.problem(at, fix, "the workflow has no name")
	case v.kind != kString:
		c.wrong(at, "a string", v, fix)
	default:
		c.def.Name = keep.WorkflowName(v.text)
		if err := validName(c.def.Name); err != nil {
			c.problem(at, "", "%v", err)
		}
	}
}

// validName reports what is wrong with the name of a workflow that somebody wrote.
func validName(name keep.WorkflowName) error {
	if name == keep.DirectWorkflow { // nothing of it is executed, and what it was granted holds of agents
		return fmt.Errorf("workflow name %q: the calls of agents have it; choose another one", name)
	}
	return name.Validate()
}

// formerName reads what is said of a name that was changed.
func (c *checker) formerName(at location, v value) (was string, isNew bool) {
	old, hasOld := v.get("was")
	if hasOld && (old.kind != kString || old.text == "") {
		c.wrong(at.key("was"), "the name that it had before", old, "")
	}
	yes, hasNew := v.get("new")
	switch {
	case hasNew && yes.kind != kBoolean:
		c.wrong(at.key("new"), "true", yes, "")
	case hasNew && hasOld && yes.text == "true":
		c.problem(at.key("new"), "give one of them", "was says that it is not new")
	}
	return old.text, hasNew && yes.text == "true"
}

// topics checks the declared topics. It comes before the handlers, wherever the
// script has it, since they refer to it; a topic with a bad name counts as
// declared, so that it is reported once and not at each use.
func (c *checker) topics(at location, root value) {
	const fix = `write topics: { "email.received": {} }`
	c.def.Topics = []keep.TopicName{}
	v, ok := root.get("topics")
	at = at.key("topics")
	switch {
	case !ok && onlyJobs(root):
		return
	case !ok:
		c.problem(at, fix, "the workflow declares no topics")
		return
	case v.kind != kObject:
		c.wrong(at, "an object with a key for each topic", v, fix)
		return
	case len(v.members) > MaxTopics:
		c.problem(at, "split the workflow", "%d topics: at most %d", len(v.members), MaxTopics)
	}
	for _, m := range v.members {
		name := keep.TopicName(m.key)
		here := at.key(m.key)
		if err := name.Validate(); err != nil {
			c.problem(here, "", "%v", err)
		}
		if m.value.kind != kObject {
			c.wrong(here, "{}", m.value, "topics have no settings but was and new")
		} else {
			c.formerTopic(here.of(m.value), m.value, name)
		}
		c.def.Topics = append(c.def.Topics, name)
	}
	slices.Sort(c.def.Topics)
	slices.Sort(c.def.NewTopics)
	apart(c, at, "topic", c.def.Topics, func(t keep.TopicName) keep.TopicName { return cmp.Or(c.called[t], t) })
}

// formerTopic reads what is said of the name of a topic.
func (c *checker) formerTopic(at location, v value, name keep.TopicName) {
	c.keys(at, v, topicKeys)
	was, isNew := c.formerName(at, v)
	if isNew {
		c.def.NewTopics = append(c.def.NewTopics, name)
	}
	if first := keep.TopicName(was); was != "" && first != name {
		c.called[name] = first
		if err := first.Validate(); err != nil {
			c.problem(at.key("was"), "", "%v", err)
		}
	}
}

// onlyJobs reports whether no handler of root can use a topic, so that it need
// not declare any.
func onlyJobs(root value) bool {
	_, producers := root.get("producers")
	_, consumers := root.get("consumers")
	_, jobs := root.get("jobs")
	return jobs && !producers && !consumers
}

// A handlerChecker checks one handler and returns it.
type handlerChecker func(at location, v value, h keep.Handler) keep.Handler

// section checks the handlers of one kind.
func (c *checker) section(at location, m member, check handlerChecker) {
	if m.value.undefined() {
		return
	}
	at = at.key(m.key).of(m.value)
	if m.value.kind != kObject {
		c.wrong(at, "an object with a key for each of the "+m.key, m.value, "")
		return
	}
	var kind keep.Kind
	var names []keep.HandlerName
	kept := make(map[keep.HandlerName]keep.HandlerName) // by name: the first one that it had
	for _, h := range m.value.members {
		if h.value.undefined() {
			c.problem(at.key(h.key), "remove it, or check the name that it refers to", "is undefined")
			continue
		}
		name := keep.HandlerName(h.key)
		here := at.key(h.key)
		if err := name.Validate(); err != nil {
			c.problem(here, "", "%v", err)
		}
		if first, taken := c.handlers[name]; taken {
			c.problem(here, "give one of them another name", "%s has that name already", first)
		} else {
			c.handlers[name] = here.String()
		}
		checked := check(here.of(h.value), h.value, keep.Handler{Name: name})
		c.def.Handlers = append(c.def.Handlers, checked)
		kind, kept[name] = checked.Kind, keep.HandlerName(checked.ItemsOf())
		names = append(names, name)
	}
	apart(c, at, string(kind), names, func(n keep.HandlerName) keep.HandlerName { return kept[n] })
}

// apart reports names of which the database would have two as one, and those that the database has for
// another one than the script: what is a name of either must say which one is meant.
func apart[Name ~string](c *checker, at location, kind string, names []Name, first func(Name) Name) {
	kept := make(map[Name]Name)
	for _, name := range names {
		was := first(name)
		other, taken := kept[was]
		switch show := short(string(was)); {
		case taken && other != name:
			c.problem(at.key(string(name)), "remove was, or the other one", "%s and %s would both be the %s that was %s first", short(string(other)), short(string(name)), kind, show)
		case was != name && slices.Contains(names, was) && first(was) != was:
			c.problem(at.key(string(name)), fmt.Sprintf("give one of them a name that no %s had", kind), "%s was %s first, and %s is the %s that was %s first: lists would show each by the name of another",
				short(string(name)), show, show, kind, short(string(first(was))))
		}
		kept[was] = name
	}
}

// producer checks a producer: a function, or an object around one.
func (c *checker) producer(at location, v value, h keep.Handler) keep.Handler {
	h.Kind = keep.Producer
	const fix = "write async name(ctx) { … }, or name: { schedule, publishes, async handler(ctx) { … } }"
	if !c.handlerObject(at, v, producerKeys, fix) {
		return h
	}
	h.Publishes = c.publishes(at, v)
	h.Schedule = c.schedule(at, v)
	return c.formerHandler(at, v, h)
}

// job checks a job: as a producer, but it publishes nothing.
func (c *checker) job(at location, v value, h keep.Handler) keep.Handler {
	h.Kind = keep.Job
	const fix = "write async name(ctx) { … }, or name: { schedule, async handler(ctx) { … } }"
	h.Items = string(h.Name)
	if !c.handlerObject(at, v, jobKeys, fix) {
		return h
	}
	h.Schedule = c.schedule(at, v)
	return c.formerHandler(at, v, h)
}

// formerHandler reads what is said of the name of a handler.
func (c *checker) formerHandler(at location, v value, h keep.Handler) keep.Handler {
	var was string
	if was, h.New = c.formerName(at, v); was != "" {
		h.Items = was
		if err := keep.HandlerName(was).Validate(); err != nil {
			c.problem(at.key("was"), "", "%v", err)
		}
	}
	return h
}

// handlerObject checks a producer or job, and reports whether it is written as
// an object. A bare function has nothing more to check.
func (c *checker) handlerObject(at location, v value, keys []string, fix string) bool {
	switch {
	case v.kind == kFunction:
		return false
	case v.kind != kObject || v.keep != "":
		c.wrong(at, "a function, or an object with a handler", v, fix)
		return false
	}
	c.keys(at, v, keys)
	c.function(at, v, "handler", true, "write async handler(ctx) { … }")
	return true
}

// consumer checks a consumer. Keep.consumer is not required: it only makes the
// places of problems more exact.
func (c *checker) consumer(at location, v value, h keep.Handler) keep.Handler {
	h.Kind = keep.Consumer
	if v.kind != kObject || v.keep != "" && v.keep != "consumer" {
		c.wrong(at, "what Keep.consumer returns", v, "write name: Keep.consumer({ subscribe, prepare, mutate, next })")
		return h
	}
	c.keys(at, v, consumerKeys)
	h.Subscribe = c.subscribe(at, v, h.Name)
	h.Publishes = c.publishes(at, v)
	h.Order = c.order(at, v)
	c.function(at, v, "prepare", true, "write async prepare(ctx, trigger) { … }")
	h.HasMutate = c.function(at, v, "mutate", false, "write async mutate(ctx, prepared) { … }")
	h.HasNext = c.function(at, v, "next", false, "write async next(ctx, prepared, mutationResult) { … }")
	if next, ok := v.get("next"); ok && h.HasNext {
		h.IgnoresResult = ignores(next.source, 2, "result")
	} else {
		h.IgnoresResult = true
	}
	return c.formerHandler(at, v, h)
}

// order reads which events wait for an unfinished run of a consumer, and checks that it
// has a key function exactly if the order is by key.
func (c *checker) order(at location, v value) keep.Order {
	const fix = `write order: "key", key: (event) => event.payload.customer`
	order := keep.Order(c.choice(at, v, "order", "all", "key", "none"))
	if order == "all" {
		order = keep.OrderAll
	}
	_, has := v.get("key")
	switch {
	case order == keep.OrderKey:
		c.function(at, v, "key", true, "write key: (event) => event.payload.customer")
	case has:
		c.problem(at.key("key"), fix, `is only for order "key"`)
	}
	return order
}

// onBlocked reads what the workflow does while one of its runs waits.
func (c *checker) onBlocked(at location, root value) {
	if b := keep.OnBlocked(c.choice(at, root, "on_blocked", "stop", "poll")); b != "stop" {
		c.def.OnBlocked = b
	}
}

// choice reads an optional member that is one of some words; empty if it is none of them.
func (c *checker) choice(at location, v value, key string, words ...string) string {
	s, ok := v.get(key)
	if !ok {
		return ""
	}
	if s.kind != kString || !slices.Contains(words, s.text) {
		last := len(words) - 1
		want := `"` + strings.Join(words[:last], `", "`) + `" or "` + words[last] + `"`
		c.wrong(at.key(key).of(s), want, s, fmt.Sprintf("write %s: %q", key, words[1]))
		return ""
	}
	return s.text
}

// function checks a member that is a function, and reports whether it is one.
func (c *checker) function(at location, v value, key string, required bool, fix string) bool {
	f, ok := v.get(key)
	switch {
	case !ok && required:
		c.problem(at.key(key), fix, "is missing")
		return false
	case !ok:
		return false
	case f.kind != kFunction:
		c.wrong(at.key(key).of(f), "a function", f, fix)
		return false
	}
	return true
}

// subscribe returns the topics of a consumer and takes them for it: a topic has
// one consumer, or nobody could say when an event is done with.
func (c *checker) subscribe(at location, v value, h keep.HandlerName) []keep.TopicName {
	const fix = `write subscribe: ["topic"]`
	list, ok := v.get("subscribe")
	if !ok {
		c.problem(at.key("subscribe"), fix, "is missing")
		return nil
	}
	at = at.key("subscribe")
	names := c.topicList(at, list, fix)
	if names != nil && len(names) == 0 && len(list.items) == 0 {
		c.problem(at, fix, "must name at least one topic")
	}
	// Empty names are those that are wrong anyway; their index is kept so that
	// the others point at their own line.
	for i, name := range names {
		other, taken := c.consumerOf[name]
		switch {
		case name == "":
		case taken && other != h:
			c.problem(at.item(i), "publish to a second topic for the second consumer",
				"topic %q has the consumer %s already: a topic has at most one", short(string(name)), other)
		default:
			c.consumerOf[name] = h
		}
	}
	return names
}

// publishes returns the topics that a handler says it publishes to: nil if it
// does not say.
func (c *checker) publishes(at location, v value) []keep.TopicName {
	list, ok := v.get("publishes")
	if !ok {
		return nil
	}
	return c.topicList(at.key("publishes"), list, `write publishes: ["topic"], or leave it out to allow every declared topic`)
}

// topicList reads a list of declared topics. A bad item leaves an empty name,
// so that the others keep their index.
func (c *checker) topicList(at location, list value, fix string) []keep.TopicName {
	if list.kind != kArray {
		c.wrong(at, "an array of topics", list, fix)
		return nil
	}
	names := make([]keep.TopicName, len(list.items))
	for i, item := range list.items {
		name := keep.TopicName(item.text)
		switch here := at.item(i); {
		case item.kind != kString:
			c.wrong(here, "the name of a topic", item, fix)
		case slices.Contains(names[:i], name):
			c.problem(here, "remove it", "topic %q is listed twice", short(item.text))
		case !c.def.HasTopic(name):
			c.problem(here, c.undeclared(item.text), "topic %q is not declared", short(item.text))
		default:
			names[i] = name
		}
	}
	return names
}

// undeclared is the fix for a topic that nobody declared.
func (c *checker) undeclared(topic string) string {
	topics := make([]string, len(c.def.Topics))
	for i, t := range c.def.Topics {
		topics[i] = string(t)
	}
	add := "add it to topics"
	if fix := didYouMean(topic, topics); fix != "" {
		return fix
	}
	return add
}
