package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/oidctest"
)

// A diary is a service behind a real OAuth server, and a project with a pack for it.
type diary struct {
	*testing.T
	oauth *oidctest.Server
	dir   string

	mu      sync.Mutex
	bearers []string // that came to the service, each once

	talk string // what keep connect said last on stderr
}

func newDiary(t *testing.T) *diary {
	t.Helper()
	d := &diary{T: t, oauth: oidctest.Start(t, oidctest.Options{Rotate: true}), dir: t.TempDir()}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.bearers) == 0 || d.bearers[len(d.bearers)-1] != token {
			d.bearers = append(d.bearers, token)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `[{"day": "monday"}]`)
	}))
	t.Cleanup(service.Close)
	d.write("packs/diary.toml", diaryPack(service.URL, d.oauth.Issuer, ""))
	d.write("keep.toml", "[connections.diary]\nconnector = \"diary\"\naccount = \"diary\"\n\n[packs.diary]\nclient_id = \"public\"\n")
	return d
}

// diaryPack returns a pack of a service behind an OAuth server. Empty auth: a public client.
func diaryPack(service, issuer, auth string) string {
	return fmt.Sprintf(`name = "diary"
version = "1"
title = "Diary"
docs = "https://diary.example/docs"
base_url = %q

[auth]
style = "oauth2"
authorize_url = "%[2]s/auth"
token_url = "%[2]s/token"
device_url = "%[2]s/device/auth"
revoke_url = "%[2]s/token/revocation"
pkce = true
client_auth = %[3]q
scopes = ["openid", "offline_access"]
params = { prompt = "consent" }
test = "days"

[tools.days]
effect = "list"
description = "Lists days."
path = "/days"
scopes = ["mail.read"]
params = { type = "object", properties = {} }
result = { type = "array" }
example = {}
`, service, issuer, cmp.Or(auth, "none"))
}

func (d *diary) write(name, text string) {
	d.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

// command returns the real command in the project.
func (d *diary) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.Context(), buildKeep(d.T), args...)
	cmd.Dir = d.dir
	return cmd
}

