package sandbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

func TestGlobals(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct{ expr, want string }{
		// Not there.
		{`[typeof fetch, typeof process, typeof setTimeout, typeof performance, typeof SharedArrayBuffer, typeof WebAssembly, typeof XMLHttpRequest, typeof Deno]`,
			`["undefined","undefined","undefined","undefined","undefined","undefined","undefined","undefined"]`},
		{`Object.keys(globalThis)`, `[]`},
		// Text and bytes.
		{`String(new TextEncoder().encode("é€😀\ud800"))`, `"195,169,226,130,172,240,159,152,128,239,191,189"`},
		{`new TextEncoder().encode() instanceof Uint8Array`, `true`},
		{`(() => { const b = new Uint8Array(4); return [new TextEncoder().encodeInto("é€x", b), String(b)] })()`, `[{"read":1,"written":2},"195,169,0,0"]`},
		{`new TextDecoder().decode(new Uint8Array([0xEF, 0xBB, 0xBF, 0x61]))`, `"a"`},
		{`new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array([0xEF, 0xBB, 0xBF, 0x61])).length`, `2`},
		{`new TextDecoder().decode(new Uint8Array([0xE2, 0x82, 0x61, 0xFF, 0xF0, 0x9F, 0x98, 0xED, 0xA0, 0x80]))`, "\"\ufffda\ufffd\ufffd\ufffd\ufffd\ufffd\""},
		{`new TextDecoder().decode(new DataView(new Uint8Array([1, 0x61, 0x62, 1]).buffer, 1, 2))`, `"ab"`},
		{`new TextDecoder().decode(new Uint16Array([0x6261]))`, `"ab"`},
		{`(() => { const d = new TextDecoder(); return [d.decode(new Uint8Array([0xE2, 0x82]), { stream: true }), d.decode(new Uint8Array([0xAC]), { stream: true }), d.decode()] })()`, `["","€",""]`},
		{`(() => { try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xFF])) } catch (e) { return e.name } })()`, `"TypeError"`},
		{`(() => { try { new TextDecoder("latin1") } catch (e) { return e.name } })()`, `"RangeError"`},
		{`[btoa("hé"), atob("aGk=")]`, `["aOk=","hi"]`},
		// crypto.
		{`crypto.randomUUID().replace(/[0-9a-f]/g, "x")`, `"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"`},
		{`/^.{14}4.{4}[89ab]/.test(crypto.randomUUID())`, `true`},
		{`crypto.getRandomValues(new Uint8Array(8)).length`, `8`},
		{`(() => { try { crypto.getRandomValues(new Uint8Array(65537)) } catch (e) { return e.name } })()`, `"QuotaExceededError"`},
		{`(() => { try { crypto.getRandomValues(new Float64Array(1)) } catch (e) { return e.name } })()`, `"TypeError"`},
		{`[...new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode("abc")))].map((b) => b.toString(16).padStart(2, "0")).join("")`,
			`"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`},
		{`(await crypto.subtle.digest({ name: "sha-512" }, new ArrayBuffer(0))).byteLength`, `64`},
		{`(await crypto.subtle.digest("SHA-1", new Uint8Array(0))).byteLength + (await crypto.subtle.digest("SHA-384", new Uint8Array(3).subarray(1))).byteLength`, `68`},
		{`await crypto.subtle.digest("MD5", new Uint8Array(1)).catch((e) => e.name)`, `"NotSupportedError"`},
		{`await crypto.subtle.digest("SHA-256", "text").catch((e) => e.name)`, `"TypeError"`},
		// structuredClone.
		{`structuredClone({ a: [1, , null], d: new Date(5), s: "x" })`, `{"a":[1,null,null],"d":"1970-01-01T00:00:00.005Z","s":"x"}`},
		{`(() => { const o = { m: new Map([[1, new Set([2])]]), r: /x/gi, u: new Uint16Array([1, 2]), n: Object(7) }; o.o = o; const c = structuredClone(o); return [c !== o, c.o === c, c.m.get(1).has(2), String(c.r), c.u instanceof Uint16Array && c.u[1], c.n + 1] })()`,
			`[true,true,true,"/x/gi",2,8]`},
		{`(() => { const e = structuredClone(new RangeError("r", { cause: { a: 1 } })); return [e instanceof RangeError, e.message, e.cause] })()`, `[true,"r",{"a":1}]`},
		{`[() => {}, Symbol(), new WeakMap(), Promise.resolve()].map((v) => { try { structuredClone(v) } catch (e) { return e.name } })`, `["DataCloneError","DataCloneError","DataCloneError","DataCloneError"]`},
		{`(() => { const b = new ArrayBuffer(4), c = structuredClone([new Uint8Array(b), new Uint8Array(b, 1)]); return [c[0].buffer === c[1].buffer, c[1].length] })()`, `[true,3]`},
		// URL, which is made when it is first asked for.
		{`(() => { const k = "U" + "RL"; return String(new globalThis[k]("http://a/../b")) })()`, `"http://a/b"`},
		{`(() => { const k = "U" + "RL"; globalThis[k + "SearchParams"] = 1; return [typeof globalThis[k], globalThis[k + "SearchParams"]] })()`, `["function",1]`},
		{`(() => { const k = "U" + "RL"; delete globalThis[k]; return [typeof globalThis[k + "SearchParams"], typeof globalThis[k]] })()`, `["function","undefined"]`},
		{`(() => { const k = "U" + "RL"; globalThis[k] = 7; return globalThis[k] })()`, `7`},
		{`(({ href, protocol, host, hostname, port, pathname, search, hash, origin, username, password }) => [href, protocol, host, hostname, port, pathname, search, hash, origin, username, password])(new URL("../c?q=1#h", "https://u:p@example.com:8080/a/b/"))`,
			`["https://u:p@example.com:8080/a/c?q=1#h","https:","example.com:8080","example.com","8080","/a/c","?q=1","#h","https://example.com:8080","u","p"]`},
		{`new URL("http://EXAMPLE.com:80/é?ü=ö#ß")`, `"http://example.com/%C3%A9?%C3%BC=%C3%B6#%C3%9F"`},
		{`["http://münchen.de/", "http://日本語。jp", "http://Faß.de", "http://xn--mnchen-3ya.de", "http://0x7f.1/", "http://[::1]:3000/"].map((u) => new URL(u).host)`,
			`["xn--mnchen-3ya.de","xn--wgv71a119e.jp","xn--fa-hia.de","xn--mnchen-3ya.de","127.0.0.1","[::1]:3000"]`},
		{`["", "x", "http://", "http://a b/", "http://[1", "http://a:99999", "http://a%00b"].map((u) => URL.canParse(u))`, `[false,false,false,false,false,false,false]`},
		{`(() => { try { new URL("nope") } catch (e) { return [e.name, e.message] } })()`, `["TypeError","Invalid URL: nope"]`},
		{`[URL.parse("nope"), URL.parse("/x", "http://a").href]`, `[null,"http://a/x"]`},
		{`(() => { const u = new URL("http://a/?b=1&b=2"); u.searchParams.append("c d", "é&"); u.searchParams.delete("b", "1"); u.port = "81"; u.hash = "z"; return u.href })()`, `"http://a:81/?b=2&c+d=%C3%A9%26#z"`},
		{`(() => { const u = new URL("http://a/"); const p = u.searchParams; u.search = "?x=1"; return [p.get("x"), p === u.searchParams] })()`, `["1",true]`},
		{`[...new URLSearchParams("?a=1&b=2&a=3")]`, `[["a","1"],["b","2"],["a","3"]]`},
		{`String(new URLSearchParams({ q: "a b", r: "+" })) + " " + new URLSearchParams([["x", "1"], ["y", 2]]) + " " + new URLSearchParams(new Map([["m", "n"]]))`, `"q=a+b&r=%2B x=1&y=2 m=n"`},
		{`(() => { const p = new URLSearchParams("b=2&a=1&b=3"); p.sort(); p.set("b", "9"); return [p.toString(), p.getAll("b"), p.has("a", "1"), p.has("a", "2"), p.size, [...p.keys()], [...p.values()]] })()`,
			`["a=1&b=9",["9"],true,false,2,["a","b"],["1","9"]]`},
		// Others.
		{`await new Promise((ok) => queueMicrotask(() => ok(1)))`, `1`},
		{`(() => { try { Keep.job(() => {}) } catch (e) { return e.name + ": " + e.message } })()`,
			`"TypeError: there is no Keep.job: there are Keep.workflow and Keep.consumer; a job or a producer is a function, or { schedule, handler }"`},
		{`[Keep.then === undefined, "job" in Keep, JSON.stringify(Keep), String(Object.keys(Keep))]`, `[true,false,"{}","workflow,consumer"]`},
		{`[Object.isFrozen(Keep), String(Object.getOwnPropertyDescriptor(globalThis, "Keep").writable)]`, `[true,"false"]`},
		{`[String.raw` + "`\\n`" + `, Object.groupBy([1, 2], (v) => v % 2 ? "odd" : "even"), [3, 1].toSorted(), "a-b".replaceAll("-", "+")]`, `["\\n",{"odd":[1],"even":[2]},[1,3],"a+b"]`},
		{`[typeof ctx, typeof ctx.crm, typeof ctx.crm.find, ctx.then, ctx.crm.then, ctx.toJSON, ctx[Symbol.iterator], ctx.crm === ctx.crm, ctx.item]`, `["object","function","function",null,null,null,null,true,null]`},
		{`[ctx["item.begin"], ctx["kv.get"], ctx["a.b"]]`, `[null,null,null]`},
		{`(() => { const { crm } = ctx; return [Object.keys(ctx), typeof crm.x] })()`, `[["item","log","now","withItem"],"function"]`},
	} {
		if got := eval(t, rt, "return ("+tt.expr+")"); got != tt.want {
			t.Errorf("%s\n= %s, want\n  %s", tt.expr, got, tt.want)
		}
	}
}

