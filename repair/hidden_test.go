package repair_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	law "github.com/keep-run/keep/law/repair"
)

// A proposal that does something else only later, or reaches outside where a reader of its text does not look, is not safe:
// no recorded run comes to it.
func TestHiddenReach(t *testing.T) {
	texts := textsOf(t, changedAPI)
	const mutate = "await ctx.svc.send({ to: prepared.data.to, subject: \"Welcome \" + prepared.data.name });"
	const more = `if (prepared.data.late) await ctx.svc.send({ to: prepared.data.late, subject: "Bye" });`
	mended := func(source string) string {
		return strings.Replace(source, "user.contact.email", "(user.contact ?? user).email", 1)
	}
	before := func(text string) func(string) string {
		return func(source string) string { return strings.Replace(mended(source), mutate, text+"\n"+mutate, 1) }
	}
	own := func(source string) string { return strings.ReplaceAll(source, "ctx", "c") }
	parts := func(source string) string {
		source = strings.ReplaceAll(source, "async mutate(ctx, prepared)", "async mutate({ svc }, prepared)")
		return strings.ReplaceAll(source, "await ctx.svc.send", "await svc.send")
	}
	helped := func(source string) string {
		return strings.Replace(source, mutate, "const send = (to, subject) => ctx.svc.send({ to, subject });\nawait send(prepared.data.to, \"Welcome \" + prepared.data.name);", 1)
	}
	const mailer = "const mailer = (c) => ({ send: (to, subject) => c.svc.send({ to, subject }) });\n"
	object := func(source string) string {
		return mailer + strings.Replace(source, mutate, "const api = mailer(ctx);\nawait api.send(prepared.data.to, \"Welcome \" + prepared.data.name);", 1)
	}
	taken := func(source string) string {
		return mailer + strings.Replace(source, mutate, "const { send } = mailer(ctx);\nawait send(prepared.data.to, \"Welcome \" + prepared.data.name);", 1)
	}
	kept := func(source string) string {
		return strings.Replace(source, mutate, "const box = {};\nbox.c = ctx;\nawait box.c"+strings.TrimPrefix(mutate, "await ctx"), 1)
	}
	method := func(source string) string {
		return "const lib = {\n  send(c, to, subject) {\n    return c.svc.send({ to, subject });\n  },\n};\n" +
			strings.Replace(source, mutate, "await lib.send(ctx, prepared.data.to, \"Welcome \" + prepared.data.name);", 1)
	}
	logs := func(source string) string {
		return strings.Replace(source, mutate, "ctx.log(\"sending\");\n"+mutate, 1)
	}
	for name, tt := range map[string]struct {
		base    func(string) string // nil: as it is
		propose func(string) string
		safe    bool
	}{
		"mended":                      {nil, mended, true},
		"with another name":           {own, mended, true},
		"taken apart":                 {parts, mended, true},
		"a call more":                 {nil, before(more), false},
		"between texts like remarks":  {nil, before(`const open = "/*"; ` + more + ` const close = "*/";`), false},
		"behind a text like a remark": {nil, before(`const page = "a//b"; ` + more), false},
		"behind an expression":        {nil, before("const a = /[/*]/; " + more + " const b = /[*/]/;"), false},
		"within a template":           {nil, before("const a = `/*${await (async () => { " + more + " })()}*/`;"), false},
		"behind the end of a remark":  {nil, before("// as before\u2028" + more), false},
		"behind a return in a remark": {nil, before("// as before\r" + more), false},
		"spelled otherwise":           {nil, before(strings.ReplaceAll(more, "ctx", `\u0063tx`)), false},
		"by another name":             {own, func(s string) string { return strings.Replace(mended(s), own(mutate), own(more)+"\n"+own(mutate), 1) }, false},
		"with a function":             {helped, mended, true},
		"by a function": {helped, func(s string) string {
			return strings.Replace(mended(s), "await send", "if (prepared.data.late) await send(prepared.data.late, \"Bye\");\nawait send", 1)
		}, false},
		"in the place of another call": {logs, func(s string) string {
			return strings.Replace(mended(s), "ctx.log(\"sending\");", "prepared.data.late && await ctx.svc.send({ to: prepared.data.late, subject: \"Bye\" });", 1)
		}, false},
		"with a call of the log": {logs, mended, true},
		"with an object":         {object, mended, true},
		"by an object": {object, func(s string) string {
			return strings.Replace(mended(s), "await api.send", "if (prepared.data.late) await api.send(prepared.data.late, \"Bye\");\nawait api.send", 1)
		}, false},
		"by a part of an object": {taken, func(s string) string {
			return strings.Replace(mended(s), "await send", "if (prepared.data.late) await send(prepared.data.late, \"Bye\");\nawait send", 1)
		}, false},
		"by a member": {kept, func(s string) string {
			return strings.Replace(mended(s), "await box.c", "if (prepared.data.late) await box.c.svc.send({ to: prepared.data.late, subject: \"Bye\" });\nawait box.c", 1)
		}, false},
		"with a method": {method, mended, true},
		"in a method": {method, func(s string) string {
			return strings.Replace(mended(s), "return c.svc.send({ to, subject });", "return c.svc.send({ to, subject }).then(() => to.late && c.svc.send({ to: to.late, subject }));", 1)
		}, false},
		"by a part": {parts, func(s string) string {
			return strings.Replace(mended(s), "await svc.send", "if (prepared.data.late) await svc.send({ to: prepared.data.late, subject: \"Bye\" });\nawait svc.send", 1)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source := texts["base.js"]
			if tt.base != nil {
				source = tt.base(source)
			}
			for file, text := range map[string]string{"base.js": source, "world.json": texts["world.json"]} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w := newWorld(t, dir)
			proposal := tt.propose(source)
			got, err := w.bench.Try(t.Context(), w.base, w.failed, proposal)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Verdict == law.Safe) != tt.safe || got.Verdict == law.Refused {
				t.Errorf("%s %q, want safe: %t, of\n%s", got.Verdict, got.Reasons, tt.safe, proposal)
			}
		})
	}
}

// The top level of a script is evaluated again when it is deployed. What it makes of the time and of chance is another then, which no
// recorded run shows.
func TestTopLevelOfAnotherTime(t *testing.T) {
	w := newWorld(t, changedAPI)
	tomorrow := w.base.CreatedAt.Add(24 * time.Hour).UTC().Format(time.DateOnly)
	for name, tt := range map[string]struct {
		top, to string
		want    law.Verdict
	}{
		"constant": {"const late = false;", "late ? user.manager : ", law.Safe},
		"time":     {"const late = Date.now() > Date.parse(\"" + tomorrow + "\");", "late ? user.manager : ", law.Inconclusive},
		"chance":   {"const late = crypto.getRandomValues(new Uint8Array(1))[0] > 255;", "late ? user.manager : ", law.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			source := tt.top + "\n" + strings.Replace(w.base.Source(), "to: user.contact.email", "to: "+tt.to+"(user.contact ?? user).email", 1)
			got, err := w.bench.Try(t.Context(), w.base, w.failed, source)
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != tt.want {
				t.Errorf("%s %q, want %s of\n%s", got.Verdict, got.Reasons, tt.want, source)
			}
		})
	}
}

const changedAPI = "testdata/corpus/changed-api"
