// Package oidctest starts a real OAuth server for tests: oidc-provider, which test.sh
// installs with npm into the user's cache. It has a browser's pages for logging in and
// allowing, rotates refresh tokens, and revokes all of a grant when one is used again. A
// test without it is skipped with a line that says so.
package oidctest

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Version is the version of oidc-provider that test.sh installs.
const Version = "oidc-provider@9.13.3"

// Secret is that of the clients "posting", "basic" and "machine". The client "public" has none.
const Secret = "a-client's-secret-0123456789-abcdef"

// Redirect addresses of its clients are http://127.0.0.1:PORT/callback, and the scopes are
// openid, offline_access, mail.read and mail.send.

// Options say how the server behaves.
type Options struct {
	Rotate    bool `json:"rotate"`    // each refresh gives a new refresh token and ends the old one
	Resources bool `json:"resources"` // clients register themselves, and tokens are for a resource, with the scopes notes.write and notes.admin
}

// A Server is a running oidc-provider that ends with its test.
type Server struct{ Issuer string } // http://127.0.0.1:PORT

//go:embed server.mjs
var program []byte

// Start starts a server.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	modules := filepath.Join(cache, "keep-test", Version, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "oidc-provider")); err != nil {
		tb.Skip("no oidc-provider on this machine; test.sh installs it")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		tb.Skip("no Node.js on this machine")
	}
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "server.mjs"), program, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		tb.Fatal(err)
	}
	args, err := json.Marshal(struct {
		Options
		Secret string `json:"secret"`
	}{o, Secret})
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), node, "server.mjs", string(args))
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // it was told to end, or killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("oidc-provider does not start: %v\n%s", err, &said)
	}
	return &Server{Issuer: strings.TrimSpace(line)}
}

var form = regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>`)

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)

// Allow does what a person does in a browser who opens page, logs in as who and allows
// what is asked for. It returns the last page.
func (s *Server) Allow(tb testing.TB, page, who string) string {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	resp, err := browser.Get(page)
	for range 8 {
		if err != nil {
			tb.Fatal(err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil {
			tb.Fatal(err)
		}
		m := form.FindStringSubmatch(body.String())
		if m == nil {
			return body.String()
		}
		values := url.Values{"login": {who}, "password": {"any"}}
		for _, field := range hidden.FindAllStringSubmatch(m[2], -1) {
			values.Set(field[1], field[2])
		}
		to, parseErr := resp.Request.URL.Parse(m[1])
		if parseErr != nil {
			tb.Fatal(parseErr)
		}
		resp, err = browser.PostForm(to.String(), values)
	}
	tb.Fatal("the server asks on and on")
	return ""
}
