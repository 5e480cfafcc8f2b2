package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
)

// A serving is keep serve as a process, in a project of its own.
type serving struct {
	t        testing.TB
	bin, dir string
	env      []string
	cmd      *exec.Cmd
	base     string      // of the pages
	link     string      // to log in; empty: none was printed
	metrics  string      // where they are without a login; empty: nowhere
	said     chan string // what it says once it serves; nobody needs to hear
	hearing  sync.WaitGroup
	more     []string         // arguments of keep serve
	log      *strings.Builder // gets all that it says once it serves; nil: nothing does
}

// newServing makes a project with one workflow that never runs by itself.
func newServing(t *testing.T) *serving {
	t.Helper()
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	d.writeScript()
	d.keep("deploy", ".")
	return d
}

// writeScript writes the workflow.
func (d *serving) writeScript() {
	d.t.Helper()
	script := `export default Keep.workflow({ name: "w", topics: { t: {} },
		jobs: { j: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {} } } });`
	if err := os.WriteFile(filepath.Join(d.dir, "w.js"), []byte(script), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// keep runs the command and returns its stdout.
func (d *serving) keep(args ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.bin, args...)
	cmd.Dir, cmd.Env = d.dir, d.env
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("keep %v: %v\n%s%s", args, err, out, talk.String())
	}
	return strings.TrimSpace(string(out))
}

// start runs keep serve until the test ends, and waits until it serves.
func (d *serving) start() {
	d.t.Helper()
	d.cmd = exec.CommandContext(context.WithoutCancel(d.t.Context()), d.bin, append([]string{"serve", "--listen", "127.0.0.1:0"}, d.more...)...)
	d.cmd.Dir, d.cmd.Env = d.dir, d.env
	pipe, err := d.cmd.StderrPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(d.kill)
	d.link, d.said = "", make(chan string, 100)
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "Look at "):
			d.base, _, _ = strings.Cut(strings.TrimPrefix(line, "Look at "), " ")
		case strings.HasPrefix(line, "Log in"):
			_, d.link, _ = strings.Cut(line, "minutes: ")
		case strings.HasPrefix(line, "Metrics at "):
			d.metrics = strings.TrimPrefix(line, "Metrics at ")
		case strings.HasPrefix(line, "Serving "):
			d.hear(lines)
			return
		default:
			d.t.Log(line)
		}
	}
	d.t.Fatal("keep serve ended before it served")
}

// hear reads what the daemon says until it ends.
func (d *serving) hear(lines *bufio.Scanner) {
	said := d.said
	d.hearing.Go(func() {
		defer close(said)
		for lines.Scan() {
			if d.log != nil {
				d.log.WriteString(lines.Text() + "\n")
			}
			select {
			case said <- lines.Text():
			default:
			}
		}
	})
}

// kill ends the daemon at once.
func (d *serving) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill() // it may have ended
		d.hearing.Wait()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// ask sends a request and returns the answer, with its body read.
func (d *serving) ask(method, path, body string, header ...string) (*http.Response, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
	res, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res, string(text)
}

// routes returns method and path of every route of the OpenAPI document, and of
// the pages as their source has them.
func routes(t *testing.T) (list [][2]string) {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			list = append(list, [2]string{strings.ToUpper(method), path})
		}
	}
	if text, err = os.ReadFile("../../web/web.go"); err != nil {
		t.Fatal(err)
	}
	pages := regexp.MustCompile(`"(GET|POST) (/[^"]*)"`).FindAllStringSubmatch(string(text), -1)
	if len(list) < 30 || len(pages) < 30 {
		t.Fatalf("%d routes of the API and %d pages, too few to be all", len(list), len(pages))
	}
	for _, m := range pages {
		list = append(list, [2]string{m[1], strings.Replace(m[2], "{$}", "", 1)})
	}
	return append(list, [2]string{"GET", "/metrics"}, [2]string{"GET", "/api/v1/openapi.json"}, [2]string{"GET", "/api/v1/docs"},
		[2]string{"POST", daemon.LinkPath}, [2]string{"GET", "/nothing"}, [2]string{"DELETE", "/api/v1/runs"})
}

