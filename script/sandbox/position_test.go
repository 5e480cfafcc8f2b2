package sandbox_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

const positionTS = `import { explode, type Row } from "./lib/rows";

interface Unused { a: string; b: number }
enum Kind { A = "a", B = "b" }

export default Keep.workflow({
  name: "positions", kind: Kind.A,
  jobs: {
    async deep(ctx: any, row: Row) {
      await ctx.crm.get({ id: 1 });
      const wrap = () => explode(row);
      return wrap();
    },
    async calls(ctx: any) {
      await ctx.crm.find({ q: "(" });
      await ctx.crm
        .create(
          { id: "1", name: String(2),
            note: ")".concat("x") },
        );
      const { crm } = ctx, { get: fetchOne } = crm;
      await crm.get(crm ? [crm].map((c) => c.constructor === undefined) : 1); await crm.get(1);
      await fetchOne(2);
      const ü = "üüü"; await ctx.publish("é", { payload: ü });
    },
  },
  consumers: {
    addRow: Keep.consumer({
      subscribe: [String("a")],
      prepare: async (ctx: any) => ({}),
    }),
  },
});
`

const rowsTS = `export interface Row { id: string }

/** Explodes, on line 6. */
export function explode(row: Row): never {
  const o: any = undefined;
  return o.nope.really(row as Row);
}
`

func loadPositions(t *testing.T) *sandbox.Program {
	t.Helper()
	dir := project(t, map[string]string{"flows/p.ts": positionTS, "flows/lib/rows.ts": rowsTS})
	b, err := sandbox.Build(dir, "flows/p.ts")
	if err != nil {
		t.Fatal(err)
	}
	p, err := openRuntime(t, sandbox.Config{}).Load(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestErrorsPointAtTheAuthorsFiles(t *testing.T) {
	p := loadPositions(t)
	_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"jobs", "deep"}, Now: epoch, Host: &recorder{}})
	s := wantScript(t, err)
	var got []string
	for _, f := range s.Stack {
		got = append(got, f.String())
	}
	want := []string{"explode (flows/lib/rows.ts:6:10)", "wrap (flows/p.ts:11:26)", "deep (flows/p.ts:12:14)"}
	if !slices.Equal(got, want) {
		t.Errorf("stack\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := s.Error(), "TypeError: cannot read property 'nope' of undefined (at flows/lib/rows.ts:6:10)"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestCallsHaveTheirPlace(t *testing.T) {
	p := loadPositions(t)
	var got []string
	_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"jobs", "calls"}, Now: epoch,
		Host: hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
			got = append(got, c.Name+" "+c.At.String())
			return json.RawMessage("{}"), nil
		})})
	want := []string{
		"crm.find flows/p.ts:15:21", "crm.create flows/p.ts:17:10", "crm.get flows/p.ts:22:17",
		"crm.get flows/p.ts:22:89", "crm.get flows/p.ts:23:13", "publish flows/p.ts:24:34",
	}
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("calls %v\n%s, want\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestErrorsAtLoad(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct{ src, want string }{
		{"const a: number = 1;\n\nnull!.x;\nexport default 1", `TypeError: cannot read property 'x' of null (at t.ts:3:1)`},
		{"throw 'x'", `Thrown: "x" (thrown, but not an Error) (at t.ts:1:1)`},
		{"const r = 1;\nexport const x = /(?<a>.)(?<a>.)/;", `SyntaxError: duplicate group name (at t.ts:1:1)`},
		{"export const x = 1", `TypeError: the script has no default export: write export default Keep.workflow({ name: ..., ... }) (at t.ts:1:1)`},
		{"", `TypeError: the script has no default export: write export default Keep.workflow({ name: ..., ... }) (at t.ts:1:1)`},
		{"export default { name: 'x' }", `TypeError: the default export is not a workflow: write export default Keep.workflow({ name: ..., ... }) (at t.ts:1:1)`},
		{"export default Keep.consumer({})", `TypeError: the default export is not a workflow: write export default Keep.workflow({ name: ..., ... }) (at t.ts:1:1)`},
		{"\nexport default Keep.workflow(() => 1)", `TypeError: Keep.workflow({...}) takes an object (at t.ts:2:21)`},
		{"const a = {}; a.a = a;\nexport default Keep.workflow({ jobs: { a } })", `TypeError: the workflow contains itself at jobs.a.a (at t.ts:1:1)`},
		{"let a = {}; for (let i = 0; i < 100; i++) a = { a };\nexport default Keep.workflow(a)", `TypeError: the workflow is nested deeper than 64 levels at `},
		{"export default Keep.workflow({ a: { $type: 1 } })", `TypeError: the key "$type" at a.$type is reserved (at t.ts:1:1)`},
		{"export default Keep.workflow({ get a() { throw new RangeError('getter') } })", `RangeError: getter (at t.ts:1:`},
		{"const a = Array(1e4).fill('x'.repeat(1e4)); export default Keep.workflow({ a })", `TypeError: the workflow's declaration is too large (at t.ts:1:1)`},
		{"(async () => { throw new RangeError('lost') })();\nexport default Keep.workflow({})", `RangeError: lost (in a promise that the script does not await) (at t.ts:1:2`},
	} {
		b, err := sandbox.BuildSource("t.ts", []byte(tt.src))
		if err == nil {
			_, err = rt.Load(context.Background(), b)
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s:\n%v, want\n%s", tt.src, err, tt.want)
		}
	}
}

