//go:build unix

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

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// A till takes payments, and shows each user those of that user alone. A key is USER-NUMBER.
type till struct {
	*httptest.Server
	mu    sync.Mutex      // protects the fields below
	paid  []string        // users who paid, once for each payment
	keys  map[string]bool // user and idempotency key of each payment
	seen  map[string]bool // keys that requests had
	first func() bool     // what becomes of the first call: whether it has its effect; its answer is lost
	heals bool
}

// ServeHTTP implements http.Handler.
func (s *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, _, _ := strings.Cut(held, "-")
	s.seen[held] = true
	w.Header().Set("Content-Type", "application/json")
	switch key := user + " " + r.Header.Get("Idempotency-Key"); {
	case r.Method == http.MethodPost && s.first != nil:
		if s.first() {
			s.paid, s.keys[key] = append(s.paid, user), true
		}
		s.first = nil
		panic(http.ErrAbortHandler)
	case !s.heals:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case r.Method == http.MethodPost:
		if !s.keys[key] {
			s.paid, s.keys[key] = append(s.paid, user), true
		}
		io.WriteString(w, `{"ok": true}`)
	case s.keys[user+" "+r.URL.Query().Get("key")]:
		fmt.Fprintf(w, `[{"key": %q}]`, r.URL.Query().Get("key"))
	default:
		io.WriteString(w, `[]`)
	}
}

// payments returns who paid.
func (s *till) payments() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.paid, " ")
}

// saw returns what is missing until a request had a key; empty: nothing.
func (s *till) saw(held string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.seen[held] {
		return "no request had the key " + held
	}
	return ""
}

// heal makes the service answer.
func (s *till) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heals = true
}

// The tool pay of a till, at each level.
var tillTools = map[string]string{
	"A": "deduplicates = true\n",
	"C": "settle_after = \"0s\"\nreconcile = { path = \"/payments\", query = [\"key={token}\"], match = [\"key={token}\"], complete = true }\n",
}

const tillScript = `export default Keep.workflow({ name: "o", topics: { t: {} },
  consumers: { pay: Keep.consumer({ subscribe: ["t"], order: "none",
    async prepare(ctx, event) {
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "t", ids: [event.messageId] }], data: { ref: event.messageId } };
    },
    async mutate(ctx, p) { await ctx.bank.pay(p.data); },
  }) } });`

const tillPolicy = `
[policy]
lease     = { ttl = "2s" }
reconcile = { inline = "1s", first = "50ms", max = "200ms", attempts = 5000 }
retry     = { first = "50ms", max = "200ms", attempts = 50 }
`

// newTill returns a project whose connection bank pays at a till, with the secret or the account shop.
func newTill(t *testing.T, level, by string, happens bool) (*diary, *till) {
	s := &till{keys: map[string]bool{}, seen: map[string]bool{}, first: func() bool { return happens }}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	d := &diary{T: t, dir: t.TempDir()}
	tool := "[tools.pay]\neffect = \"mutate\"\npath = \"/pay\"\nidentity = [\"ref\"]\ntimeout = \"1s\"\nidempotency_header = \"Idempotency-Key\"\n" +
		"applied_if = [{ path = \"$.ok\", equals = true }]\nscopes = []\nsettle_source = \"here\"\nexample = { ref = \"a\" }\n" +
		"params = { type = \"object\", required = [\"ref\"], properties = { ref = { type = \"string\" } } }\n" + tillTools[level]
	if level == "A" {
		tool += "settle_after = \"0s\"\n"
	}
	d.write("packs/till.toml", "name = \"till\"\nversion = \"1\"\ntitle = \"Till\"\ndocs = \"https://till.example/docs\"\nbase_url = \""+s.URL+"\"\n[auth]\nstyle = \"bearer\"\n"+tool)
	d.write("keep.toml", tillPolicy+"[connections.bank]\nconnector = \"till\"\n"+map[string]string{"account": "account = \"shop\"\n", "secret": "secret = \"${secret:shop}\"\n"}[by])
	d.write("o.js", tillScript)
	d.hold(by, "ann-1")
	return d, s
}

// hold gives the connection another key.
func (d *diary) hold(by, key string) {
	d.Helper()
	args := []string{"connect", "till", "--name", "shop"}
	if by == "secret" {
		args = []string{"secrets", "set", "shop"}
	}
	cmd := d.command(args...)
	cmd.Stdin = strings.NewReader(key + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		d.Fatalf("keep %v: %s, %v", args, out, err)
	}
}

