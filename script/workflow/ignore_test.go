package workflow

import (
	"strings"
	"testing"
)

// Whether next looks at the result decides whether a person must know it. A text that
// cannot be read counts as looking.
func TestIgnores(t *testing.T) {
	for source, want := range map[string]bool{
		`async next(ctx, p) { ctx.publish("a", {}) }`:                       true,
		`async next(ctx, p, r) { ctx.publish("a", { status: r.status }) }`:  true,
		`async (ctx, p, { status }) => { if (status === "applied") p.x() }`: true,
		`async (ctx, p, { status: s, }) => { p.x(s) }`:                      true,
		`(ctx, p, r) => ctx.publish("a", {})`:                               true,
		`ctx => ctx.publish("a", {})`:                                       true,
		"async next(ctx, p, r) { p.log(`${r?.status}`) }":                   true,
		`async next(ctx, p, r) { p.r.result() }`:                            true,
		`async next(ctx, p, r) { ctx.publish("a", r.result) }`:              false,
		`async next(ctx, p, r) { ctx.publish("a", r) }`:                     false,
		`async next(ctx, p, r) { const { result } = r }`:                    false,
		`async next(ctx, p, r) { p.x(r["result"]) }`:                        false,
		`async next(ctx, p, r) { p.x(r?.result?.id) }`:                      false,
		"async next(ctx, p, r) { p.log(`${r.result}`) }":                    false,
		`async (ctx, p, { status, ...rest }) => {}`:                         false,
		`async (ctx, p, { result: x }) => {}`:                               false,
		`async (ctx, p, { ["res" + "ult"]: x }) => {}`:                      false,
		`async (ctx, p, r = {}) => {}`:                                      false,
		`async (...all) => f(...all)`:                                       false,
		`async (ctx, ...rest) => f(rest)`:                                   false,
		`function () { return f(arguments[2]) }`:                            false,
		"function next() {\n    [native code]\n}":                           false,
		``: false,
		"async next(ctx, p, r) {\n  if (p) {\n  }\n  /'/.test(p) && ctx.publish(\"a\", r.result); // '\n}": false,
		"async next(ctx, p, r) {\n  let x\n  /[/*]/.test(p); p.x(r.result); /[*/]/.test(p);\n}":            false,
		`async next(ctx, p, r) { p.x(r.re\u0073ult) }`:                                                     false,
		`async (ctx, p, { re\u0073ult }) => p.x(result)`:                                                   false,
		`["next".concat("")](ctx, p, r) { p.x(r.result) }`:                                                 false,
		`async next(ctx, p = () => r.result, r) { p() }`:                                                   false,
		`async next(ctx, p) { ` + strings.Repeat("p.x(); ", maxSource/7) + ` }`:                            false,
		`async next(ctx, p, r) { const f = (r) => r.status; ctx.publish("a", f(r))}`:                       false,
	} {
		if got := ignores(source, 2, "result"); got != want {
			t.Errorf("ignores(%.90s) = %t, want %t", source, got, want)
		}
	}
}
