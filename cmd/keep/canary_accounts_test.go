//go:build unix

package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
)

// canaryOf is a secret with characters that every encoding writes in its own way.
func canaryOf(kind string, n int) string { return fmt.Sprintf(`%s%d/en+7&vogel=Z9<q>"w'x`, kind, n) }

// A parrot is a service that returns the credentials of each request in its answers, in
// every encoding. It refuses a token of the first generation.
type parrot struct {
	mu   sync.Mutex // protects the fields below
	seen map[string]bool
}

func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secrets := []string{r.Header.Get("X-Api-Key"), r.Header.Get("X-Stored")}
	bearer, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if basic, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic "); ok {
		plain, _ := base64.StdEncoding.DecodeString(basic)
		_, password, _ := strings.Cut(string(plain), ":")
		bearer = string(plain)
		secrets = append(secrets, basic, password)
	}
	secrets = slices.DeleteFunc(append(secrets, bearer), func(s string) bool { return s == "" })
	forms := map[string]string{}
	p.mu.Lock()
	for i, s := range secrets {
		p.seen[s] = true
		for kind, text := range encodings(s) {
			forms[fmt.Sprint(kind, i)] = text
		}
	}
	p.mu.Unlock()
	path := r.URL.Path
	switch {
	case isBearer && bearer == canaryOf("access", 0), strings.Contains(path, "refuse"):
		status := http.StatusUnprocessableEntity
		if isBearer && bearer == canaryOf("access", 0) {
			status = http.StatusUnauthorized
		}
		w.WriteHeader(status)
		for _, text := range forms {
			fmt.Fprintf(w, "%s: %s\n", path, text)
		}
	case strings.Contains(path, "feed"), strings.Contains(path, "days"):
		rows := []map[string]string{}
		for kind, text := range forms {
			rows = append(rows, map[string]string{"id": kind, "text": text})
		}
		answer(w, http.StatusOK, rows)
	case strings.Contains(path, "take"):
		answer(w, http.StatusOK, map[string]any{"id": "1", "echo": forms})
	default: // a call whose answer is lost, and its lookups
		for _, text := range forms {
			w.Header().Add("X-Echo", strings.Map(printable, text))
		}
		w.WriteHeader(http.StatusBadGateway)
		for _, text := range forms {
			fmt.Fprintf(w, "<html>%s %s", r.URL, text)
		}
	}
}

// canaryTools are the tools of each connection.
const canaryTools = `
[connections.%[1]s.tools.feed]
effect = "list"
path   = "/feed"
[connections.%[1]s.tools.take]
effect   = "mutate"
path     = "/take/{id}"
identity = ["id"]
[connections.%[1]s.tools.refuse]
effect   = "mutate"
path     = "/refuse/{id}"
identity = ["id"]
[connections.%[1]s.tools.lose]
effect   = "mutate"
path     = "/lose/{id}"
identity = ["id"]
idempotency_header = "Idempotency-Key"
[connections.%[1]s.tools.lose.reconcile]
path = "/looked-up/{token}"
absent_if = { path = "$.error", equals = "none" }
`

