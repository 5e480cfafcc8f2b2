package repair_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/law/repair"
)

// A condition that is taken out, changed or moved is one that no recorded run may have come to.
func TestUngoverned(t *testing.T) {
	const was = `const amount = Number(bill.total);
if (amount > 500) return; // a person pays what is more
for (const l of lines) {
  if (l.done) continue;
  await ctx.svc.pay({ ref: l.ref, amount });
}
`
	const guard = "if (amount > 500) return;"
	for _, tt := range []struct {
		name, old, new string
		want           []string
		reaches        int
	}{
		{"the same", "", "", nil, 1},
		{"another line", "Number(bill.total)", "Number(bill.total ?? bill.amount)", nil, 1},
		{"other spaces and remarks", "if (amount > 500) return; // a person pays what is more", "/* limit */\n  if (amount>500) return ;", nil, 1},
		{"a condition more", "if (l.done) continue;", "if (l.skip) continue;\n  if (l.done) continue;", nil, 1},
		{"taken out", guard, "", []string{guard}, 1},
		{"changed", "> 500", "> 5000", []string{guard}, 1},
		{"in a remark", guard, "/*\n" + guard + "\n*/", []string{guard}, 1},
		{"in a remark of a line", guard, "// " + guard, []string{guard}, 1},
		{"the loop, too", "if (l.done) continue;", "", []string{"if (l.done) continue;"}, 1},
		{"behind the call", "  if (l.done) continue;\n  await ctx.svc.pay({ ref: l.ref, amount });", "  await ctx.svc.pay({ ref: l.ref, amount });\n  if (l.done) continue;",
			[]string{"await ctx.svc.pay({ ref: l.ref, amount });"}, 1},
		{"a call more", guard, "await ctx.svc.pay({ ref: bill.ref, amount });\n" + guard, nil, 2},
		{"in a text", guard, "const x = \"" + guard + "\";", []string{guard}, 1},
		{"in a template", guard, "const x = `\n" + guard + "\n`;", []string{guard}, 1},
		{"in a template behind an expression", guard, "const x = `${amount}\n" + guard + "\n`;", []string{guard}, 1},
		{"between texts like remarks", guard, guard + "const a = \"/*\"; await ctx.svc.pay(); const b = \"*/\";", []string{guard}, 2},
		{"between templates like remarks", guard, guard + "\nconst a = `/*`; await ctx.svc.pay(); const b = `*/`;", nil, 2},
		{"between expressions like remarks", guard, guard + "\nconst a = /[/*]/; await ctx.svc.pay(); const b = /[*/]/;", nil, 2},
		{"behind a condition and an expression", guard, guard + "\nif (amount) /[/*]/.test(a); await ctx.svc.pay(); /[*/]/.test(b);", nil, 2},
		{"behind a text like a remark", guard, guard + "\nconst a = 'x//'; await ctx.svc.pay();", nil, 2},
		{"behind two texts", guard, guard + "\nconst a = 'x\\'//'; await ctx.svc.pay();", nil, 2},
		{"behind quotients", guard, guard + "\nconst a = (1 + 2) / 3 / \"/*\".length; await ctx.svc.pay(); const b = a / 2 / \"*/\".length;", nil, 2},
		{"in a template's expression", guard, guard + "\nconst a = `${await ctx.svc.pay()}`;", nil, 2},
		{"behind the end of a remark", guard, guard + "\n// as before\u2028await ctx.svc.pay();", nil, 2},
		{"behind another end of a remark", guard, guard + "\n// as before\rawait ctx.svc.pay();", nil, 2},
		{"behind a class of an expression", guard, guard + "\nclass A extends /[/*]/.constructor {}; await ctx.svc.pay(); /[*/]/.test(a);", nil, 2},
		{"behind a sign and an expression", guard, guard + "\n;++/[/*]/.lastIndex; await ctx.svc.pay(); ++/[*/]/.lastIndex;", nil, 2},
		{"behind another space and an expression", guard, guard + "\nconst a = typeof\u3000/[/*]/; await ctx.svc.pay(); /[*/]/.test(a);", nil, 2},
		{"behind another end of a line and an expression", guard, guard + "\nif (amount) {} else\u2028/[/*]/.test(a); await ctx.svc.pay(); /[*/]/.test(a);", nil, 2},
		{"a remark over two lines", "const amount = Number(bill.total);", "const amount = Number(bill.total); const f = () => { return /*\n*/ amount; };", nil, 1},
		{"spelled with an escape", guard, guard + "\nawait \\u0063tx.svc.pay();", nil, 2},
		{"in a text that is evaluated", guard, guard + "\nawait eval(\"ct\" + \"x.svc.pay()\");", nil, 2},
		{"by its arguments", guard, "await arguments[0].svc.pay({ amount });\n" + guard, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(was, tt.old) {
				t.Fatal("the script has no such text")
			}
			is := strings.Replace(was, tt.old, tt.new, 1)
			got := repair.Ungoverned(was, is)
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("Ungoverned: %q, want %q", got, tt.want)
			}
			if n := repair.Reaches(is); n != tt.reaches {
				t.Errorf("Reaches: %d, want %d", n, tt.reaches)
			}
			e := good()
			e.Was, e.Is = was, is
			want := repair.Safe
			switch {
			case len(tt.want) > 0:
				want = repair.Impactful
			case tt.reaches > 1:
				want = repair.Inconclusive
			}
			v, why := repair.Judge(e)
			if v != want {
				t.Errorf("Judge: %s %q, want %s", v, why, want)
			}
			if counts := strings.Contains(strings.Join(why, "|"), "it names ctx, or what it has,"); counts != (want == repair.Inconclusive) {
				t.Errorf("Judge: %q, which says how often ctx is named: %t", why, counts)
			}
		})
	}
}

