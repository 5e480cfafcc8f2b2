package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/metrics"
	"github.com/keep-run/keep/store/memory"
)

// A monitored is a keep serve whose workflow calls a service, some of whose answers are errors.
func newMonitored(t *testing.T) *serving {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/s/bad" {
			http.Error(w, "no", http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	}))
	t.Cleanup(service.Close)
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	write := func(name, text string) {
		t.Helper()
		noError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	}
	write("keep.toml", fmt.Sprintf(`[server]
metrics_listen = "127.0.0.1:0"
[connections.shop]
connector = "http"
base_url = %q
tools.get = { effect = "get", path = "/o/{id}" }
tools.send = { effect = "mutate", path = "/s/{id}", identity = ["id"], idempotency_header = "Idempotency-Key", deduplicates = true }
`, service.URL))
	write("w.js", `export default Keep.workflow({ name: "w", topics: { t: {} },
  consumers: { send: Keep.consumer({ subscribe: ["t"], order: "none",
    async prepare(ctx, trigger) { return { reservations: trigger ? [{ topic: "t", ids: [trigger.messageId] }] : [], data: trigger && trigger.payload }; },
    async mutate(ctx, p) { await ctx.shop.get({ id: p.data.id }); await ctx.shop.send({ id: p.data.id }); },
  }) } });`)
	d.keep("deploy", ".")
	d.start()
	for _, id := range []string{"good", "bad"} {
		d.keep("publish", "w", "t", fmt.Sprintf(`{"id":%q}`, id), "--id", id)
	}
	return d
}

// fetch returns the answer to a GET.
func fetch(t *testing.T, address string) (status int, text string) {
	t.Helper()
	res, err := http.Get(address)
	noError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	noError(t, err)
	return res.StatusCode, string(body)
}

// A scraper finds what it asks for without a login at an address of its own, and nothing else there.
func TestMetricsListen(t *testing.T) {
	t.Parallel()
	d := newMonitored(t)
	want := []string{
		`keep_run_seconds_count{handler="send",status="committed",workflow="w"} 1`,
		`keep_run_seconds_count{handler="send",status="failed:logic",workflow="w"} 1`,
		`keep_queue_seconds_count{handler="send",workflow="w"} 2`,
		`keep_call_seconds_count{tool="shop.send",workflow="w"} 2`,
		`keep_read_seconds_count{tool="shop.get",workflow="w"} 2`,
		`keep_errors_total{class="logic",handler="",tool="shop.send",what="call",workflow="w"} 1`,
		`keep_errors_total{class="logic",handler="send",tool="",what="run",workflow="w"} 1`,
	}
	var text string
	waitFor(t, func() bool {
		_, text = fetch(t, d.metrics)
		return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") })
	}, func() string { return text })
	base := strings.TrimSuffix(d.metrics, "/metrics")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/api/v1/runs": 404, "/login": 404, "/inbox": 404} {
		if status, text := fetch(t, base+path); status != want {
			t.Errorf("GET %s: %d, want %d\n%.200s", path, status, want, text)
		}
	}
	if res, err := http.Post(d.metrics, "", nil); err != nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: %v, %v", res, err)
	}
}

// A dashboard is what is tested of deploy/grafana/keep.json.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
}

// A real Prometheus takes the rules that we ship, and answers what the dashboard asks, from figures
// that there are.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip(err)
	}
	d := newMonitored(t)
	names := metrics.New(metrics.Config{Store: memory.New()}).Names()
	p := startPrometheus(t, strings.TrimSuffix(strings.TrimPrefix(d.metrics, "http://"), "/metrics"))
	raw, err := os.ReadFile("../../deploy/grafana/keep.json")
	noError(t, err)
	var board dashboard
	noError(t, json.Unmarshal(raw, &board))
	variables := strings.NewReplacer("$workflow", ".*", "$__rate_interval", "1m")
	waitFor(t, func() bool {
		return len(p.query(t, `rate(keep_call_seconds_count[1m]) > -1`)) > 0
	}, func() string { return "nothing was scraped twice" })
	var filled []string
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			for _, name := range regexp.MustCompile(`\bkeep_[a-z_]+`).FindAllString(expr, -1) {
				if !slices.Contains(names, regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")) {
					t.Errorf("panel %s asks for %s, which there is not", panel.Title, name)
				}
			}
			result := p.query(t, expr)
			for _, labels := range result {
				for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					if labels[m[1]] == "" {
						t.Errorf("panel %s: %q has no label %s: %v", panel.Title, expr, m[1], labels)
					}
				}
			}
			if len(result) > 0 {
				filled = append(filled, panel.Title)
			}
		}
	}
	for _, title := range []string{"Needs you", "Events that wait", "Runs", "Errors", "Queue, p95", "Calls, p50 and p95", "Store", "Memory", "Idempotency keys"} {
		if !slices.Contains(filled, title) {
			t.Errorf("panel %s is empty; filled: %q", title, filled)
		}
	}
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	noError(t, err)
	for _, name := range regexp.MustCompile(`\bkeep_[a-z_]+`).FindAllString(string(rules), -1) {
		if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("an alert asks for %s, which there is not", name)
		}
	}
	p.rules(t, strings.Count(string(rules), "- alert:"))
}

// A prometheus is one that runs.
type prometheus struct{ base string }

// startPrometheus starts one with the configuration that we ship, but for its target and its pace.
func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "alerts.yml"} {
		text, err := os.ReadFile("../../deploy/prometheus/" + name)
		noError(t, err)
		changed := strings.NewReplacer("127.0.0.1:9464\"]", target+"\"]", "scrape_interval: 15s", "scrape_interval: 200ms\n  evaluation_interval: 200ms").Replace(string(text))
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(changed), 0o600))
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0", "--log.level=info")
	pipe, err := cmd.StderrPipe()
	noError(t, err)
	noError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	var said strings.Builder
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if m := regexp.MustCompile(`msg="Listening on" address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, pipe) }() // until it ends
			return prometheus{"http://" + m[1]}
		}
	}
	t.Fatalf("prometheus ended:\n%s", said.String())
	return prometheus{}
}

// get returns the data of an answer.
func (p prometheus) get(t *testing.T, path string, data any) {
	t.Helper()
	_, text := fetch(t, p.base+path)
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(text), &answer); err != nil && !strings.Contains(text, "Service Unavailable") {
		t.Fatalf("%s: %v: %s", path, err, text)
	}
	if answer.Status == "error" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
}

// query returns the labels of what an expression is now.
func (p prometheus) query(t *testing.T, expr string) (labels []map[string]string) {
	t.Helper()
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &data)
	for _, r := range data.Result {
		labels = append(labels, r.Metric)
	}
	return labels
}

// rules waits until all n rules were evaluated, without an error.
func (p prometheus) rules(t *testing.T, n int) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	waitFor(t, func() bool {
		p.get(t, "/api/v1/rules", &data)
		good := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health == "ok" {
					good++
				}
			}
		}
		return good == n
	}, func() string { return fmt.Sprintf("%+v", data) })
}

// waitFor waits until f is true, and fails with what else says after a minute.
func waitFor(t *testing.T, f func() bool, otherwise func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !f(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal(otherwise())
		}
	}
}

// noError ends the test if there is one.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