// TestCanaryOfAccounts connects accounts of every kind to services that return what they
// are sent in every encoding, and looks for tokens of all generations, the client's secret,
// keys, passwords, secrets of the database and the key itself in everything that Keep
// writes, prints, serves or gives to other programs.
func TestCanaryOfAccounts(t *testing.T) {
	t.Parallel()
	p := &parrot{seen: map[string]bool{}}
	service := httptest.NewServer(p)
	defer service.Close()
	issued := map[string]bool{}
	server := newRotating(t, true)
	server.token = func(kind string, _, n int) string { // of the last family only: it is connected once
		issued[canaryOf(kind, n)] = true
		return canaryOf(kind, n)
	}
	var spans strings.Builder
	var mu sync.Mutex // protects spans
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		spans.Write(body)
	}))
	defer collector.Close()
	key, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	client, apiKey, password, stored, words := canaryOf("client", 0), canaryOf("apikey", 0), canaryOf("password", 0), canaryOf("stored", 0), canaryOf("passphrase", 0)
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), more: []string{"-vv"}, log: new(strings.Builder)}
	d.env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_KEY="+key.Text(), "KEEP_SECRET_CLIENT="+client, "MY_SECRET="+stored,
		"GOTRACEBACK=crash", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "BROWSER="+filepath.Join(d.dir, "child.sh"))
	d.canaryProject(service.URL, server.URL)
	var cores syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &cores); err != nil {
		t.Fatal(err)
	}
	cores.Cur = cores.Max // as on a machine that keeps the memory of what crashed
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &cores); err != nil {
		t.Fatal(err)
	}

	var said strings.Builder
	said.WriteString(d.connectInBrowser())
	for _, c := range []struct{ stdin, command string }{
		{apiKey, "connect keyed --json"}, {"ann:" + password, "connect worded"}, {stored, "secrets set stored"}, {"", "secrets --json"},
		{"", "accounts --json"}, {"", "accounts test diary -vv"}, {"", "accounts show diary"}, {"", "accounts test keyed -vv"}, {"", "accounts renew diary -vv"},
		{"", "check . --json"}, {"", "run . --json -vv"}, {"", "accounts show diary --json"},
		{words, "accounts export keyed --out keyed.age -vv"}, {words, "accounts export worded"}, {words, "accounts import keyed.age --replace --json"},
		{"", "runs --json --all"}, {"", "events --json --all"}, {"", "inputs --json --all"}, {"", "mutations --json --all"}, {"", "inbox --json --all"}, {"", "items --json --all"},
		{"", "db backup " + filepath.Join(t.TempDir(), "b.db")}, {"", "db backup copy.db"}, {"", "status --json"},
	} {
		said.WriteString(d.pipe(c.stdin, strings.Fields(c.command)...))
	}
	d.start()
	secrets := []string{key.Text(), client, apiKey, password, stored, words}
	server.mu.Lock()
	for s := range issued {
		secrets = append(secrets, s)
	}
	server.mu.Unlock()
	look := seeker{t, map[string]string{}}
	for _, s := range secrets {
		for kind, form := range encodings(s) {
			look.forms[fmt.Sprintf("%.10s…, %s", s, kind)] = form
		}
	}
	d.traces(look, "call diary.take", "call diary.refuse", "lookup diary.lose", "lookup keyed.lose", "lookup plain.lose")
	d.pages(look)
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid)); err == nil {
		look.in("the arguments of keep serve", args)
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", d.cmd.Process.Pid)); err == nil && !regexp.MustCompile(`Max core file size +1 +1 `).Match(text) {
		t.Errorf("the memory of keep serve may be written to a file:\n%s", text)
	}
	d.crash()
	if !strings.Contains(d.log.String(), "SIGABRT") {
		t.Error("keep serve did not crash, so nothing was shown of what that leaves")
	}
	said.WriteString(d.pipe("", "accounts", "revoke", "diary", "--yes", "-vv"))
	said.WriteString(d.pipe("", "accounts", "--json"))
	look.in("what commands say", []byte(said.String()))
	look.in("the log of keep serve", []byte(d.log.String()))
	mu.Lock()
	look.in("the spans", []byte(spans.String()))
	mu.Unlock()
	look.below(d.dir)
	for _, s := range []string{canaryOf("access", 0), canaryOf("access", 1), apiKey, stored, password} {
		if !p.seen[s] {
			t.Errorf("the service never got %.10s…, so nothing was shown\n%s", s, said.String())
		}
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "child.out")); err != nil || strings.Count(string(text), "CHILD") < 2 {
		t.Errorf("the browser and the program of [notify] were not both started: %s, %v", text, err)
	}
	if spans.Len() == 0 {
		t.Error("no span arrived")
	}
}

// canaryProject writes a project with a connection for each kind of credential, and a
// program that writes down its arguments, environment and input.
func (d *serving) canaryProject(service, oauth string) {
	d.t.Helper()
	var toml strings.Builder
	toml.WriteString("[policy]\nretry     = { first = \"1ms\", max = \"1ms\", attempts = 0 }\nreconcile = { inline = \"1s\", first = \"1ms\", max = \"1ms\", attempts = 2 }\n" +
		"[notify]\non_escalation = [\"./child.sh\"]\n[packs.diary]\nclient_id = \"id\"\nclient_secret = \"${secret:client}\"\n")
	key := "name = \"%s\"\nversion = \"1\"\ntitle = \"T\"\ndocs = \"https://example.com\"\nbase_url = %q\n[auth]\n%s\ntest = \"days\"\n[tools.days]\neffect = \"list\"\n" +
		"description = \"D.\"\npath = \"/days\"\nparams = { type = \"object\", properties = {} }\nresult = { type = \"array\" }\nexample = {}\n"
	files := map[string]string{
		"packs/diary.toml":  diaryPack(service, oauth, "post"),
		"packs/keyed.toml":  fmt.Sprintf(key, "keyed", service, "style = \"header\"\nheader = \"X-Api-Key\""),
		"packs/worded.toml": fmt.Sprintf(key, "worded", service, `style = "basic"`),
		"child.sh":          "#!/bin/sh\n{ echo CHILD; printf '%s\\n' \"$@\"; env; cat; } >> \"" + d.dir + "/child.out\" 2>&1 </dev/stdin\n",
	}
	for _, name := range []string{"diary", "keyed", "worded"} {
		fmt.Fprintf(&toml, "[connections.%[1]s]\nconnector = %[1]q\naccount = %[1]q\n"+canaryTools, name)
	}
	fmt.Fprintf(&toml, "[connections.plain]\nconnector = \"http\"\nbase_url = %q\nheaders = { X-Stored = \"${secret:stored}\", X-Two = \"${account:keyed}\", Authorization = \"Bearer ${account:diary}\" }\n", service)
	fmt.Fprintf(&toml, canaryTools, "plain")
	for _, use := range []string{"diary take", "diary refuse", "diary lose", "keyed lose", "worded refuse", "plain lose"} {
		conn, tool, _ := strings.Cut(use, " ")
		name := conn + "-" + tool
		script := strings.ReplaceAll(fmt.Sprintf(canaryScript, tool), "ctx.svc.", "ctx."+conn+".")
		files[name+".js"] = strings.Replace(script, `name: "`+tool+`"`, `name: "`+name+`"`, 1)
	}
	files["keep.toml"] = toml.String()
	for name, text := range files {
		path := filepath.Join(d.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			d.t.Fatal(err)
		}
	}
}

