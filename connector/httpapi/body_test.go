package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// bodies are tools that write their bodies in different forms.
const bodies = `
[tools.form]
effect = "mutate"
path = "/x/{id}"
identity = ["id"]
body = "form"
token = { metadata = "keep_id" }
fixed = { currency = "eur", metadata = { from = "keep" } }

[tools.json]
effect = "mutate"
path = "/x"
identity = ["id"]
rename = { property = "a.b", id = "a.id" }
fixed = { kind = "note", who = "{name}", text = "by {name}", list = [1, "{n}"], deep = { n = "{n}" } }
token = { body = "requestId", query = "key", header = "X-Key", format = "hex32" }

[tools.multi]
effect = "mutate"
path = "/x"
identity = ["id"]
body = "multipart"

[tools.text]
effect = "mutate"
path = "/x/{id}"
identity = ["id"]
body = "text"

[tools.append]
effect = "mutate"
path = "/x"
identity = ["id"]
token = { append = { param = "body", text = "\n<!-- keep:{token} -->" } }
`

func TestBodyForms(t *testing.T) {
	t.Parallel()
	var body, kind, line, key string
	conn := openTools(t, bodies, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, kind, line, key = string(b), r.Header.Get("Content-Type"), r.RequestURI, r.Header.Get("X-Key")
		io.WriteString(w, "{}")
	})
	const hex = "f165e8b00b0a3d7e6c1f1b6b5d2b1c32" // any 32 hex digits
	for _, c := range []struct {
		tool, params, kind string
		want               []string // parts of the body; a single one is all of it
	}{
		{"form", `{"id":1,"items":[{"price":1.50},null],"ok":true,"none":null,"metadata":{"order":6},"a b":"c&d"}`,
			"application/x-www-form-urlencoded", []string{
				"a+b=c%26d&currency=eur&items%5B0%5D%5Bprice%5D=1.50&metadata%5Bfrom%5D=keep&metadata%5Bkeep_id%5D=tok-1&metadata%5Border%5D=6&ok=true"}},
		{"json", `{"id":9007199254740993,"property":"p","name":"Ada","n":2.0,"more":1}`, "application/json", []string{
			`"a":{"b":"p","id":9007199254740993}`, `"kind":"note"`, `"who":"Ada"`, `"text":"by Ada"`, `"list":[1,2.0]`, `"deep":{"n":2.0}`, `"more":1`, `"requestId":"`}},
		{"json", `{"id":1,"name":"Ada"}`, "application/json", []string{`"list":[1]`, `"deep":{}`}},
		{"multi", `{"id":1,"f":{"filename":"ä \"x\".txt","type":"text/plain","base64":"aGVsbG8="},"o":{"a":1}}`, "multipart/form-data; boundary=keep-", []string{
			"name=\"id\"\r\n\r\n1\r\n", "hello", "Content-Type: text/plain", "{\"a\":1}", `filename="ä \"x\".txt"`}},
		{"text", `{"id":1,"text":"hi\n"}`, "text/plain; charset=utf-8", []string{"hi\n"}},
		{"append", `{"id":1,"body":"hello"}`, "application/json", []string{`{"body":"hello\n<!-- keep:tok-1 -->","id":1}`}},
	} {
		if _, err := mutate(t, conn, c.tool, c.params); err != nil {
			t.Errorf("%s %s: %v", c.tool, c.params, err)
			continue
		}
		if !strings.HasPrefix(kind, c.kind) || len(c.want) == 1 && body != c.want[0] {
			t.Errorf("%s %s sent %s %q, want %s %q", c.tool, c.params, kind, body, c.kind, c.want[0])
		}
		for _, part := range c.want {
			if !strings.Contains(body, part) {
				t.Errorf("%s %s sent %s, want %s in it", c.tool, c.params, body, part)
			}
		}
		if c.tool == "json" && (len(key) != len(hex) || line != "/x?key="+key || !strings.Contains(body, `"requestId":"`+key+`"`)) {
			t.Errorf("the token is %q in the header, and the rest is %s %s", key, line, body)
		}
	}
	line = ""
	for tool, params := range map[string]string{
		"form": `{"id":1,"currency":"usd"}`, "text": `{"id":1,"text":"a","more":1}`, "append": `{"id":1,"body":7}`,
		"multi": `{"id":1,"f":{"filename":"x","base64":"!"}}`, "json": `{"id":1,"name":"x","kind":"other"}`,
	} {
		if _, err := mutate(t, conn, tool, params); class(err) != keep.ClassLogic || line != "" {
			t.Errorf("%s %s: %v and sent %q, want a logic failure and nothing sent", tool, params, err, line)
		}
	}
}

// TestConfigOfBodies refuses what could not be sent, or would not be what it says.
func TestConfigOfBodies(t *testing.T) {
	t.Parallel()
	const head = "[tools.x]\neffect = \"mutate\"\npath = \"/x\"\nidentity = [\"id\"]\n"
	for extra, want := range map[string]string{
		`body = "xml"`:                           "tools.x.body: is \"xml\"",
		"method = \"DELETE\"\nfixed = { a = 1 }": "tools.x.method: a DELETE request has no body",
		"fixed = { a = \"{\" }":                  "tools.x.fixed: a: a brace",
		"fixed = { a = 1 }\nparams = { properties = { a = {}, id = {} } }": "tools.x.fixed.a: is also a param",
		"fixed = { id = 1 }": "tools.x.fixed.id: is also a param",
		"fixed = { a = \"{a}\" }\nparams = { properties = { a = {}, id = {} } }": "",
		"fixed = { a = \"{b}\" }\nparams = { properties = { id = {} } }":         "tools.x.params.properties: lacks \"b\"",
		"rename = { a = \"x..y\" }":                                                                "tools.x.rename.a: is",
		"pages = { style = \"page\", param = \"p\" }":                                              "tools.x.pages: is for list tools",
		"method = \"DELETE\"\ntoken = { body = \"a\" }":                                            "tools.x.token.body: a DELETE request has no body",
		"token = { header = \"K\" }\nidempotency_header = \"L\"":                                   "tools.x.idempotency_header: is short for",
		"[tools.l]\neffect = \"list\"\npath = \"/\"\npages = { style = \"cursor\" }":               "tools.l.pages.param: is needed",
		"[tools.l]\neffect = \"list\"\npath = \"/\"\npages = { style = \"book\" }":                 "tools.l.pages.style: is \"book\"",
		"[tools.l]\neffect = \"list\"\npath = \"/\"\npages = { style = \"link\", next = \"$.x\" }": "tools.l.pages.next",
	} {
		_, err := parseTools(head+extra, "http://127.0.0.1:1")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", extra, err, want)
		}
	}
}