// keep runs the real command, and returns what it printed and its status.
func (d *diary) keep(args ...string) (string, int) {
	d.Helper()
	cmd := d.command(args...)
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		d.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// connect begins keep connect, and does act with the page and the code that it says on stderr. It
// returns its output and its status.
func (d *diary) connect(act func(cmd *exec.Cmd, page, code string), args ...string) (string, int) {
	d.Helper()
	return d.connectAs("diary", act, args...)
}

// connectAs is connect of a pack, or of an MCP server.
func (d *diary) connectAs(of string, act func(cmd *exec.Cmd, page, code string), args ...string) (string, int) {
	d.Helper()
	cmd := d.command(append([]string{"connect", of, "--no-browser", "--json"}, args...)...)
	var out, talk bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		d.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	from := bufio.NewReader(io.TeeReader(stderr, &talk))
	line, err := from.ReadBytes('\n')
	for err == nil && bytes.Contains(line, []byte(" has its tokens from ")) {
		line, err = from.ReadBytes('\n')
	}
	var shown struct{ Open, Code string }
	if err != nil || json.Unmarshal(line, &shown) != nil {
		cmd.Process.Kill()
		cmd.Wait()
		d.Fatalf("keep connect says %q, %v, and prints %s", line, err, &out)
	}
	act(cmd, shown.Open, shown.Code)
	if _, err := io.Copy(io.Discard, from); err != nil {
		d.Fatal(err)
	}
	_ = cmd.Wait() // the status says it
	d.talk = talk.String()
	return out.String(), cmd.ProcessState.ExitCode()
}

// accounts returns the accounts of the project.
func (d *diary) accounts() (list []api.Account) {
	d.Helper()
	cmd := d.command("accounts", "--json")
	out, err := cmd.Output()
	if err != nil || json.Unmarshal(out, &list) != nil {
		d.Fatalf("keep accounts --json: %s, %v", out, err)
	}
	return list
}

// An account is connected in a browser or on another machine, used, renewed and revoked;
// its tokens are nowhere but with the service.
func TestConnect(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	allow := func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }
	out, status := d.connect(allow)
	var got api.Account
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != exit.Done {
		t.Fatalf("status %d, %v: %s", status, err, out)
	}
	if got.Name != "diary" || got.Status != keep.AccountOK || *got.Subject != "ann@example.com" || got.Generation != 1 ||
		strings.Join(got.Scopes, " ") != "mail.read offline_access openid" {
		t.Errorf("connected is %+v", got)
	}
	said := out
	for _, args := range [][]string{{"accounts", "test", "diary"}, {"accounts", "renew", "diary"}, {"accounts", "test", "diary"}} {
		out, status := d.keep(args...)
		if said += out; status != exit.Done {
			t.Errorf("keep %s: status %d: %s", strings.Join(args, " "), status, out)
		}
	}
	if list := d.accounts(); len(list) != 1 || list[0].Generation != 2 {
		t.Errorf("after a renewal: %+v", list)
	}
	if len(d.bearers) != 2 || d.bearers[0] == "" {
		t.Errorf("the service was sent %d tokens, want one of each generation", len(d.bearers))
	}

	// The other ways to connect replace what the account holds.
	if out, status := d.connect(func(_ *exec.Cmd, page, code string) {
		d.oauth.Allow(d, page+"?user_code="+url.QueryEscape(code), "bob")
	}, "--device"); status != exit.Done {
		t.Errorf("with a device: status %d: %s", status, out)
	}
	if list := d.accounts(); len(list) != 1 || list[0].Generation != 3 || *list[0].Subject != "bob@example.com" {
		t.Errorf("after a device: %+v", list)
	}

	out, status = d.keep("accounts", "revoke", "diary", "--yes")
	if said += out; status != exit.Done {
		t.Errorf("revoke: status %d: %s", status, out)
	}
	if out, status = d.keep("accounts", "test", "diary"); status == exit.Done {
		t.Errorf("a revoked account works: %s", out)
	}
	files, err := filepath.Glob(filepath.Join(d.dir, "keep.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("database files: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said += string(text)
	}
	for _, token := range d.bearers {
		if strings.Contains(said, token) {
			t.Error("a token is in the output or in the database")
		}
	}
}

// What renews and what revokes an account goes where its tokens are from, whatever the pack and keep.toml say by then; who connects
// it again chooses the new place.
func TestTokensGoWhereTheyAreFrom(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(other.Close)
	if out, status := d.connect(func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }); status != exit.Done {
		t.Fatalf("connect: status %d: %s", status, out)
	}
	d.write("keep.toml", fmt.Sprintf("[connections.diary]\nconnector = \"diary\"\naccount = \"diary\"\n\n[packs.diary]\nclient_id = \"public\"\ntoken_url = \"%[1]s/token\"\nrevoke_url = \"%[1]s/revoke\"\n", other.URL))
	for _, args := range [][]string{{"accounts", "renew", "diary"}, {"accounts", "renew", "diary"}, {"accounts", "revoke", "diary", "--yes"}} {
		if out, status := d.keep(args...); status != exit.Done {
			t.Errorf("keep %s: status %d: %s", strings.Join(args, " "), status, out)
		}
	}
	select {
	case path := <-asked:
		t.Errorf("another place was sent a token: %s", path)
	default:
	}
	d.connect(func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") })
	select {
	case path := <-asked:
		if path != "/token" {
			t.Errorf("connecting again asks for %s", path)
		}
	default:
		t.Errorf("connecting again does not ask the new place: %s", d.talk)
	}
}

// --scopes asks for more than the tools need; the account has what was granted.
func TestConnectScopes(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	out, status := d.connect(func(_ *exec.Cmd, page, _ string) {
		u, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		if asked := u.Query().Get("scope"); asked != "mail.read mail.send offline_access openid" {
			t.Errorf("the service is asked for %q", asked)
		}
		d.oauth.Allow(d, page, "ann")
	}, "--scopes", "mail.send,mail.read")
	if status != exit.Done {
		t.Fatalf("status %d: %s", status, out)
	}
	if list := d.accounts(); len(list) != 1 || strings.Join(list[0].Scopes, " ") != "mail.read mail.send offline_access openid" {
		t.Errorf("accounts are %+v", list)
	}
	out, status = d.keep("accounts", "show", "diary")
	for _, want := range []string{"diary of diary: ", "\nuser: ", "\nscopes: mail.read mail.send", "\nconnected: 20", " by ", "\nexpires: 20", "\nlast success: ", "\nworkflows that use it: none so far"} {
		if status != exit.Done || !strings.Contains(out, want) {
			t.Errorf("keep accounts show says nothing of %q: status %d: %s", want, status, out)
		}
	}
}

// Who connects an account hears which of the scopes that were asked for the service did not give, as where a person took one away: what needs
// it would be refused at the first call.
func TestConnectSaysWhatWasNotGiven(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	allow := func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }
	if out, status := d.connect(allow); status != exit.Done || strings.Contains(d.talk, "did not name") {
		t.Errorf("status %d: %s, %s", status, out, d.talk)
	}
	out, status := d.connect(allow, "--scopes", "mail.admin") // which the server does not know
	if want := "The service did not name mail.admin among the scopes that it gave"; status != exit.Done || !strings.Contains(d.talk, want) || !strings.Contains(d.talk, "keep connect diary --name diary") {
		t.Errorf("status %d: %s, %s; want %q", status, out, d.talk, want)
	}
	if list := d.accounts(); len(list) != 1 || strings.Contains(strings.Join(list[0].Scopes, " "), "mail.admin") {
		t.Errorf("accounts are %+v", list)
	}
}

