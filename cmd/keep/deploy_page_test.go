//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/api"
)

const pagedScript = `export default Keep.workflow({ name: "w", topics: { t: {} },
  producers: { poll: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {
    for (const o of await ctx.shop.list({})) await ctx.publish("t", { messageId: o.id, mail: o.mail }); } } },
  consumers: { send: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, trigger) { return trigger ? { reservations: [{ topic: "t", ids: [trigger.messageId] }], data: { id: trigger.messageId, mail: trigger.payload.mail } } : { reservations: [], data: null }; },
    async mutate(ctx, prepared) { await ctx.shop.send({ id: prepared.data.id, to: prepared.data.mail }); } }) } });
`

// An author mends a script on the pages of a real keep serve: a check and a plan read, send nothing and
// change nothing; the deploy stays when the host starts again with the file of before, and what needs
// more than the grant waits.
func TestDeployOnThePages(t *testing.T) {
	t.Parallel()
	var reads, secrets, calls atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			calls.Add(1)
		case r.URL.Path == "/secrets":
			secrets.Add(1)
		default:
			reads.Add(1)
		}
		fmt.Fprint(w, `[{"id":"o1","mail":"ada@example.com"}]`)
	}))
	t.Cleanup(shop.Close)
	s := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	for name, text := range map[string]string{"w.js": pagedScript, "keep.toml": fmt.Sprintf(`db = "keep.db"
workflows = ["w.js"]
[connections.shop]
connector = "http"
base_url = %[1]q
[connections.shop.tools.list]
effect = "list"
path = "/orders"
[connections.shop.tools.secrets]
effect = "list"
path = "/secrets"
[connections.shop.tools.send]
effect = "mutate"
path = "/orders/{id}"
identity = ["id"]
[connections.post]
connector = "http"
base_url = %[1]q
headers = { Authorization = "Bearer ${account:work-mail}" }
[connections.post.tools.send]
effect = "mutate"
path = "/letters/{id}"
identity = ["id"]
[hooks.paid]
workflow = "w"
topic = "paid"
verify = "standard-webhooks"
secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
`, shop.URL)} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.keep("deploy", ".")
	s.more = []string{"."}
	s.start()
	author := "Bearer " + s.keep("token", "add", "anna", "--role", "author")
	says := func(body string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(body, w) {
				t.Errorf("the page does not say %q:\n%.3000s", w, body[strings.Index(body, "<h1"):])
			}
		}
	}
	_, body := s.ask(http.MethodPost, "/workflows/w/plan", "", "Authorization", author)
	says(body, "Changes outside: 1. Events: 1. Reads: 1.")

	// send presses a button of the form with a text in it.
	over, checked := "1.0", ""
	page, declares := "/workflows/w/deploy", ""
	send := func(do, source string) string {
		t.Helper()
		var form bytes.Buffer
		m := multipart.NewWriter(&form)
		for _, f := range [][2]string{{"over", over}, {"checked", checked}, {"workflow", declares}, {"entry", "w.js"}, {"name", "w.js"}, {"text", strings.ReplaceAll(source, "\n", "\r\n")}, {"do", do}} {
			if err := m.WriteField(f[0], f[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		res, body := s.ask(http.MethodPost, page, form.String(), "Authorization", author, "Content-Type", m.FormDataContentType())
		if m := regexp.MustCompile(`name="checked" value="([^"]*)"`).FindStringSubmatch(body); m != nil {
			checked = m[1]
		}
		if to := res.Header.Get("Location"); to != "" {
			_, body = s.ask(http.MethodGet, to, "", "Authorization", author)
		}
		return body
	}
	changed := func(was, now string) string { return strings.Replace(pagedScript, was, now, 1) }
	says(send("check", "export default {"), "The script cannot be deployed as it is", "line 1")
	says(send("check", changed("ctx.shop.send(", "ctx.shop.sent(")), "The script cannot be deployed as it is", "shop.sent")
	says(send("check", changed(`name: "w"`, `name: "v"`)), "it declares the workflow &#34;v&#34;, not &#34;w&#34;")
	// What is missing for the tools that a script calls is said with the check, and nothing of others.
	const account = "the account work-mail is not connected in the database, and post.send needs it; run: keep connect PACK --name work-mail"
	says(send("check", changed("ctx.shop.send(", "ctx.post.send(")), "The script can be deployed", account)
	if body := send("check", pagedScript); strings.Contains(body, "work-mail") {
		t.Errorf("the check of a script that does not call post.send speaks of its account:\n%.3000s", body)
	}
	needs := changed("ctx.shop.list({})", "ctx.shop.secrets({})")
	says(send("check", needs), "The script can be deployed", "not granted", "this plan reads only what the workflow was granted")
	if secrets.Load() != 0 {
		t.Error("a plan read what the workflow was not granted")
	}
	says(send("deploy", needs), "waits in Inbox until a person agrees", `href="/inbox/`)
	mended := changed("to: prepared.data.mail", `to: prepared.data.mail, copy: "boss"`)
	says(send("check", mended), "The script can be deployed", "copy&#34;: &#34;boss", "hooks.paid.topic: workflow &#34;w&#34; declares no topic &#34;paid&#34;") // as keep check
	current := func() string {
		t.Helper()
		var w api.Workflow
		if err := json.Unmarshal([]byte(s.keep("workflows", "show", "w", "--json")), &w); err != nil {
			t.Fatal(err)
		}
		return w.Version
	}
	if v := current(); v != "1.0" || calls.Load() != 0 || reads.Load() != 4 {
		t.Errorf("after looking, version %s is current, %d calls and %d reads were made", v, calls.Load(), reads.Load())
	}
	says(send("deploy", mended), "Deployed: this version runs now")
	deployed := current()
	if deployed == "1.0" {
		t.Error("version 1.0 is current after the deploy")
	}
	s.kill()
	s.start()
	if v := current(); v != deployed {
		t.Errorf("a start with the file of before made version %s current, want %s", v, deployed)
	}
	s.keep("deploy", ".")
	if v := current(); v == deployed {
		t.Error("keep deploy did not deploy the file")
	}

	// A workflow that is not there yet: what it calls waits for an admin, who lets it run.
	page, over = "/deploy", "0.0"
	says(send("check", pagedScript), "The script declares the workflow w, which is there already")
	says(send("check", strings.Replace(pagedScript, `name: "w"`, `name: "fresh"`, 1)), "The script cannot be deployed as it is", "the workflow w continues in the database", "new: true if it is another one")
	fresh := strings.Replace(pagedScript, `name: "w"`, `name: "fresh", new: true`, 1)
	says(send("check", fresh), "The script can be deployed, as the workflow <b>fresh</b>", "not granted", "this plan reads only what the workflow was granted")
	declares = "fresh"
	says(send("deploy", fresh), "waits in Inbox until a person agrees")
	s.keep("proposals", "accept", "fresh@1.0")
	if list := s.keep("workflows"); !regexp.MustCompile(`(?m)^fresh +1\.0 `).MatchString(list) {
		t.Errorf("after an admin agreed, the workflows are\n%s", list)
	}
	idle := strings.Replace(strings.Replace(fresh, `"fresh"`, `"idle"`, 1), "await ctx.shop.list({})", "[]", 1)
	idle = strings.Replace(idle, "await ctx.shop.send({ id: prepared.data.id, to: prepared.data.mail });", "", 1)
	says(send("check", idle), "as the workflow <b>idle</b>", "It calls no tool", "idle runs from now on")
	declares = "idle"
	says(send("deploy", idle), "Deployed: this version runs now", "<h1>idle</h1>")
	if calls.Load() != 0 {
		t.Errorf("%d calls were sent", calls.Load())
	}
}