// Law: bound-to-its-world. After a doubt, an account that is connected again, or a secret that is replaced,
// may be another user's, to whom the service does not show the effect, and whose keys are others. A person
// is asked once for all calls, and nothing is sent again before.
func TestDoubtUnderAnotherUser(t *testing.T) {
	for _, c := range []struct {
		name, by, level string
		happens         bool
		next            string      // the key of later
		answer          keep.Action // empty: nobody is asked
		paid            string
	}{
		{"another account, found by a lookup of the first alone", "account", "C", true, "bob-1", keep.Reject, "ann"},
		{"another account, whose keys are others", "account", "A", true, "bob-1", keep.Reject, "ann"},
		{"another secret, found by a lookup of the first alone", "secret", "C", true, "bob-1", keep.Reject, "ann"},
		{"another secret, whose keys are others", "secret", "A", true, "bob-1", keep.Reject, "ann"},
		{"the same account, where nothing happened", "account", "C", false, "ann-2", keep.Approve, "ann"},
		{"the same account, which takes the key again", "account", "A", true, "ann-2", keep.Approve, "ann"},
		{"the same secret, where nothing happened", "secret", "A", false, "ann-2", keep.Approve, "ann"},
		{"the same account, that finds it", "account", "C", true, "ann-2", "", "ann"},
		{"the very same key", "account", "A", true, "ann-1", "", "ann"},
		{"the very same secret", "secret", "C", false, "ann-1", "", "ann"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, s := newTill(t, c.level, c.by, c.happens)
			said := serveIn(t, d.dir, "--listen", "127.0.0.1:0")
			said.wait(t, "Serving 1 workflow")
			if out, status := d.keep("publish", "o", "t", "--id", "one", "{}"); status != 0 {
				t.Fatal(out)
			}
			poll(t, "the doubt", func() string {
				if ms := list[api.Mutation](d, "mutations"); len(ms) == 1 && ms[0].State == keep.NeedsReconcile {
					return ""
				}
				return "there is none"
			})
			d.hold(c.by, c.next)
			if c.level == "C" { // to be asked, the service must be up; the host has the new key first
				poll(t, "the new key", func() string { return s.saw(c.next) })
				s.heal()
			}
			if c.answer != "" {
				d.answerUser(c.answer, s)
			}
			s.heal()
			poll(t, "the end", func() string {
				ms := list[api.Mutation](d, "mutations")
				if open := list[api.Escalation](d, "inbox"); c.answer == keep.Reject {
					if len(open) == 1 && open[0].Kind == keep.AskUnknownOutcome && strings.Contains(open[0].Why, "another user") {
						return ""
					}
				} else if len(open) == 0 && ms[0].State == keep.Applied {
					return ""
				}
				text, _ := json.Marshal(ms)
				return string(text)
			})
			if got := s.payments(); got != c.paid {
				t.Errorf("paid by %q, want %q", got, c.paid)
			}
		})
	}
}

// Another account in keep.toml is another user, as far as anybody knows: a person is asked, and nothing is
// paid twice, also when the file is put back.
func TestDoubtUnderAnotherAccountName(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"A", "C"} {
		d, s := newTill(t, level, "account", true)
		serveIn(t, d.dir, "--listen", "127.0.0.1:0").wait(t, "Serving 1 workflow")
		if out, status := d.keep("publish", "o", "t", "--id", "one", "{}"); status != 0 {
			t.Fatal(out)
		}
		poll(t, "the doubt", func() string {
			if ms := list[api.Mutation](d, "mutations"); len(ms) == 1 && ms[0].State == keep.NeedsReconcile {
				return ""
			}
			return "there is none"
		})
		cmd := d.command("connect", "till", "--name", "shop2")
		cmd.Stdin = strings.NewReader("bob-1\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("connect: %v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(d.dir, "keep.toml"))
		if err != nil {
			t.Fatal(err)
		}
		d.write("keep.toml", strings.Replace(string(text), `"shop"`, `"shop2"`, 1))
		poll(t, "the question", func() string {
			open := list[api.Escalation](d, "inbox")
			if len(open) == 1 && open[0].Kind == keep.AskUnknownOutcome && strings.Contains(open[0].Why, `"shop" → "shop2"`) {
				return ""
			}
			return fmt.Sprintf("%+v", open)
		})
		d.write("keep.toml", string(text))
		s.heal()
		if ms := list[api.Mutation](d, "mutations"); ms[0].State != keep.Indeterminate || s.payments() != "ann" {
			t.Errorf("level %s: %s, paid by %q; want a doubt, and ann", level, ms[0].State, s.payments())
		}
	}
}

// answerUser waits for the question whether what is held is of the same user, and answers it.
func (d *diary) answerUser(a keep.Action, s *till) {
	d.Helper()
	var q api.Escalation
	before := s.payments()
	poll(d.T, "the question", func() string {
		open := list[api.Escalation](d, "inbox")
		if len(open) == 1 {
			q = open[0]
			return ""
		}
		return fmt.Sprintf("%d questions, paid by %q", len(open), s.payments())
	})
	if q.Kind != keep.AskPermission || !strings.Contains(q.Question, "same user") || q.Workflow != "" || s.payments() != before {
		d.Fatalf("asked %+v, paid by %q", q, s.payments())
	}
	out, status := d.keep("inbox", "do", string(q.ID), string(a))
	if status != 0 {
		d.Fatalf("inbox do: %d: %s", status, out)
	}
}