// Somebody who has not said who he is reaches nothing but login, health and
// static files: of every route there is.
func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	d.start()
	open := map[string]bool{"/static/": true}
	for _, r := range routes(t) {
		path := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(r[1], "x")
		for _, header := range [][]string{{}, {"Accept", "text/html"}, {"Authorization", "Basic eDp4"}, {"Cookie", "__Host-keep=keep_a_b; keep-local=keep_a_b"}} {
			res, text := d.ask(r[0], path, "", header...)
			login := res.StatusCode == 303 && strings.HasPrefix(res.Header.Get("Location"), "/login?next=")
			if !open[path] && res.StatusCode != 401 && res.StatusCode != 429 && !login {
				t.Errorf("%s %s with %q: %d %.200s", r[0], path, header, res.StatusCode, text)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/login"} {
		if res, text := d.ask("GET", path, ""); res.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}

// The first start prints a link that works where its log is text, the second one none; keep login makes
// another, and a token does what its role allows.
func TestWaysIn(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	d.start() // where stderr is no terminal the log is JSON, and kept
	if d.link != "" {
		t.Errorf("a link that logs in is in the log: %s", d.link)
	}
	d.kill()
	d.more = append(d.more, "--log-format", "text")
	d.start()
	for _, link := range []string{d.link, d.keep("login")} {
		code, ok := strings.CutPrefix(link, d.base+"/login?code=")
		if !ok {
			t.Fatalf("link %q is not at %s", link, d.base)
		}
		res, _ := d.ask("POST", "/login", "code="+code, "Content-Type", "application/x-www-form-urlencoded")
		cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
		if res, text := d.ask("GET", "/", "", "Cookie", cookie); res.StatusCode != 200 || !strings.Contains(text, "<html") {
			t.Errorf("the page after the login: %d %.200s", res.StatusCode, text)
		}
	}
	d.kill()
	d.start()
	if d.link != "" {
		t.Errorf("the second start printed the link %s", d.link)
	}
	viewer := "Bearer " + d.keep("token", "add", "dash", "--role", "viewer")
	if res, text := d.ask("GET", "/api/v1/workflows", "", "Authorization", viewer); res.StatusCode != 200 || !strings.Contains(text, `"name":"w"`) {
		t.Errorf("a viewer's list: %d %s", res.StatusCode, text)
	}
	if res, text := d.ask("GET", "/metrics", "", "Authorization", viewer); res.StatusCode != 200 || !strings.Contains(text, "\nkeep_metrics_unreadable 0\n") {
		t.Errorf("a viewer's metrics: %d %s", res.StatusCode, text)
	}
	if res, _ := d.ask("POST", "/api/v1/workflows/w/pause", "", "Authorization", viewer); res.StatusCode != 403 {
		t.Errorf("a viewer's pause: %d", res.StatusCode)
	}
	id := strings.Split(viewer, "_")[1]
	d.keep("token", "revoke", id)
	if res, _ := d.ask("GET", "/api/v1/workflows", "", "Authorization", viewer); res.StatusCode != 401 {
		t.Errorf("a revoked token: %d", res.StatusCode)
	}
}

// A POST with a key is done once, also when the daemon is killed after it.
func TestIdempotentPostAfterACrash(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	d.start()
	token := "Bearer " + d.keep("token", "add", "bot")
	pause := func() (*http.Response, string) {
		return d.ask("POST", "/api/v1/workflows/w/pause", "", "Authorization", token, "Idempotency-Key", "pause-1")
	}
	first, body := pause()
	if first.StatusCode != 200 {
		t.Fatalf("pause: %d %s", first.StatusCode, body)
	}
	d.kill()
	d.start()
	d.keep("resume", "w")
	again, text := pause()
	if again.StatusCode != 200 || text != body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repetition: %d %s, want the first answer again", again.StatusCode, text)
	}
	if out := d.keep("api", "GET", "/workflows/w"); !strings.Contains(out, `"paused":false`) {
		t.Errorf("the repetition paused again: %s", out)
	}
}

// A script that comes over HTTP is checked as a file is.
func TestDeployOverHTTP(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	d.start()
	token := "Bearer " + d.keep("token", "add", "me", "--role", "author")
	put := func(name, source, tag string) (*http.Response, string) {
		body, err := json.Marshal(map[string]string{"file": "w.ts", "source": source})
		if err != nil {
			t.Fatal(err)
		}
		return d.ask("PUT", "/api/v1/workflows/"+name, string(body), "Authorization", token, "Content-Type", "application/json", "If-Match", tag)
	}
	const script = `export default Keep.workflow({ name: "w", topics: { t: {} }, jobs: { k: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx: any) { %s } } } })`
	for name, tt := range map[string]struct {
		workflow, source, tag string
		want                  int
		part                  string
	}{
		"broken":         {"w", "export default Keep.workflow({", `"1.0"`, 422, "w.ts:1:"},
		"another name":   {"w", strings.Replace(fmt.Sprintf(script, ""), `"w"`, `"v"`, 1), `"1.0"`, 422, `not \"w\"`},
		"no such tool":   {"w", fmt.Sprintf(script, `await ctx.crm.create({ id: 1 })`), `"1.0"`, 422, "crm"},
		"a hostile one":  {"w", strings.Repeat("[", 1<<19), `"1.0"`, 422, "nested deeper"}, // the process that bundles may die of it
		"a slow one":     {"w", "x = " + strings.Repeat("a=>", 1990) + "1", `"1.0"`, 422, "more than 10s"},
		"an old version": {"w", fmt.Sprintf(script, ""), `"0.9"`, 412, "1.0"},
	} {
		if res, text := put(tt.workflow, tt.source, tt.tag); res.StatusCode != tt.want || !strings.Contains(text, tt.part) {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	if res, text := put("w", fmt.Sprintf(script, ""), `"1.0"`); res.StatusCode != 200 || !strings.Contains(text, `"version":"2.0"`) || res.Header.Get("ETag") != `"2.0"` {
		t.Errorf("deploy: %d %s", res.StatusCode, text)
	}
	admin := "Bearer " + d.keep("token", "add", "boss", "--role", "admin")
	if res, text := d.ask("PUT", "/api/v1/workflows/w/grant", `{"tools":[{"tool":"crm.create"}],"over":"w/1"}`, "Authorization", admin, "Content-Type", "application/json"); res.StatusCode != 422 ||
		!strings.Contains(text, `there is no connection \"crm\"`) {
		t.Errorf("a grant of no tool: %d %s", res.StatusCode, text)
	}
}

// On Postgres, too: tokens, lists with search, and metrics.
func TestServeOnPostgres(t *testing.T) {
	url := pgtest.SchemaURL(t) // or the test is skipped
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_DB="+url), more: []string{"--log-format", "text"}}
	d.writeScript()
	d.keep("deploy", ".")
	d.start()
	if d.link == "" {
		t.Error("the first start printed no link")
	}
	token := "Bearer " + d.keep("token", "add", "dash", "--role", "operator")
	for path, part := range map[string]string{
		"/api/v1/workflows": `"name":"w"`, "/api/v1/runs/counts?q=x": `"total":0`, "/metrics": "\nkeep_metrics_unreadable 0\n", "/": "<html",
	} {
		if res, text := d.ask("GET", path, "", "Authorization", token); res.StatusCode != 200 || !strings.Contains(text, part) {
			t.Errorf("%s: %d %.300s", path, res.StatusCode, text)
		}
	}
	for range 2 {
		res, text := d.ask("POST", "/api/v1/workflows/w/pause", "", "Authorization", token, "Idempotency-Key", "p")
		if res.StatusCode != 200 || !strings.Contains(text, `"paused":true`) {
			t.Errorf("pause: %d %s", res.StatusCode, text)
		}
	}
}

// A daemon that nobody looks at logs for programs: each line of its log is an object
// that names the run, and the mutation.
func TestServeLogsJSON(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	script := `export default Keep.workflow({ name: "v", topics: { t: {} }, producers: { async p(ctx) { throw new Error("broken") } } })`
	if err := os.WriteFile(filepath.Join(d.dir, "v.js"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	d.keep("deploy", "v.js")
	d.start()
	for line := range d.said {
		var entry struct{ Level, Msg, Workflow, Run, Handler string }
		if json.Unmarshal([]byte(line), &entry) == nil {
			if entry.Level != "WARN" || entry.Msg != "run stopped" || entry.Workflow != "v" || !strings.HasPrefix(entry.Run, "run_") || entry.Handler != "p" {
				t.Errorf("the log says %s", line)
			}
			return
		}
	}
	t.Error("the daemon ended without a line of its log")
}