func TestLog(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{LogLine: 400}})
	for _, tt := range []struct{ stmt, want string }{
		{`console.log("a", 1, true, null, undefined, 10n, Symbol("s"))`, `info a 1 true null undefined 10n Symbol(s)`},
		{`console.info({ a: { b: [1, "x"] } })`, `info { a: { b: [ 1, "x" ] } }`},
		{`console.debug(new Map([["k", { v: 1 }]]), new Set([1]))`, `debug Map { "k" => { v: 1 } } Set { 1 }`},
		{`console.warn(new Date(0), /x/g, () => 1, function named() {}, class C {})`, `warn 1970-01-01T00:00:00.000Z /x/g [function] [function named] [function C]`},
		{`console.error("%s", "x")`, `error %s x`},
		{`ctx.log("from ctx", [])`, `info from ctx []`},
		{`const o = {}; o.o = o; ctx.log(o)`, `info { o: [circular] }`},
		{`ctx.log({ a: { b: { c: { d: { e: { f: 1 } } } } } })`, `info { a: { b: { c: { d: { e: {…} } } } } }`},
		{`ctx.log(Array(200).fill(0).length, [...Array(3).keys()], new Uint8Array(2))`, `info 200 [ 0, 1, 2 ] [ 0, 0 ]`},
		{`class P { x = 1 } ctx.log(new P(), Object.create(null), { "a-b": 1 })`, `info P { x: 1 } {} { "a-b": 1 }`},
		{`ctx.log({ get x() { throw 1 } })`, `info [a value that cannot be shown]`},
		{`console.assert(true, "no"); console.assert(false, "yes")`, `error Assertion failed: [ "yes" ]`},
		{`ctx.log("é".repeat(300))`, `info ` + strings.Repeat("é", 200) + "… (cut, 600 bytes)"},
		{`ctx.log("x" + "é".repeat(300))`, `info x` + strings.Repeat("é", 199) + "… (cut, 601 bytes)"},
		{`ctx.log(new TypeError("bad"))`, "info TypeError: bad\n    at f (t.ts:2:13)"},
		{`ctx.log("x".repeat(5e6))`, `info ` + strings.Repeat("x", 400) + "… (cut, 5000000 bytes)"},
	} {
		p := mustLoad(t, rt, "t.ts", handler(tt.stmt))
		var got []string
		_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"f"}, Now: epoch, Log: func(level, text string, at sandbox.Position) {
			got = append(got, level+" "+text)
			if at.File != "t.ts" || at.Line != 2 {
				t.Errorf("%s: at %v, want line 2 of t.ts", tt.stmt, at)
			}
		}})
		if s := strings.Join(got, "|"); s != tt.want || err != nil {
			t.Errorf("%s logs\n%s, %v, want\n%s", tt.stmt, s, err, tt.want)
		}
	}
}