// What a script calls ctx, and what it takes from it, reaches outside as ctx does.
func TestNamesThatReach(t *testing.T) {
	const was = "if (amount > 500) return;\nawait c.svc.pay({ amount });\n"
	for name, tt := range map[string]struct {
		is         string
		names      []string
		want       int
		conditions int
	}{
		"the same":        {was, []string{"c"}, 1, 0},
		"one more":        {was + "await c.svc.pay();", []string{"c"}, 2, 0},
		"a part":          {was + "await pay();", []string{"c", "pay"}, 3, 0},
		"no name":         {was + "await x.c1();", []string{"c"}, 1, 0},
		"behind the call": {"await c.svc.pay({ amount });\nif (amount > 500) return;\n", []string{"c"}, 1, 1},
	} {
		if n := repair.Reaches(tt.is, tt.names...); n != tt.want {
			t.Errorf("%s: Reaches: %d, want %d", name, n, tt.want)
		}
		if got := repair.Ungoverned(was, tt.is, tt.names...); len(got) != tt.conditions {
			t.Errorf("%s: Ungoverned: %q, want %d", name, got, tt.conditions)
		}
	}
	if got := repair.Ungoverned(`if (state === "not paid") return;`, `if (state === "notpaid") return;`); len(got) != 1 {
		t.Errorf("another text in a condition: %q, want the condition", got)
	}
	for _, other := range [][2]string{
		{"if (a !== b) return;", "if (a! == b) return;"},
		{"if (a != b) return;", "if (a! = b) return;"},
		{"if (a + ++b > 5) return;", "if (a++ + b > 5) return;"},
		{"const c = d.filter((e) => { return !e.f; });", "const c = d.filter((e) => { return /*\n*/ !e.f; });"},
	} {
		if got := repair.Ungoverned(other[0], other[1]); len(got) != 1 {
			t.Errorf("%s in the place of %s: %q, want the condition", other[1], other[0], got)
		}
	}
	for name, other := range map[string][2]string{
		"moved before the condition, and changed":    {"if (a) return;\nawait ctx.svc.pay({ b });", "await ctx.svc.pay({ b: b });\nif (a) return;"},
		"behind a statement without braces":          {"if (a)\n  await ctx.svc.pay({ b });", "if (a)\n  c();\n  await ctx.svc.pay({ b });"},
		"behind an empty statement on its line":      {"if (a)\n  await ctx.svc.pay({ b });", "if (a)\n  {} await ctx.svc.pay({ b });"},
		"the condition behind a statement":           {"if (a)\n  return;\nawait ctx.svc.pay({ b });", "if (a)\n  c();\n  return;\nawait ctx.svc.pay({ b });"},
		"the condition behind else":                  {"if (a) {\n  c();\n}\nif (b) return;\nawait ctx.svc.pay();", "if (a) {\n  c();\n}\nelse\nif (b) return;\nawait ctx.svc.pay();"},
		"behind a brace that was moved":              {"if (a) {\n  c();\n  await ctx.svc.pay({ b });\n}", "if (a) {\n  c();\n}\n  await ctx.svc.pay({ b });\n"},
		"in front of a brace that was moved":         {"if (a) {\n  c();\n}\nawait ctx.svc.pay({ b });", "{\nif (a) {\n  c();\n}\n}\n{\nawait ctx.svc.pay({ b });\n}"},
		"the condition in a function":                {"if (a) return;\nawait ctx.svc.pay({ b });", "const f = () => {\nif (a) return;\n};\nawait ctx.svc.pay({ b });"},
		"the condition in a function of its line":    {"f() {\nif (a) return;\nawait ctx.svc.pay({ b });\n}", "f() { const g = () => {\nif (a) return;\n};\nawait ctx.svc.pay({ b });\n}"},
		"the condition in another function":          {"f() {\nif (a) return;\nawait ctx.svc.pay({ b });\n}", "g() {\nif (a) return;\n}, f() {\nawait ctx.svc.pay({ b });\n}"},
		"the condition in a try":                     {"if (a) throw b;\nawait ctx.svc.pay({ b });", "try {\nif (a) throw b;\n} catch {}\nawait ctx.svc.pay({ b });"},
		"the condition behind a label":               {"if (a) return;\nawait ctx.svc.pay();", "if (b) c:\nif (a) return;\nawait ctx.svc.pay();"},
		"in the block of another condition":          {"if (a) {\n  await ctx.svc.pay();\n}\nif (b) {\n  c();\n}", "if (a) {\n  c();\n}\nif (b) {\n  await ctx.svc.pay();\n}"},
		"the first of two that call the same, moved": {"await ctx.svc.pay(a);\nif (b) return;\nawait ctx.svc.pay(c);", "await ctx.svc.pay(a);\nawait ctx.svc.pay(c, 1);\nif (b) return;"},
	} {
		if got := repair.Ungoverned(other[0], other[1]); len(got) == 0 {
			t.Errorf("%s: nothing, want a condition:\n%s", name, other[1])
		}
	}
	for name, other := range map[string][2]string{
		"another line within a block":   {"f(ctx) {\nif (a) {\n  await ctx.svc.pay({ b });\n}\n}", "f(ctx, c) {\nif (a) {\n  const d = c.e;\n  await ctx.svc.pay({ b: d });\n}\n}"},
		"a function more":               {"f() {\nif (a) return;\n}", "function d() {\n  return 1;\n}\nf() {\nif (a) return;\n}"},
		"the same function twice":       {"f() {\nif (a) return;\n}\ng() {\nif (a) return;\n}", "f() {\nb();\nif (a) return;\n}\ng() {\nif (a) return;\n}"},
		"another block before a return": {"f() {\nreturn;\n}", "f() {\nif (b) {\nreturn;\n}\nreturn;\n}"},
	} {
		if got := repair.Ungoverned(other[0], other[1]); len(got) > 0 {
			t.Errorf("%s: %q, want nothing", name, got)
		}
	}
	if got := repair.Ungoverned("if (a && !b || c > -1) return;", "if (a&&!b || c>-1)return;"); len(got) != 0 {
		t.Errorf("other spaces beside signs: %q, want nothing", got)
	}
	if got := repair.Ungoverned(`if ("a" in b) return;`, `if ("a"  in /* it */ b) return;`); len(got) != 0 {
		t.Errorf("other spaces in a condition: %q, want nothing", got)
	}
}

