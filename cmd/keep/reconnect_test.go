//go:build unix

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// losing puts a way to the OAuth server before the diary's that loses one answer after lose
// was set: the server has done then what it was asked.
func (d *diary) losing() (lose *atomic.Bool) {
	d.Helper()
	to, err := url.Parse(d.oauth.Issuer)
	if err != nil {
		d.Fatal(err)
	}
	lose = new(atomic.Bool)
	proxy := httputil.NewSingleHostReverseProxy(to)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lose.CompareAndSwap(true, false) {
			proxy.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	d.Cleanup(gateway.Close)
	d.write("keep.toml", "[connections.diary]\nconnector = \"diary\"\naccount = \"diary\"\n\n[packs.diary]\nclient_id = \"public\"\ntoken_url = \""+gateway.URL+"/token\"\n")
	return lose
}

// allow connects the account as ann.
func (d *diary) allow() {
	d.Helper()
	if out, status := d.connect(func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }); status != exit.Done {
		d.Fatalf("connect: status %d: %s", status, out)
	}
}

// list reads what a command lists.
func list[T any](d *diary, args ...string) (all []T) {
	d.Helper()
	out, err := d.command(append(args, "--json")...).Output()
	if err != nil || json.Unmarshal(out, &all) != nil {
		d.Fatalf("keep %v: %s, %v", args, out, err)
	}
	return all
}

// An account whose tokens are lost is one question, asked before a run needs it. Runs wait
// without sending anything, and continue by themselves when it is connected again.
func TestReconnect(t *testing.T) {
	d := newDiary(t)
	lose := d.losing()
	for _, name := range []string{"one", "two"} {
		d.write(name+".js", `export default Keep.workflow({ name: "`+name+`", topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { ctx.log("read", (await ctx.diary.days({})).length); } } } });`)
	}
	d.allow()
	told := startHook(t)
	toml, err := os.ReadFile(filepath.Join(d.dir, "keep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	d.write(".secrets/webhook", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	d.write("keep.toml", fmt.Sprintf("%s[notify]\nwebhook = { url = %q, secret = \"${secret:webhook}\" }\n", toml, told.URL))
	said := serveIn(t, d.dir, "--listen", "127.0.0.1:0")
	said.wait(t, "Serving 2 workflows")

	// An answer is lost, and the server takes no token twice: nobody can help but a person.
	lose.Store(true)
	if out, status := d.keep("accounts", "renew", "diary"); status != exit.NeedsPerson {
		t.Fatalf("renew: status %d: %s", status, out)
	}
	questions := list[api.Escalation](d, "inbox")
	if len(questions) != 1 || questions[0].Kind != keep.AskReconnect || len(questions[0].Actions) != 0 || questions[0].Workflow != "" {
		t.Fatalf("before a run needs it: %+v", questions)
	}
	<-told.heard
	told.mu.Lock()
	if len(told.bodies) != 1 || !strings.Contains(told.bodies[0], `"reconnect"`) || !strings.Contains(told.bodies[0], "keep connect diary --name diary") {
		t.Errorf("[notify] was told %q", told.bodies)
	}
	told.mu.Unlock()
	if out, _ := d.keep("status"); !bytes.Contains([]byte(out), []byte("keep connect diary --name diary")) {
		t.Errorf("status says %s", out)
	}
	if out, status := d.keep("inbox", "show", string(questions[0].ID)); status != exit.Done {
		t.Errorf("inbox show: %s", out)
	}
	before := d.tokens()
	for _, name := range []string{"one", "two"} {
		if out, status := d.keep("trigger", name); status != exit.Done {
			t.Fatalf("trigger: %s", out)
		}
		said.wait(t, "run stopped")
	}
	if now := list[api.Escalation](d, "inbox"); len(now) != 1 || now[0].ID != questions[0].ID {
		t.Errorf("with two runs that wait: %+v", now)
	}
	for _, r := range list[api.Run](d, "runs") {
		if r.Status != keep.StatusPerson || r.Mutation != nil || r.Error == nil || *r.Error.Account != "diary" {
			t.Errorf("a run is %+v", r)
		}
	}
	if now := d.tokens(); !slices.Equal(now, before) {
		t.Errorf("%d tokens were sent to the service without an account", len(now)-len(before))
	}

	d.allow()
	for done := 0; done < 2; {
		done = 0
		for _, r := range list[api.Run](d, "runs") {
			if r.Status == keep.StatusCommitted {
				done++
			}
		}
	}
	if now := list[api.Escalation](d, "inbox"); len(now) != 0 {
		t.Errorf("after it was connected: %+v", now)
	}
	if out, status := d.keep("db", "check"); status != exit.Done {
		t.Errorf("check: %s", out)
	}
}

// A secret of the database that changes counts at the next call of a running host.
func TestStoredSecretChanges(t *testing.T) {
	got := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"v": 1}`)
	}))
	t.Cleanup(service.Close)
	d := &diary{T: t, dir: shortDir(t)}
	d.write("keep.toml", string(bytes.ReplaceAll([]byte(reloadConfig), []byte("URL"), []byte(service.URL))))
	d.write("reader.js", `export default Keep.workflow({ name: "reader", topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { ctx.log("read", (await ctx.svc.read({})).v); } } } });`)
	set := func(value string) {
		t.Helper()
		cmd := d.command("secrets", "set", "svc")
		cmd.Stdin = bytes.NewReader([]byte(value))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
	}
	set("one")
	said := serveIn(t, d.dir, "--listen", "127.0.0.1:0")
	said.wait(t, "Serving 1 workflow")
	for _, value := range []string{"one", "two", "three"} {
		if value != "one" {
			set(value)
			said.wait(t, "configuration taken")
		}
		if out, status := d.keep("trigger", "reader"); status != exit.Done {
			t.Fatalf("trigger: %s", out)
		}
		if sent := <-got; sent != "Bearer "+value {
			t.Errorf("the service got %q, want %s", sent, value)
		}
	}
}

// A running host shows accounts over HTTP to everybody who may look, and lets an admin test,
// renew and revoke them. No token is in any answer.
func TestServedAccounts(t *testing.T) {
	d := newDiary(t)
	d.write("one.js", `export default Keep.workflow({ name: "one", topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { await ctx.diary.days({}); } } } });`)
	d.allow()
	s := &serving{t: t, bin: buildKeep(t), dir: d.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	s.start()
	looks, rules := "Bearer "+s.keep("token", "add", "dash", "--role", "author"), "Bearer "+s.keep("token", "add", "root", "--role", "admin")
	ask := func(method, path, token string, status int, want string) {
		t.Helper()
		res, text := s.ask(method, "/api/v1"+path, "", "Authorization", token)
		if res.StatusCode != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: %d %s, want %d with %s", method, path, res.StatusCode, text, status, want)
		}
		for _, token := range d.tokens() {
			if strings.Contains(text, token) {
				t.Errorf("%s %s shows a token", method, path)
			}
		}
	}
	ask("GET", "/accounts", looks, 200, `"subject":"ann@example.com"`)
	ask("POST", "/accounts/diary/renew", looks, 403, "admin")
	ask("POST", "/accounts/diary/test", rules, 200, `"generation":1`)
	ask("POST", "/accounts/diary/renew", rules, 200, `"generation":2`)
	ask("POST", "/accounts/diary/test", rules, 200, `"last_used_at":"`)
	ask("GET", "/accounts/diary", looks, 200, `"state":"done"`)
	ask("GET", "/accounts/nobody", looks, 404, "nobody")
	ask("POST", "/accounts/diary/revoke", rules, 200, `"status":"revoked"`)
	ask("POST", "/accounts/diary/test", rules, 409, "was revoked")
	if len(d.tokens()) != 2 {
		t.Errorf("%d tokens came to the service, want one of each generation", len(d.tokens()))
	}
}

