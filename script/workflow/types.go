package workflow

import (
	_ "embed" // the part of the types that is the same for everyone
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

//go:embed keep.d.ts
var baseTypes string

// Types returns TypeScript declarations for scripts that use conns: Keep, the ctx
// of each phase with the calls that are allowed there and no others, and each
// tool typed from its schemas. Editors and language models complete from them.
func Types(conns []connector.Connection) string {
	var b strings.Builder
	b.WriteString(baseTypes)
	b.WriteString("\ndeclare namespace Keep {\n")
	faces := interfaces(conns)
	for _, f := range faces {
		for _, e := range effects {
			f.write(&b, e)
		}
	}
	for i, p := range phaseTypes {
		writePhase(&b, p, faces)
		if i+1 < len(phaseTypes) {
			b.WriteString("\n")
		}
	}
	b.WriteString("}\n")
	return b.String()
}

var effects = []connector.Effect{connector.List, connector.Get, connector.Mutate}

// suffixes end the names of the interfaces of a connection.
var suffixes = map[connector.Effect]string{connector.List: "List", connector.Get: "Get", connector.Mutate: "Mutate"}

// phaseTypes are the interfaces of ctx, with what keep.d.ts calls their built-in
// part.
var phaseTypes = []struct {
	name  string
	place policy.Place
	doc   string
}{
	{"ProducerCtx", policy.InProducer, "What a producer can do: read, publish, and keep a checkpoint."},
	{"PrepareCtx", policy.InPrepare, "What prepare can do: read services and topics."},
	{"MutateCtx", policy.InMutate, "What mutate can do: get by id, and one call that changes something and ends it."},
	{"NextCtx", policy.InNext, "What next can do: publish."},
	{"JobCtx", policy.InJob, "What a job can do outside an item: read, and open items."},
	{"ItemCtx", policy.InItem, "What a job can do in an item: read, and change things one after another."},
}

// builtinTypes are the interfaces of keep.d.ts for the calls that are no tools.
var builtinTypes = []struct {
	call policy.Call
	name string
}{
	{policy.CallTopics, "Topics"}, {policy.CallPublish, "Publish"},
	{policy.CallIngress, "Ingress"}, {policy.CallWithItem, "Items"},
}

// A face is a connection with the name that its interfaces begin with. There is
// one interface for each effect, so that a phase can be given just those that it
// may use.
type face struct {
	connector.Connection
	name string
}

var notName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9]+`) })

// interfaces names the connections, sorted. One with the name of something that
// ctx has anyway is left out: it could not be called.
func interfaces(conns []connector.Connection) []face {
	var out []face
	taken := make(map[string]bool)
	for _, c := range conns {
		if _, builtin := builtins[c.Name]; builtin || slices.Contains(harmless, c.Name) {
			continue
		}
		var name strings.Builder
		for _, word := range notName().Split(c.Name, -1) {
			if word != "" {
				name.WriteString(strings.ToUpper(word[:1]) + word[1:])
			}
		}
		unique := name.String()
		if unique == "" || unique[0] <= '9' {
			unique = "C" + unique
		}
		for n := 2; taken[unique]; n++ {
			unique = fmt.Sprintf("%s%d", name.String(), n)
		}
		taken[unique] = true
		out = append(out, face{c, unique})
	}
	slices.SortFunc(out, func(a, b face) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// tools returns the tools of that effect, sorted by name.
func (f face) tools(e connector.Effect) []connector.Tool {
	var out []connector.Tool
	for _, t := range f.Tools {
		if t.Spec().Effect == e {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b connector.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return out
}

// write writes the interface of the tools of that effect, if there are any.
func (f face) write(b *strings.Builder, e connector.Effect) {
	tools := f.tools(e)
	if len(tools) == 0 {
		return
	}
	fmt.Fprintf(b, "  interface %s%s {\n", f.name, suffixes[e])
	for i, t := range tools {
		if i > 0 {
			b.WriteString("\n")
		}
		f.tool(b, t)
	}
	b.WriteString("  }\n\n")
}

// tool writes one tool as a method.
func (f face) tool(b *strings.Builder, t connector.Tool) {
	const indent = "    "
	spec := t.Spec()
	lines := []string{spec.Description}
	if spec.Effect == connector.Mutate {
		lines = append(lines, mutateNotes(f.Connection, spec)...)
	}
	b.WriteString(doc(indent, lines...))
	params, optional := paramsType(spec, indent)
	schema := newSchema(spec.Result, "any")
	result := schema.write(schema.root, indent, 0)
	if spec.Pages && spec.Result == nil {
		result = "any[]"
	}
	if spec.Pages {
		result = "(" + result + ") & { readonly truncated: boolean; readonly next: string | null }"
	}
	fmt.Fprintf(b, "%s%s(params%s: %s): Promise<%s>;\n", indent, propertyKey(spec.Name), optional, params, result)
}

// paramsType returns the type of what a script passes, and a question mark if it
// need not pass anything. Each mutate tool takes a subkey besides its own.
func paramsType(spec connector.Spec, indent string) (params, optional string) {
	const subkey = "/** Separates two calls that change the same thing in one item. */\n"
	s := newSchema(spec.Params, "unknown")
	inner := indent + "  "
	extra := ""
	if spec.Effect == connector.Mutate {
		extra = inner + subkey + inner + "subkey?: string;\n"
	}
	if len(required(s.root)) == 0 {
		optional = "?"
	}
	switch {
	case s.object():
		return s.properties(s.root, indent, 0, extra), optional
	case spec.Params == nil || s.root.kind != kObject:
		known := ""
		for _, name := range spec.Identity {
			known += inner + propertyKey(name) + "?: unknown;\n"
		}
		return "{\n" + known + inner + "[key: string]: unknown;\n" + extra + indent + "}", optional
	}
	params = s.write(s.root, indent, 0)
	if extra != "" && params != s.fallback {
		params = "(" + params + ") & { subkey?: string }"
	}
	return params, optional
}

// writePhase writes the interface of one phase's ctx.
func writePhase(b *strings.Builder, p struct {
	name  string
	place policy.Place
	doc   string
}, faces []face) {
	bases := []string{"Ctx"}
	for _, t := range builtinTypes {
		switch {
		case !policy.Allowed(p.place, t.call):
		case t.call == policy.CallPublish && p.place == policy.InProducer:
			bases = append(bases, "PublishWithID")
		default:
			bases = append(bases, t.name)
		}
	}
	if p.place == policy.InItem {
		bases = append(bases, "InItem")
	}
	b.WriteString(doc("  ", p.doc))
	fmt.Fprintf(b, "  interface %s extends %s {", p.name, join(bases))
	lines := 0
	for _, f := range faces {
		if parts := f.parts(p.place); len(parts) > 0 {
			fmt.Fprintf(b, "\n    readonly %s: %s;", propertyKey(f.Name), strings.Join(parts, " & "))
			lines++
		}
	}
	if lines > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("}\n")
}

// parts returns the interfaces of a connection that may be used in a place. A
// mutate tool ends mutate, so nothing comes back there.
func (f face) parts(where policy.Place) []string {
	var out []string
	for _, e := range effects {
		if len(f.tools(e)) == 0 || !policy.Allowed(where, callOf(e)) {
			continue
		}
		name := f.name + suffixes[e]
		if e == connector.Mutate && where == policy.InMutate {
			name = "Terminal<" + name + ">"
		}
		out = append(out, name)
	}
	return out
}
