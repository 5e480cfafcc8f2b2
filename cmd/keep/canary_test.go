package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var canaries = flag.Int("canaries", 1, "how many secrets TestCanary tries, all but the first at random")

// canary is a secret with characters that every encoding writes in its own way.
const canary = `Kanari/en+7&vogel=Z9<q>"w'x`

// encodings are forms in which a service may return a secret.
func encodings(s string) map[string]string {
	each := func(format string) string {
		var b strings.Builder
		for i := range len(s) {
			fmt.Fprintf(&b, format, s[i])
		}
		return b.String()
	}
	quoted, _ := json.Marshal(s)
	return map[string]string{
		"itself":               s,
		"lower case":           strings.ToLower(s),
		"upper case":           strings.ToUpper(s),
		"JSON":                 strings.Trim(string(quoted), `"`),
		"JSON, escaped slash":  strings.ReplaceAll(strings.Trim(string(quoted), `"`), "/", `\/`),
		"JSON, all escaped":    each(`\u%04x`),
		"JSON, upper case":     each(`\u%04X`),
		"query":                url.QueryEscape(s),
		"path":                 url.PathEscape(s),
		"percent":              each("%%%02X"),
		"percent, lower case":  each("%%%02x"),
		"HTML":                 html.EscapeString(s),
		"HTML, decimal":        each("&#%d;"),
		"HTML, hex":            each("&#x%x;"),
		"hex":                  hex.EncodeToString([]byte(s)),
		"hex, upper case":      strings.ToUpper(hex.EncodeToString([]byte(s))),
		"base64":               base64.StdEncoding.EncodeToString([]byte(s)),
		"base64, without pad":  base64.RawStdEncoding.EncodeToString([]byte(s)),
		"base64 for URLs":      base64.URLEncoding.EncodeToString([]byte(s)),
		"base64 of the header": base64.StdEncoding.EncodeToString([]byte("Bearer " + s)),
		"broken over lines":    s[:9] + "\n" + s[9:],
		"backslashes":          each(`\x%02x`),
		"within a sentence":    "the token " + s + " was refused",
	}
}

// An echo is a service that returns the credential of each request in its answers, in
// every encoding.
type echo struct {
	t      *testing.T
	canary string
}

func (e echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if secret != e.canary || !strings.Contains(r.URL.Path, e.canary) {
		e.t.Errorf("the service got %q at %q, want the secret in both", secret, r.URL.Path)
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"+e.canary), "/")
	switch {
	case strings.HasPrefix(name, "feed"):
		rows := []map[string]string{}
		for kind, text := range encodings(secret) {
			rows = append(rows, map[string]string{"id": kind, "text": text})
		}
		answer(w, http.StatusOK, rows)
	case strings.HasPrefix(name, "refuse"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		for _, text := range encodings(secret) {
			fmt.Fprintf(w, "%s: %s\n", r.URL.Path, text)
		}
	case strings.HasPrefix(name, "take"):
		answer(w, http.StatusOK, map[string]any{"id": "1", "echo": encodings(secret)})
	default: // a call whose answer is lost, and its lookups
		for _, text := range encodings(secret) {
			w.Header().Add("X-Echo", strings.Map(printable, text))
		}
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, "<html>%s %s", r.URL, html.EscapeString(secret))
	}
}

// printable leaves out what no header can hold.
func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

const canaryConfig = `
[policy]
retry     = { first = "1ms", max = "1ms", attempts = 0 }
reconcile = { inline = "1s", first = "1ms", max = "1ms", attempts = 2 }

[connections.svc]
connector = "http"
base_url  = "%s/${secret:canary}"
headers   = { Authorization = "Bearer ${secret:canary}", X-Also = "also ${secret:canary}" }
[connections.svc.tools.feed]
effect = "list"
path   = "/feed"
description = "reads the feed with ${secret:canary}"
[connections.svc.tools.take]
effect   = "mutate"
path     = "/take/{id}"
identity = ["id"]
fixed    = { by = "keep", key = "${secret:canary}", deep = { list = ["${secret:canary}"] } }
verify_by_hand = "log in with ${secret:canary}"
[connections.svc.tools.refuse]
effect   = "mutate"
path     = "/refuse/{id}"
identity = ["id"]
[connections.svc.tools.lose]
effect   = "mutate"
path     = "/lose/{id}"
identity = ["id"]
idempotency_header = "Idempotency-Key"
[connections.svc.tools.lose.reconcile]
path = "/looked-up/{token}"
absent_if = { path = "$.error", equals = "none" }
`

const canaryScript = `export default Keep.workflow({ name: "%[1]s", topics: { t: {} },
  producers: { async poll(ctx) {
    for (const row of await ctx.svc.feed({})) {
      ctx.log(row.text);
      await ctx.publish("t", { messageId: row.id, text: row.text });
    } } },
  consumers: { c: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, e) { return e ? { reservations: [{ topic: "t", ids: [e.messageId] }], data: e.payload, ui: { title: e.payload.text } } : { reservations: [], data: {} }; },
    async mutate(ctx, p) { await ctx.svc.%[1]s({ id: "x", text: p.data.text }); },
    async next(ctx, p, m) { ctx.log(JSON.stringify(m.result || null)); } }) } });
`

// TestCanary runs workflows against a service that returns the connection's secret in
// every encoding, and looks for it in everything that Keep writes, prints or serves.
func TestCanary(t *testing.T) {
	t.Parallel()
	for n := range *canaries {
		secret := canary
		if n > 0 {
			secret = hatch()
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) { letCanaryOut(t, secret) })
	}
}