// An OAuth client of its own account is connected without a person, used, and renewed; a wrong
// secret is a clear end. Neither shows the secret.
func TestConnectAsTheClientItself(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	pack, err := os.ReadFile(filepath.Join(d.dir, "packs", "diary.toml"))
	if err != nil {
		t.Fatal(err)
	}
	d.write("packs/diary.toml", strings.NewReplacer(`client_auth = "none"`, `client_auth = "basic"`, `["openid", "offline_access"]`, `[]`).Replace(string(pack)))
	d.write("keep.toml", "[connections.diary]\nconnector = \"diary\"\naccount = \"diary\"\n\n[packs.diary]\nclient_id = \"machine\"\nclient_secret = \"${secret:client}\"\n")
	d.write(".secrets/client", "a-wrong-secret")
	out, status := d.keep("connect", "diary", "--client-credentials")
	if status != exit.Failed || !strings.Contains(out, "invalid_client") || strings.Contains(out, "a-wrong-secret") {
		t.Errorf("with a wrong secret: status %d: %s", status, out)
	}
	d.write(".secrets/client", oidctest.Secret)
	for _, args := range [][]string{{"connect", "diary", "--client-credentials"}, {"accounts", "test", "diary"}, {"accounts", "renew", "diary"}, {"accounts", "test", "diary"}} {
		out, status := d.keep(args...)
		if status != exit.Done || strings.Contains(out, oidctest.Secret) {
			t.Errorf("keep %s: status %d: %s", strings.Join(args, " "), status, out)
		}
	}
	list := d.accounts()
	if len(list) != 1 || list[0].Generation != 2 || strings.Join(list[0].Scopes, " ") != "mail.read" {
		t.Errorf("accounts are %+v", list)
	}
	if got := d.tokens(); len(got) != 2 {
		t.Errorf("%d tokens came to the service, want one of each generation", len(got))
	}
}

// A person who says no, and a command that is killed while it waits, leave nothing.
func TestConnectLeavesNothing(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	if _, status := d.connect(func(_ *exec.Cmd, page, _ string) {
		u, err := url.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		resp, err := http.Get(q.Get("redirect_uri") + "?error=access_denied&state=" + url.QueryEscape(q.Get("state")))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}); status != exit.Failed {
		t.Errorf("a person said no: status %d", status)
	}
	d.connect(func(cmd *exec.Cmd, _, _ string) { cmd.Process.Kill() })
	if list := d.accounts(); len(list) != 0 {
		t.Errorf("accounts are %+v", list)
	}
	if _, status := d.connect(func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }); status != exit.Done {
		t.Errorf("after them: status %d", status)
	}
}

// What is replaced is said before the credential is there, and what somebody connected meanwhile stays.
func TestConnectReplaces(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	key := func(pack string) (string, error) {
		cmd := d.command("connect", pack, "--name", "diary")
		cmd.Stdin = strings.NewReader("a-key\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := key("stripe"); err != nil || strings.Contains(out, "replaced") {
		t.Fatalf("the first of its name: %v: %s", err, out)
	}
	if out, err := key("github"); err != nil || !strings.Contains(out, "Account diary of stripe, which ") || !strings.Contains(out, ", will be replaced.\n") {
		t.Errorf("in the place of one of another service: %v: %s", err, out)
	}
	_, status := d.connect(func(_ *exec.Cmd, page, _ string) {
		if out, err := key("stripe"); err != nil {
			t.Errorf("meanwhile: %v: %s", err, out)
		}
		d.oauth.Allow(d, page, "ann")
	})
	if status != exit.Failed || !strings.Contains(d.talk, "nothing was stored: diary was connected by ") {
		t.Errorf("over what was connected meanwhile: status %d: %s", status, d.talk)
	}
	if list := d.accounts(); len(list) != 1 || list[0].Pack != "stripe" {
		t.Errorf("accounts are %+v", list)
	}
	d.keep("accounts", "revoke", "diary", "--yes")
	if out, err := key("stripe"); err != nil || strings.Contains(out, "replaced") {
		t.Errorf("in the place of a revoked one: %v: %s", err, out)
	}
}

// A person who decides nothing, as one who closed the tab, and a port that is taken, are
// clear ends.
func TestConnectEnds(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	if _, status := d.connect(func(*exec.Cmd, string, string) {}, "--timeout", "1s"); status != exit.Failed ||
		!strings.Contains(d.talk, "nobody allowed it within 1s; try again: keep connect diary") {
		t.Errorf("nobody decided: status %d: %s", status, d.talk)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	if out, status := d.keep("connect", "diary", "--no-browser", "--port", port); status != exit.Failed || !strings.Contains(out, "port "+port) {
		t.Errorf("a port that is taken: status %d: %s", status, out)
	}
	if list := d.accounts(); len(list) != 0 {
		t.Errorf("accounts are %+v", list)
	}
}

// tokens returns those that came to the service.
func (d *diary) tokens() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.bearers)
}