// Runs that a service refused under a secret of the database, a key and a password continue
// by themselves when another one is set or connected.
func TestCredentialsContinueRuns(t *testing.T) {
	var good atomic.Bool // the second credentials are the right ones
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if sent := strings.Join([]string{r.Header.Get("X-Api-Key"), password, r.Header.Get("X-Secret")}, ""); sent != "second" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		good.Store(true)
		answer(w, http.StatusOK, []string{})
	}))
	t.Cleanup(service.Close)
	d := &diary{T: t, dir: shortDir(t)}
	pack := "name = %q\nversion = \"1\"\ntitle = \"T\"\ndocs = \"https://example.com\"\nbase_url = %q\n[auth]\n%s\n[tools.days]\neffect = \"list\"\n" +
		"description = \"D.\"\npath = \"/days\"\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n"
	d.write("packs/keyed.toml", fmt.Sprintf(pack, "keyed", service.URL, "style = \"header\"\nheader = \"X-Api-Key\""))
	d.write("packs/worded.toml", fmt.Sprintf(pack, "worded", service.URL, `style = "basic"`))
	d.write("keep.toml", fmt.Sprintf("[connections.keyed]\nconnector = \"keyed\"\naccount = \"keyed\"\n[connections.worded]\nconnector = \"worded\"\naccount = \"worded\"\n"+
		"[connections.plain]\nconnector = \"http\"\nbase_url = %q\nheaders = { X-Secret = \"${secret:plain}\" }\n[connections.plain.tools.days]\neffect = \"list\"\npath = \"/days\"\n", service.URL))
	give := map[string][]string{"keyed": {"connect", "keyed"}, "worded": {"connect", "worded"}, "plain": {"secrets", "set", "plain"}}
	set := func(name, value string) {
		t.Helper()
		if name == "worded" {
			value = "ann:" + value
		}
		cmd := d.command(give[name]...)
		cmd.Stdin = strings.NewReader(value)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
	}
	for name := range give {
		set(name, "first")
		d.write(name+".js", `export default Keep.workflow({ name: "`+name+`", topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { await ctx.`+name+`.days({}); } } } });`)
	}
	said := serveIn(t, d.dir, "--listen", "127.0.0.1:0")
	said.wait(t, "Serving 3 workflows")
	for name := range give {
		if out, status := d.keep("trigger", name); status != exit.Done {
			t.Fatalf("trigger: %s", out)
		}
		said.wait(t, "run stopped")
		if q := list[api.Escalation](d, "inbox"); len(q) != 1 || q[0].Kind != keep.AskPermission || good.Load() {
			t.Fatalf("%s was refused: %+v", name, q)
		}
		set(name, "second")
		for done := false; !done; {
			for _, r := range list[api.Run](d, "runs") {
				done = done || string(r.Workflow) == name && r.Status == keep.StatusCommitted
			}
		}
		if q := list[api.Escalation](d, "inbox"); len(q) != 0 {
			t.Errorf("%s continued, and the inbox has %+v", name, q)
		}
		good.Store(false)
	}
}
