package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/script/workflow"
)

// hostileBodies are bodies of functions, of about that size, that make a reader look
// again and again at the same text.
func hostileBodies(size int) map[string]string {
	fill := func(text string) string { return strings.Repeat(text, size/len(text)) }
	return map[string]string{
		"tools":      fill(`ctx.crm.create({id:1});`),
		"forbidden":  fill(`ctx.peek("x");`),
		"nested":     strings.Repeat(`ctx.crm.get(`, 1900) + fill(`a,`) + strings.Repeat(`)`, 1900),
		"helpers":    fill(`f(ctx);`),
		"functions":  fill(`function f(ctx){f(ctx)}`),
		"messages":   fill(`ctx.publish("in",{messageId:a+b+c});`),
		"one id":     `ctx.publish("in",{messageId:` + fill(`a+`) + `a});`,
		"names":      fill(`const a=b;`) + `ctx.publish("in",{messageId:a});`,
		"globals":    fill(`fetch(1);`),
		"items":      fill(`ctx.withItem(a,"t",f);`),
		"try":        strings.Repeat(`try{`, 1900) + fill(`ctx.crm.get();`) + strings.Repeat(`}catch{}`, 1900),
		"brackets":   fill(`[`),
		"templates":  fill("`${"),
		"members":    `ctx` + fill(`.a`),
		"properties": `ctx.crm.create({` + fill(`a:1,`) + `})`,
		"awaits":     fill(`await ctx.crm.create({id:1});`),
		"bare":       fill("let a\n"),
		"annotated":  fill("let a:b "),
		"many names": numbered(size, "f%d(ctx);"),
		"many lets":  numbered(size, "let a%d:b;ctx.publish('in',{messageId:a%[1]d});"),
		"arrows":     numbered(size, "const f%d=(ctx)=>1\nf%[1]d(ctx)\n"),
		"a chain":    numbered(size, "const g%d=()=>f%[1]d;const f%[1]d=()=>g%[1]d;"),
		"unfinished": fill("function a "),
		"slashes":    fill("/["),
		"given":      fill("a=b\n"),
		"given ctx":  fill("a=f(ctx)\n"),
		"in a given": fill("a=f("),
		"giving":     numbered(size, "b%d=b,"),
		"back":       numbered(size, "a%d=a-b%[1]d,"),
	}
}

// numbered returns about size bytes of what format makes of 0, 1, 2 and so on.
func numbered(size int, format string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// However a script is written, what it does is read in a time that grows with its
// length: a host does so for whoever may deploy. Four times the text may take ten times
// as long, which leaves room for a busy machine, and less than its square.
func TestHostileTextIsReadInTime(t *testing.T) {
	if cputime.Used() == 0 {
		t.Skip("this system does not say what a process has used")
	}
	const small = 64 << 10
	long := hostileBodies(4 * small)
	for name, short := range hostileBodies(small) {
		t.Run(name, func(t *testing.T) {
			// The race detector and the collector of garbage make short times vary.
			floor := 200 * time.Millisecond
			before := max(readHostile(t, short), floor)
			if after := readHostile(t, long[name]); after > 10*before {
				t.Errorf("%v for %d bytes, %v for %d", before, len(short), after, len(long[name]))
			}
		})
	}
}

// readHostile returns the processor time that reading a script with that body takes.
func readHostile(t *testing.T, body string) time.Duration {
	t.Helper()
	text := `export default Keep.workflow({name:"w",topics:{in:{}},jobs:{async j(ctx){` + body + `}},consumers:{c:Keep.consumer({subscribe:["in"],prepare(){},async mutate(ctx){` + body + `}})}})`
	at := func(part string) map[string]any {
		return map[string]any{"file": "w.js", "line": 1, "column": strings.Index(text, part) + 1}
	}
	function := func(part string) map[string]any {
		return map[string]any{"$function": map[string]any{"at": at(part), "params": 1, "source": ""}}
	}
	decl, err := json.Marshal(map[string]any{"$keep": "workflow", "$at": at("Keep.workflow"), "name": "w", "topics": map[string]any{"in": map[string]any{}},
		"jobs": map[string]any{"j": function("async j")},
		"consumers": map[string]any{"c": map[string]any{"$keep": "consumer", "$at": at("Keep.consumer"), "subscribe": []string{"in"},
			"prepare": function("prepare("), "mutate": function("async mutate")}}})
	if err != nil {
		t.Fatal(err)
	}
	start := cputime.Used()
	if _, err := workflow.Effects(decl, workflow.Source{"w.js": text}, connections()); err != nil {
		t.Fatal(err)
	}
	return cputime.Used() - start
}
