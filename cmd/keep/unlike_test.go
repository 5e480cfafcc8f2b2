package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/pgtest"
)

// unlikeConfig is that of one host of several, which all have another place for bank.
const unlikeConfig = `
[policy]
lease     = { ttl = "2s" }
reconcile = { inline = "1s", first = "50ms", max = "200ms", attempts = 5000 }
retry     = { first = "50ms", max = "200ms", attempts = 50 }
[connections.same]
connector = "log"
path      = "stderr"
[connections.bank]
connector = "http"
base_url  = "PLACE"
[connections.bank.tools.keyed]       # level A
effect   = "mutate"
path     = "/keyed"
identity = ["id"]
timeout  = "1s"
idempotency_header = "Idempotency-Key"
deduplicates = true
[connections.bank.tools.witnessed]   # level C
effect   = "mutate"
path     = "/witnessed"
identity = ["id"]
timeout  = "1s"
settle_after = "0s"
idempotency_header = "Idempotency-Key"
reconcile = { path = "/by-token/{token}", absent_if = { path = "$.error", equals = "none" } }
`

const unlikeScript = `export default Keep.workflow({ name: "TOOL", topics: { t: {} },
  consumers: { pay: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, event) {
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "t", ids: [event.messageId] }], data: {} };
    },
    async mutate(ctx) { await ctx.bank.TOOL({ id: "1" }); },
  }) } });`

// A payee is a service that loses the answer of each call after its effect, and that is
// deaf to questions until it is healed.
type payee struct {
	*httptest.Server
	mu     sync.Mutex // protects the fields below
	calls  []string   // method and path
	tokens map[string]bool
	heals  bool
}

func newPayee(t *testing.T) *payee {
	p := &payee{tokens: map[string]bool{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *payee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, r.Method+" "+strings.Split(r.URL.Path, "/")[1])
	token := filepath.Base(r.URL.Path)
	switch {
	case r.Method == http.MethodPost:
		p.tokens[r.Header.Get("Idempotency-Key")] = true
		panic(http.ErrAbortHandler)
	case !p.heals:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case p.tokens[token]:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"token": %q}`, token)
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"error": "none"}`)
	}
}

// count returns how many calls there were, of a method or of all.
func (p *payee) count(method string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if strings.HasPrefix(c, method) {
			n++
		}
	}
	return n
}

// poll asks again, by commands, until nothing is missing.
func poll(t *testing.T, what string, missing func() string) {
	t.Helper()
	why := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if why = missing(); why == "" {
			return
		}
	}
	t.Fatalf("%s: %s", what, why)
}

// Law: bound-to-its-world. Two hosts of one database that have a connection differently say
// so, in the log, in the status, in the list of hosts and on the page; and what one sent,
// the other neither sends again nor asks about anywhere else.
func TestHostsWithDifferentConfigurations(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	here, there := newPayee(t), newPayee(t)
	a, b := newServingOn(t, url), newServingOn(t, url)
	for d, place := range map[*serving]*payee{a: here, b: there} {
		if err := os.WriteFile(filepath.Join(d.dir, "keep.toml"), []byte(strings.Replace(unlikeConfig, "PLACE", place.URL, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tools := []string{"keyed", "witnessed"}
	for _, tool := range tools {
		if err := os.WriteFile(filepath.Join(a.dir, tool+".js"), []byte(strings.ReplaceAll(unlikeScript, "TOOL", tool)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.keep("deploy", ".")
	a.start()
	for _, tool := range tools {
		a.keep("publish", tool, "t", "--id", "e", "{}")
	}
	states := func(want ...string) func() string {
		return func() string {
			var ms []api.Mutation
			read(t, b, &ms, "mutations")
			text := ""
			for _, m := range ms {
				text += fmt.Sprintf("%s %s; ", m.Tool, m.State)
			}
			for _, w := range want {
				if !strings.Contains(text, w+";") {
					return "the records are " + text
				}
			}
			return ""
		}
	}
	poll(t, "both calls are in doubt", states("bank.keyed needs_reconcile", "bank.witnessed needs_reconcile"))
	b.start()
	poll(t, "the difference is said", func() string { return saysUnlike(t, b) })
	heard(t, b, "connection bank is not the same on all hosts")
	token := "Bearer " + a.keep("token", "add", "dash", "--role", "admin")
	if _, page := a.ask("GET", "/", "", "Authorization", token); !strings.Contains(page, "connection bank is not the same on all hosts") {
		t.Error("the page does not say that the hosts differ")
	}

	a.kill() // in the middle of everything
	sent := here.count("POST")
	poll(t, "the other host has both workflows", func() string {
		var hosts []api.Host
		read(t, b, &hosts, "hosts")
		if len(hosts) != 1 || len(hosts[0].Workflows) != 2 {
			return fmt.Sprintf("%+v", hosts)
		}
		return ""
	})
	here.heal()
	poll(t, "the lookup settles one, and a person is asked about the other", states("bank.keyed indeterminate", "bank.witnessed applied"))
	if n := there.count(""); n != 0 {
		t.Errorf("the other host's place got %q, want nothing", there.calls)
	}
	if n := here.count("POST"); n != sent {
		t.Errorf("%d calls were sent again, want none", n-sent)
	}
	var qs []api.Escalation
	read(t, b, &qs, "inbox")
	if len(qs) != 1 || !strings.Contains(qs[0].Why, "configuration of the tool changed") {
		t.Errorf("questions are %+v, want one that says that the configuration differs", qs)
	}
	if saysUnlike(t, b) == "" {
		t.Error("one host alone is said to differ")
	}
}

func (p *payee) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heals = true
}

// read reads the JSON of a verb.
func read(t *testing.T, d *serving, v any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(d.keep(append(args, "--json")...)), v); err != nil {
		t.Fatalf("keep %v --json: %v", args, err)
	}
}

// saysUnlike returns what is missing of what status and hosts say of bank.
func saysUnlike(t *testing.T, d *serving) string {
	t.Helper()
	var s api.Status
	read(t, d, &s, "status")
	if len(s.Unlike) != 1 || s.Unlike[0].Connection != "bank" || len(s.Unlike[0].Ways) != 2 || len(s.Unlike[0].Without) != 0 {
		return fmt.Sprintf("the status says %+v", s.Unlike)
	}
	if text := d.keep("status"); !strings.Contains(text, s.Unlike[0].Why) {
		return "the status does not say so to people:\n" + text
	}
	if text := d.keep("hosts"); strings.Count(text, "unlike others: bank") != 2 {
		return "the hosts are\n" + text
	}
	return ""
}

// heard waits until a host says something.
func heard(t *testing.T, d *serving, part string) {
	t.Helper()
	for {
		select {
		case line, more := <-d.said:
			if strings.Contains(line, part) {
				return
			}
			if !more {
				t.Fatalf("the host ended without saying %q", part)
			}
		case <-t.Context().Done():
			t.Fatalf("the host never said %q", part)
		}
	}
}
