//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep/internal/port"
)

// gatewaySuite is the conformance suite that knows each version of the protocol. test.sh installs it, with
// the Node.js that it needs.
const gatewaySuite = "@modelcontextprotocol/conformance@0.2.0-alpha.12"

// everythingServer is the server that the official SDK has for the suite.
const everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// TestGatewayConformance runs the suite against the server that the official SDK has for it, and against keep
// gateway in front of that server, in each version that the suite knows: each check must end the same.
// The gateway calls a tool SERVER__TOOL (and a prompt so): a proxy between the suite and the gateway adds the name
// of the server to what the suite sends, takes it away from what it gets, and shows the token of an agent. Equal
// calls of the suite are meant to be two, whether an answer was delivered or not: rejoin is short. What ends
// otherwise is in otherwise.
func TestGatewayConformance(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(cache, "keep-test", gatewaySuite, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, ".bin", "node")); err != nil {
		t.Skip("no conformance suite on this machine; test.sh installs it")
	}
	server := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", server, everythingServer).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, v := range []struct {
		version   string
		stateless bool // the server has no sessions
	}{{"2025-03-26", false}, {"2025-06-18", false}, {"2025-11-25", false}, {"2026-07-28", true}} {
		t.Run(v.version, func(t *testing.T) {
			t.Parallel()
			direct, gateway := everything(t, server, v.stateless), throughGateway(t, everything(t, server, v.stateless))
			got, diff := compareConformance(t, modules, direct, gateway, v.version)
			// The suite gives up on some streams after half a second, whatever the machine is at: what differs must
			// do so again.
			for n := 0; diff != "" && n < 2; n++ {
				t.Logf("once more, since checks differ (-direct +through the gateway): %s", diff)
				got, diff = compareConformance(t, modules, direct, gateway, v.version)
			}
			if diff != "" {
				t.Errorf("checks (-direct +through the gateway): %s", diff)
			}
			for check, status := range got {
				if strings.Contains(status, "FAILURE") {
					t.Errorf("%s: %s", check, status)
				}
			}
		})
	}
}

// compareConformance returns how the checks end through the gateway, and what differs from the server itself
// and is not in otherwise.
func compareConformance(t *testing.T, modules, direct, gateway, version string) (got map[string]string, diff string) {
	t.Helper()
	want := conformance(t, modules, direct, version)
	got = conformance(t, modules, gateway, version)
	for check, o := range otherwise {
		for key := range want {
			if strings.HasPrefix(key, check) {
				delete(want, key)
			}
		}
		for key, status := range got {
			if strings.HasPrefix(key, check) && status == o {
				delete(got, key)
			}
		}
	}
	return got, cmp.Diff(want, got)
}

// otherwise has the checks that end otherwise through the gateway, and how.
var otherwise = map[string]string{
	// Where nothing is told before an answer, the gateway answers with JSON: "SSE streaming is optional".
	"server-server-sse-multiple-streams/01": "INFO",
	"server-server-sse-polling/02":          "INFO",
	// The server ends its stream without an id to resume from: nobody can know the outcome of the call.
	"server-server-sse-polling/03": "",
	"server-server-sse-polling/04": "",
	"server-server-sse-polling/05": "",
}

// everything starts the server, and returns its address.
func everything(t *testing.T, server string, stateless bool) string {
	t.Helper()
	addr := port.Addr(t)
	cmd := exec.CommandContext(t.Context(), server, "-http", addr, fmt.Sprintf("-stateless=%t", stateless))
	said := newListener()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said.wait(t, "listening")
	for {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
			return "http://" + addr + "/mcp"
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// throughGateway starts a gateway in front of a server, and returns the address of the proxy.
func throughGateway(t *testing.T, server string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway]\nrejoin = \"1ms\"\n[gateway.servers.suite]\nurl = %q\n[gateway.agents.agent]\ntoken = \"${secret:agent}\"\n", server))
	token := strings.Repeat("a", 32)
	cmd := exec.CommandContext(t.Context(), buildKeep(t), "gateway", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_SECRET_AGENT="+token)
	said := newListener()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	said.wait(t, "/mcp\n")
	to, err := url.Parse(regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(said.String()))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the suite calls the server by a wrong name
			if r.Out.Host == r.In.Context().Value(http.LocalAddrContextKey).(net.Addr).String() {
				r.Out.Host = to.Host
			}
			if r.In.Header.Get("Origin") == "http://"+r.In.Host && r.Out.Host == to.Host {
				r.Out.Header.Set("Origin", to.String())
			}
			r.Out.Header.Set("Authorization", "Bearer "+token)
			withServer(r.Out)
		},
		ModifyResponse: withoutServer,
	})
	t.Cleanup(proxy.Close)
	return proxy.URL + "/mcp"
}

const suiteServer = "suite__"

// withServer adds the name of the server to the tool or prompt of a request.
func withServer(r *http.Request) {
	if name := strings.TrimSpace(r.Header.Get("Mcp-Name")); name != "" && name != "keep_outcome" && r.Header.Get("Mcp-Method") != "resources/read" {
		r.Header.Set("Mcp-Name", suiteServer+name)
	}
	if r.Body == nil {
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m map[string]any
	if json.Unmarshal(body, &m) == nil {
		params, _ := m["params"].(map[string]any)
		ref, _ := params["ref"].(map[string]any)
		for _, in := range []map[string]any{params, ref} {
			name, named := in["name"].(string)
			if named && name != "keep_outcome" && slices.Contains([]any{"tools/call", "prompts/get", "completion/complete"}, m["method"]) {
				in["name"] = suiteServer + name
				body, _ = json.Marshal(m)
			}
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
}

// withoutServer takes the name of the server from a response, line by line.
func withoutServer(r *http.Response) error {
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	from, out := bufio.NewReader(r.Body), io.Closer(r.Body)
	pr, pw := io.Pipe()
	go func() {
		for {
			line, err := from.ReadBytes('\n')
			if _, failed := pw.Write(bytes.ReplaceAll(line, []byte(suiteServer), nil)); failed != nil || err != nil {
				out.Close()
				_ = pw.CloseWithError(err)
				return
			}
		}
	}()
	r.Body = pr
	return nil
}

// conformance runs the suite, and returns by scenario and check how it ended.
func conformance(t *testing.T, modules, server, version string) map[string]string {
	t.Helper()
	out := t.TempDir()
	said, err := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "node"), filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"server", "--url", server, "--suite", "all", "--spec-version", version, "--output-dir", out).CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the suite wrote nothing, %v\n%s", err, said)
	}
	result := make(map[string]string)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Name, Status, ErrorMessage string }
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		scenario := regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*`).ReplaceAllString(filepath.Base(filepath.Dir(file)), "")
		for i, c := range checks {
			result[fmt.Sprintf("%s/%02d %s", scenario, i, c.Name)] = strings.TrimSpace(c.Status + " " + c.ErrorMessage)
		}
	}
	return result
}