// A condition whose block does not do any more what it did is none, and neither is one of which only the first line is still there.
func TestWhatConditionsAreFor(t *testing.T) {
	for name, other := range map[string][2]string{
		"a return with a value":         {"f() {\nif (a) {\n  return null;\n}\nawait ctx.svc.pay({ b });\n}", "f() {\nif (a) {\n}\nawait ctx.svc.pay({ b });\n}"},
		"a return in another block":     {"f() {\nif (a) {\n  return { c: [] };\n}\nawait ctx.svc.pay({ b });\n}", "f() {\nif (a) {\nif (d) {\n  return { c: [] };\n}\n}\nawait ctx.svc.pay({ b });\n}"},
		"a return without braces":       {"if (a)\n  return null;\nawait ctx.svc.pay({ b });", "if (a)\n  c();\nawait ctx.svc.pay({ b });"},
		"a value that is bounded":       {"if (a) {\n  b = 500;\n}\nawait ctx.svc.pay({ b });", "if (a) {\n}\nawait ctx.svc.pay({ b });"},
		"a call":                        {"for (const a of b) {\n  check(a);\n}\nawait ctx.svc.pay({ b });", "for (const a of b) {\n}\nawait ctx.svc.pay({ b });"},
		"a condition over lines":        {"if (\n  isBlocked(a)\n) {\n  return;\n}\nawait ctx.svc.pay({ b });", "if (\n  false\n) {\n  return;\n}\nawait ctx.svc.pay({ b });"},
		"the second part of one":        {"const a = b &&\n  c;\nif (a) return;", "const a = b &&\n  d;\nif (a) return;"},
		"the block of one over lines":   {"if (\n  a\n) {\n  return null;\n}\nawait ctx.svc.pay({ b });", "if (\n  a\n) {\n}\nawait ctx.svc.pay({ b });"},
		"what a filter returns":         {"const a = b.filter((c) => {\n  return c.paid;\n});", "const a = b.filter((c) => {\n  return true;\n});"},
		"what a filter returns, in one": {"const a = b.filter(\n  (c) => c.paid,\n);", "const a = b.filter(\n  (c) => true,\n);"},
	} {
		if got := repair.Ungoverned(other[0], other[1]); len(got) == 0 {
			t.Errorf("%s: nothing, want a condition:\n%s", name, other[1])
		}
	}
	for name, other := range map[string][2]string{
		"another value":            {"for (const a of b) {\n  c += Number(a.d);\n  e.push({ f: a });\n  return { g: a };\n}", "for (const a of b) {\n  c += Number(a.h ?? a.d);\n  e.push({ f: a.i });\n  return { g: a.i };\n}"},
		"a line more":              {"if (a) {\n  return null;\n}", "if (a) {\n  b();\n  return null;\n}"},
		"what depends on nothing":  {"f() {\n  a = 1;\n  b();\n  return c;\n}", "f() {\n  return d;\n}"},
		"what is declared in one":  {"if (a) {\n  const b = c.d;\n  return b;\n}", "if (a) {\n  const b = c.e;\n  return b;\n}"},
		"an argument of a call":    {"const a = b(\n  c,\n);", "const a = b(\n  d,\n);"},
		"what a map makes of each": {"const a = b.map((c) => {\n  return c.d;\n});", "const a = b.map((c) => {\n  return c.e;\n});"},
	} {
		if got := repair.Ungoverned(other[0], other[1]); len(got) > 0 {
			t.Errorf("%s: %q, want nothing", name, got)
		}
	}
}