// hatch makes another canary: any characters that may stand in a path.
func hatch() string {
	const sharp = "ABCXYZabcxyz0189+&=<>\"'~!@$^*()_-,;:|`[]"
	b := []byte("Aa")
	for range 14 + rand.IntN(26) {
		b = append(b, sharp[rand.IntN(len(sharp))])
	}
	return string(b) + "/z"
}

// letCanaryOut lets one secret through everything.
func letCanaryOut(t *testing.T, canary string) {
	service := httptest.NewServer(echo{t, canary})
	defer service.Close()
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(d.dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".secrets/canary", canary)
	write("keep.toml", fmt.Sprintf(canaryConfig, service.URL))
	for _, name := range []string{"take", "refuse", "lose"} {
		write(name+".js", fmt.Sprintf(canaryScript, name))
	}
	look := seeker{t, encodings(canary)}
	look.in("keep check", []byte(d.output("check", ".", "--json")))
	look.in("keep run", []byte(d.output("run", ".", "--json", "-vv")))
	for _, list := range []string{"runs", "events", "inputs", "mutations", "inbox", "items", "topics", "workflows"} {
		look.in("keep "+list, []byte(d.output(list, "--json", "--all")))
	}
	d.traces(look, "read svc.feed", "call svc.take", "call svc.refuse", "lookup svc.lose")
	d.start()
	d.pages(look)
	d.kill()
	err := filepath.WalkDir(d.dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(name, ".secrets") {
			return err
		}
		if !e.Type().IsRegular() {
			return nil // the daemon's socket
		}
		text, err := os.ReadFile(name)
		look.in(filepath.Base(name), text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// traces looks into what every run saw, which the file of the database has packed, and among
// which must be some that are given.
func (d *serving) traces(look seeker, some ...string) {
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(d.output("runs", "--json", "--all")), &list); err != nil || len(list) == 0 {
		d.t.Fatalf("%d runs, %v", len(list), err)
	}
	seen := ""
	for _, r := range list {
		shown := d.output("runs", "show", r.ID, "--json") + d.output("runs", "show", r.ID)
		look.in("keep runs show "+r.ID, []byte(shown))
		seen += shown
	}
	for _, saw := range some {
		if !strings.Contains(seen, saw) {
			d.t.Errorf("no trace of a run has %q", saw)
		}
	}
}

// output returns everything that a command prints, whatever its exit status.
func (d *serving) output(args ...string) string {
	cmd := exec.CommandContext(d.t.Context(), d.bin, args...)
	cmd.Dir, cmd.Env = d.dir, d.env
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// pages reads every page and list that a browser can reach from the home page.
func (d *serving) pages(look seeker) {
	cookies, err := cookiejar.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	jar := &http.Client{Jar: cookies}
	code := strings.TrimPrefix(d.keep("login"), d.base+"/login?code=")
	if res, err := jar.PostForm(d.base+"/login", url.Values{"code": {code}}); err != nil || res.StatusCode != http.StatusOK {
		d.t.Fatalf("log in: %v, %v", res, err)
	}
	seen, queue := map[string]bool{}, []string{d.base + "/"}
	for _, list := range []string{"runs", "events", "inputs", "mutations", "escalations", "items", "topics", "workflows", "accounts", "hooks", "status"} {
		queue = append(queue, d.base+"/api/v1/"+list)
	}
	queue = append(queue, d.base+"/metrics")
	for len(queue) > 0 && len(seen) < 400 {
		at := queue[0]
		queue = queue[1:]
		if seen[at] || !strings.HasPrefix(at, d.base) {
			continue
		}
		seen[at] = true
		res, err := jar.Get(at)
		if err != nil {
			d.t.Fatal(err)
		}
		if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			res.Body.Close()
			continue
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			d.t.Fatal(err)
		}
		look.in(at, body)
		for _, part := range strings.Split(string(body), `href="/`)[1:] {
			target, _, _ := strings.Cut(part, `"`)
			queue = append(queue, d.base+"/"+html.UnescapeString(target))
		}
	}
	if len(seen) < 20 {
		d.t.Errorf("%d pages were read, too few to be all", len(seen))
	}
}

// A seeker looks for a secret.
type seeker struct {
	t     *testing.T
	forms map[string]string
}

// in reports each form of the secret that a text holds.
func (s seeker) in(where string, text []byte) {
	lower := strings.ToLower(string(text))
	for name, form := range s.forms {
		if i := strings.Index(lower, strings.ToLower(form)); i >= 0 {
			s.t.Errorf("%s holds the secret (%s): …%.120q", where, name, text[max(0, i-60):])
			return
		}
	}
}