// crash ends the process with a signal by which the system writes its memory to a file of the
// directory that it is in, if it may.
func (d *serving) crash() {
	_ = d.cmd.Process.Signal(syscall.SIGABRT) // it may have ended
	d.hearing.Wait()
	_ = d.cmd.Wait()
	d.cmd = nil
}

// connectInBrowser runs keep connect with the browser that $BROWSER names, and does what a
// person does with the page. It returns all that was printed.
func (d *serving) connectInBrowser() string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.bin, "connect", "diary", "-vv")
	cmd.Dir, cmd.Env = d.dir, d.env
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for page := ""; page == ""; {
		select {
		case err := <-ended:
			d.t.Fatalf("keep connect: %v\n%s", err, out.String())
		case <-time.After(10 * time.Millisecond): // asks what a process said, which tells nobody
		}
		if _, rest, ok := strings.Cut(out.String(), "Open "); ok && strings.Contains(rest, "\n") {
			page, _, _ = strings.Cut(rest, "\n")
			resp, err := http.Get(page)
			if err != nil {
				d.t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	if err := <-ended; err != nil {
		d.t.Fatalf("keep connect: %v\n%s", err, out.String())
	}
	return out.String()
}

// pipe returns everything that a command prints which reads a line, whatever its status.
func (d *serving) pipe(stdin string, args ...string) string {
	cmd := exec.CommandContext(d.t.Context(), d.bin, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = d.dir, d.env, strings.NewReader(stdin+"\n")
	out, _ := cmd.CombinedOutput()
	return fmt.Sprintf("$ keep %s\n%s\n", strings.Join(args, " "), out)
}

// below looks into all files below a directory.
func (s seeker) below(dir string) {
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		s.in(filepath.Base(name), text)
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// What an OAuth server says of a request for tokens shows no secret that the request
// held, nor one that the answer gives, in any encoding.
func TestCanaryOfTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	refresh, client, access := canaryOf("refresh", 0), canaryOf("client", 0), canaryOf("access", 0)
	look := seeker{t, map[string]string{}}
	var said []string
	for _, s := range []string{refresh, client, access} {
		for kind, form := range encodings(s) {
			look.forms[kind+" of "+s[:6]] = form
			said = append(said, form)
		}
	}
	var body any
	status := http.StatusBadRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, status, body) }))
	defer srv.Close()
	c := &oauth.Client{TokenURL: srv.URL, AuthorizeURL: srv.URL, RevokeURL: srv.URL, ID: "id", Secret: client}
	for _, form := range said[:len(said)*2/3] { // of what the client knows
		body = map[string]string{"error": "invalid_grant", "error_description": "it was " + form + " and " + form, "error_uri": form}
		_, err := c.Refresh(t.Context(), refresh)
		if err == nil {
			t.Fatal("a refusal is no error")
		}
		look.in("a refusal", []byte(err.Error()))
	}
	status = http.StatusOK
	for _, form := range said {
		body = map[string]string{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": strings.ReplaceAll(form, " ", "") + " mail.read"}
		got, err := c.Refresh(t.Context(), refresh)
		if err != nil {
			t.Fatal(err)
		}
		look.in("the scopes", []byte(strings.Join(got.Scopes, " ")))
	}
}