// What is done with ctx in the place of something else is new, however often ctx is named.
func TestNewly(t *testing.T) {
	for name, tt := range map[string]struct{ was, is, want string }{
		"the same":              {"await ctx.svc.pay({ a });", "await ctx.svc.pay({ a: b });", ""},
		"another tool":          {"ctx.log('a');", "a && ctx.svc.pay();", "ctx.svc.pay("},
		"another tool of c":     {"c.get();", "c.pay();", "c.pay("},
		"the tool once more":    {"ctx.log('a');\nctx.svc.pay(a);", "ctx.svc.pay(a);\nctx.svc.pay(b);", "ctx.svc.pay("},
		"given away":            {"f(ctx);", "g(ctx);", "g(ctx);"},
		"in brackets":           {"f(ctx);", "(ctx).svc.pay();", "(ctx).svc.pay();"},
		"by a text":             {"ctx['svc'].get();", "ctx['svc'].pay();", "ctx['svc'].pay();"},
		"over two lines":        {"ctx\n.svc.get();", "ctx\n.svc.pay();", "ctx.svc.pay();"},
		"with another text":     {"eval('a');", "eval('ctx.svc.pay()');", "eval('ctx.svc.pay()');"},
		"by its place":          {"f(arguments[1]);", "arguments[0].svc.pay();", "arguments[0].svc.pay();"},
		"with other spaces":     {"await ctx . svc ?. pay ( a );", "await ctx.svc?.pay(b);", ""},
		"once less":             {"ctx.log('a');\nctx.svc.pay(a);", "ctx.svc.pay(a);", ""},
		"in a loop of its line": {"c.svc.pay(a);", "for (const d of a.e ?? [1]) await c.svc.pay(a, d);", "c.svc.pay("},
		"in a loop over lines":  {"await c.svc.pay(a);", "for (const d of a.e) b:\nawait c.svc.pay(a);", "c.svc.pay("},
		"behind a block":        {"await c.svc.pay(a);", "for (const d of a.e) {\n}\nawait c.svc.pay(a);", ""},
		"in a loop behind one":  {"await c.svc.pay(a);", "for (const d of a.e) if (d) { } else await c.svc.pay(a);", "c.svc.pay("},
		"in a loop that ends":   {"await c.svc.pay(a);", "do await c.svc.pay(a); while (a.e-- > 0);", "c.svc.pay("},
		"for each":              {"await c.svc.pay(a);", "await Promise.all(a.e.map((d) => c.svc.pay(a)));", "c.svc.pay("},
		"in a function":         {"await c.svc.pay(a);", "const d = { f() { return c.svc.pay(a); } }; await d.f(); await d.f();", "c.svc.pay("},
		"behind an arrow":       {"await c.svc.pay(a);", "const d = (e) => e.f\nconst g = a.map((h) => h.i); await c.svc.pay(d);", ""},
		"given away in a loop":  {"f(a, c);", "while (a.e-- > 0) f(a, c);", "while(a.e-- >0)f(a,c);"},
		"in a line that begins": {"const d = await c.get(a);", "const d = await c.get(\n  b);", ""},
	} {
		if got := strings.Join(repair.Newly(tt.was, tt.is, "c"), "|"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := repair.Newly("x.svc.pay(a);", "x.svc\n?.pay(a);\ny . svc.pay(b); z.svc.payed(c);", "svc.pay"); strings.Join(got, "|") != "svc.pay" {
		t.Errorf("a tool by another name of ctx: %q", got)
	}
	e := good()
	e.Was, e.Is = "ctx.log('a');", "a && ctx.svc.pay();"
	if v, why := repair.Judge(e); v != repair.Inconclusive || !strings.Contains(strings.Join(why, "\n"), "which the script has not") {
		t.Errorf("Judge: %s %q, want inconclusive since it has something new", v, why)
	}
}

// Where it is not certain what a slash means, nobody knows what is a remark.
func TestUnclear(t *testing.T) {
	for script, want := range map[string]bool{
		"const a = (b + c) / 2; const d = [1][0] / 2; return /x[/]/.test(a);": false,
		"if (a) /x/.test(a); for await (const x of y) /x/.test(x);":           false,
		"x.return / 2; x?.if(1) / 2; `${a}` / 2; a++ / 2; \"a\" / 2; /a/ / 2": false,
		"{ } /x/.test(a)":        true,
		"const a = { b: 1 } / 2": true,
		"a! / 2":                 true,
		"await /x/.test(a)":      true,
		"a = /x":                 true,
		"a = \"x":                true,

		// A compiler reads another expression here than one would think, or another quotient.
		"if (a) continue\n/[/*]/.test(b); pay(); /[*/]/.test(c)": true,
		"let a\n/[/*]/.test(b); pay(); /[*/]/.test(c)":           true,
		"import './a'\n/[/*]/.test(b); pay(); /[*/]/.test(c)":    true,
		"type A = B[]\n/[/*]/.test(b); pay(); /[*/]/.test(c)":    true,
		"a = b as Array<any> / pay() / 1":                        true,
		"a = b as void / pay() / 1":                              true,
		"a = b++! / pay() / 1":                                   true,
		"a\n--> b":                                               true,
		"a <!-- b":                                               true,
		"a /* b":                                                 true,
		"a = 'b\\\r\nc'; #!d":                                    true,
		"a = 'b\\\r\nc'":                                         false,
		"#!/usr/bin/env 'keep\na":                                false,
	} {
		if got := repair.Unclear(script); got != want {
			t.Errorf("%s: %t, want %t", script, got, want)
		}
	}
}

// What a script does no more is lost, wherever that was; what stands elsewhere is not.
func TestLost(t *testing.T) {
	const was = "async next(ctx, p) {\n  await ctx.publish(\"a\", p);\n  await ctx.kv.set(\"n\", 1);\n  send(ctx, p);\n}"
	for now, want := range map[string][]string{
		was: nil,
		"async next(ctx, p) {\n  send(ctx, p);\n  await ctx.kv.set(\"n\", 1);\n  await ctx.publish(\"a\", p); // first\n}": nil,
		"async next(ctx, p) {\n  await ctx.publish(\"a\", p);\n  await ctx.kv.set(\"n\", 2);\n  send(ctx, p);\n}":          nil,
		"async next(ctx, p) {\n  await ctx.kv.set(\"n\", 1);\n  send(ctx, p);\n}":                                          {"ctx.publish("},
		"async next(ctx, p) {\n  // await ctx.publish(\"a\", p);\n  await ctx.kv.set(\"n\", 1);\n  send(ctx, p);\n}":       {"ctx.publish("},
		"async next(ctx, p) {\n  await ctx.publish(\"a\", p);\n  await ctx.kv.set(\"n\", 1);\n}":                           {"send(ctx,p);"},
	} {
		if got := repair.Lost(was, now); !slices.Equal(got, want) {
			t.Errorf("Lost = %q, want %q, of\n%s", got, want, now)
		}
	}
	e := good()
	e.Was, e.Is = "ctx.log('a'); ctx.log('b');", "ctx.log('a');"
	if v, why := repair.Judge(e); v != repair.Inconclusive {
		t.Errorf("Judge: %s %q, want inconclusive", v, why)
	}
}