func TestDeclaration(t *testing.T) {
	p := loadPositions(t)
	var d map[string]any
	if err := json.Unmarshal(p.Declaration(), &d); err != nil {
		t.Fatalf("%v in %s", err, p.Declaration())
	}
	for path, want := range map[string]string{
		"$keep":                                 `"workflow"`,
		"$at":                                   `{"column":21,"file":"flows/p.ts","line":6}`,
		"kind":                                  `"a"`,
		"consumers.addRow.$keep":                `"consumer"`,
		"consumers.addRow.$at":                  `{"column":18,"file":"flows/p.ts","line":28}`,
		"consumers.addRow.subscribe":            `["a"]`,
		"jobs.deep.$function.at":                `{"column":5,"file":"flows/p.ts","line":9}`,
		"jobs.deep.$function.params":            `2`,
		"consumers.addRow.prepare.$function.at": `{"column":16,"file":"flows/p.ts","line":30}`,
		"consumers.addRow.prepare.$function.source": `"async (ctx) =\u003e ({})"`,
	} {
		var v any = d
		for key := range strings.SplitSeq(path, ".") {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%s = %s, want %s", path, got, want)
		}
	}
}

func TestDeclarationOfOtherValues(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", `
		class Thing {}
		const shared = { a: 1 };
		export default Keep.workflow({ z: 1, a: [1, undefined, null, shared, shared], d: new Date(), r: /x/, m: new Map(), t: new Thing(), n: Object.create(null),
			s: Symbol("x"), b: 1n, i: Infinity, u: undefined, e: "é\n\"", [Symbol("k")]: 1, p: Promise.resolve(), f: Math.max, g: (() => 1).bind(null) })`)
	got := string(p.Declaration())
	want := `"name"`
	_, rest, _ := strings.Cut(got, `"z":`)
	want = `1,"a":[1,null,null,{"a":1},{"a":1}],"d":{"$type":"Date"},"r":{"$type":"RegExp"},"m":{"$type":"Map"},"t":{"$type":"Thing"},"n":{},` +
		`"s":{"$type":"symbol"},"b":{"$type":"bigint"},"i":{"$type":"Infinity"},"e":"é\n\"","p":{"$type":"Promise"},` +
		`"f":{"$function":{"at":null,"params":2,"source":"function max() {\n    [native code]\n}"}},"g":{"$function":{"at":null,"params":0,"source":"function bound () {\n    [native code]\n}"}}}`
	if rest != want {
		t.Errorf("declaration\n%s, want\n%s", rest, want)
	}
}
