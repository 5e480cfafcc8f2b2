//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
)

// aside are the commands that do not go through a daemon, and why. docs/api.md
// tells people of each.
var aside = map[string]string{
	"demo": "has a database of its own", "demo bank": "has none", "test": "opens no database", "plan": "reads, and must not depend on a daemon",
	"init": "makes files", "check": "opens no database, or must not depend on a daemon", "types": "opens no database",
	"dev": "is a daemon", "run": "is a host", "serve": "is a daemon", "proxy": "has keys of its own",
	"keys import": "is for before a proxy starts",
	"login":       "asks the daemon for what no API gives", "api": "is the API itself",
	"db": "prints help", "checkpoints": "prints help", "db migrate": "is for before a daemon starts", "db check": "must not depend on a daemon",
	"db sweep": "must not depend on a daemon",
	"db copy":  "is for before a daemon starts", "db restored": "is for before a daemon starts", "db unseal": "is for before a daemon starts",
	"db backup": "must not depend on a daemon", "doctor": "must not depend on a daemon", "trust": "opens no database",
	"packs": "opens no database", "packs list": "opens no database", "packs show": "opens no database", "packs copy": "opens no database",
	"idempotency guide": "opens no database",
	"idempotency":       "prints help", "idempotency test": "asks another server", "idempotency backend": "is a server",
	"version": "opens nothing", "update": "opens nothing", "guide": "opens nothing", "docs": "opens nothing", "docs search": "opens nothing", "mcp": "serves an agent",
	"accounts": "needs the key beside keep.toml", "accounts list": "needs the key beside keep.toml", "accounts show": "needs the key beside keep.toml",
	"accounts test": "asks a service", "accounts renew": "asks a service", "accounts revoke": "asks a service", "accounts rekey": "changes the key beside keep.toml",
	"accounts export": "needs the key beside keep.toml", "accounts import": "needs the key beside keep.toml", "accounts recipient": "needs the key beside keep.toml",
	"connect": "asks a service", "secrets": "needs the key beside keep.toml", "secrets list": "needs the key beside keep.toml",
	"secrets set": "needs the key beside keep.toml", "secrets rm": "needs the key beside keep.toml", "prove": "asks a service",
	"write": "asks a model", "edit": "asks a model",
	"gateway": "is a server", "gateway import": "opens no database", "gateway pair": "asks an MCP server", "gateway install": "opens no database",
	"gateway tools": "reads, and must not depend on a daemon", "gateway tools accept": "is for a gateway, which has no API",
}

// A place is a project, with or without a daemon.
type place struct {
	t     *testing.T
	dir   string
	now   time.Time
	asked *atomic.Int64 // requests to the API by the socket; nil: there is no daemon

	// between, if it is not nil, is what stands before the daemon, and clock is the
	// daemon's. gone takes its socket away as the end of its process does.
	between func(w http.ResponseWriter, r *http.Request, next http.Handler)
	clock   func() time.Time
	gone    func()
}

// An outcome is all that a command says.
type outcome struct {
	Status      int
	Out, Talk   string
	ThroughHost bool
}

// keep runs a command in the place, at its time.
func (p *place) keep(args ...string) outcome { return p.keepUntil(p.t.Context(), args...) }

// keepUntil is keep for a command that is interrupted when ctx ends.
func (p *place) keepUntil(ctx context.Context, args ...string) outcome {
	p.t.Helper()
	p.t.Chdir(p.dir)
	var before int64
	if p.asked != nil {
		before = p.asked.Load()
	}
	var out, talk bytes.Buffer
	a := newApp(&out, &talk)
	if args[0] != "run" { // a host needs a clock that moves
		a.Clock = func() time.Time { return p.now }
	}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&talk)
	cmd, err := root.ExecuteContextC(ctx)
	status := a.finish(cmd, err)
	same := strings.NewReplacer(p.dir, "DIR")
	o := outcome{Status: status, Out: hostConfig.ReplaceAllString(same.Replace(out.String()), ""), Talk: same.Replace(talk.String())}
	o.ThroughHost = p.asked != nil && p.asked.Load() > before
	return o
}

// must is keep for a command that has to end with a status; it returns stdout.
func (p *place) must(status int, args ...string) string {
	p.t.Helper()
	o := p.keep(args...)
	if o.Status != status {
		p.t.Fatalf("keep %v: status %d, want %d\n%s%s", args, o.Status, status, o.Out, o.Talk)
	}
	return o.Out
}

// one returns a field of the first object of a list whose other fields are as
// wanted.
func (p *place) one(field string, want map[string]string, args ...string) string {
	p.t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(p.must(0, append(args, "--json")...)), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range all {
		fits := true
		for k, text := range want {
			fits = fits && v[k] == text
		}
		if fits {
			return v[field].(string)
		}
	}
	p.t.Fatalf("keep %v: none of %d is %v", args, len(all), want)
	return ""
}

// remoteProject is a project with something of everything.
var remoteProject = map[string]string{
	"mail.js": `import { title } from "./lib/title.js";
export default Keep.workflow({
  name: "mail",
  topics: { "mail/received": {}, left: {} },
  producers: { async feed(ctx) {
    for (const c of await ctx.crm.feed({})) {
      const inputId = await ctx.registerInput({ source: "crm", type: "contact", id: c.id, title: title(c) });
      await ctx.publish("mail/received", { messageId: "m/" + c.id, inputId, payload: c });
      await ctx.publish("left", { messageId: c.id, inputId, payload: c });
    }
  } },
  consumers: { create: Keep.consumer({
    subscribe: ["mail/received"],
    async prepare(ctx, event) {
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "mail/received", ids: [event.messageId] }], data: event.payload, ui: { title: title(event.payload) } };
    },
    async mutate(ctx, prepared) { await ctx.crm.create(prepared.data); },
    async next(ctx, prepared, result) { ctx.log("created", prepared.data.id, result.status); },
  }) },
});
`,
	"lib/title.js": "export const title = (c) => `Mail of ${c.name} \\u202e`;\n",
	"remind.js": `export default Keep.workflow({
  name: "remind",
  jobs: {
    hourly: { schedule: { interval: "1h" }, async handler(ctx) {
      for (const id of ["a", "..", "b/c"])
        await ctx.withItem(id, "Item " + id, async (ctx) => {
          if (!ctx.item.isDone) await ctx.crm.create({ id: "item " + id, name: id });
        });
    } },
    daily: { schedule: { cron: "0 9 * * *", timezone: "Europe/Berlin" }, async handler(ctx) {} },
  },
});
`,
	"odd.js": `export default Keep.workflow({
  name: "odd",
  jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) {
    await ctx.withItem("odd", "An odd one", async () => { throw new Error("odd"); });
  } } },
});
`,
	"quiet.js": `export default Keep.workflow({ name: "quiet", topics: { t: {} }, producers: { async tick(ctx) {} } });
`,
	"keys.jsonl": `{"key":"k1","user_id":"u","endpoint":"/api/a","status":"completed","response_status":200,"response_body":{"a":1},"created_at":"2026-11-01T00:00:00Z"}
{"key":"k2","user_id":"u","endpoint":"PUT /api/b","status":"failed","response_status":500,"created_at":"2026-11-01T00:00:00Z"}
{"key":"k3","user_id":"u","endpoint":"PUT /api/b","status":"failed","response_status":500,"created_at":"2026-11-01T00:00:00Z"}
`,
}

// A questioned is the project that all places are copies of: it came to questions.
type questioned struct {
	dir string
	crm *service
	now time.Time
}

// sharedProject is made by the first test that needs it; nil: not yet. No two of them are
// parallel.
var sharedProject *questioned

// questionedProject makes a project and lets it come to questions, once for all tests.
func questionedProject(t *testing.T) *questioned {
	t.Helper()
	q := sharedProject
	if q == nil {
		dir, err := os.MkdirTemp("", "keep-")
		if err != nil {
			t.Fatal(err)
		}
		shared = append(shared, dir)
		q = &questioned{dir: filepath.Join(dir, "p"), crm: startService(), now: time.Now()}
	}
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	t.Setenv("CRM_URL", q.crm.URL)
	t.Setenv("KEEP_SECRET_CRM", "hunter2")
	t.Setenv("KEEP_SECRET_HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if sharedProject == nil {
		q.question(t)
		sharedProject = q
	}
	return q
}

// question makes the files of the project, and runs it.
func (q *questioned) question(t *testing.T) {
	t.Helper()
	first := &place{t: t, dir: q.dir, now: q.now}
	toml, err := os.ReadFile("testdata/crm/keep.toml")
	if err != nil {
		t.Fatal(err)
	}
	files := maps.Clone(remoteProject)
	// Nothing is due by the clock of the wall in the hour that passes, at whatever hour the test runs.
	files["remind.js"] = strings.Replace(files["remind.js"], "0 9 * * *", fmt.Sprintf("0 %d * * *", (q.now.UTC().Hour()+12)%24), 1)
	files["keep.toml"] = string(toml) + `
[server]
listen = "127.0.0.1:0"
[notify]
webhook = { url = "http://127.0.0.1:1/", secret = "${secret:hook}" }
retry = { first = "1ms", max = "1ms", attempts = 0 }
`
	for name, text := range files {
		file := filepath.Join(first.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	q.crm.fill(2)
	first.must(exit.NeedsPerson, "run", ".") // odd
	q.crm.set("mute")
	q.crm.fill(4)
	first.must(0, "trigger", "mail")
	first.must(exit.NeedsPerson, "run", ".")
	first.must(0, "keys", "import", "keys.jsonl", "--ttl", "876000h")
	first.must(0, "token", "add", "bot", "--role", "viewer")
	first.must(0, "pause", "quiet")
}

// newPlaces returns two copies of a project that came to questions: one with a daemon
// whose host is at rest, so that nothing moves by itself.
func newPlaces(t *testing.T) (without, with *place) {
	t.Helper()
	first := questionedProject(t)
	for _, p := range []**place{&without, &with} {
		*p = &place{t: t, dir: filepath.Join(shortDir(t), "p"), now: first.now.Add(time.Hour).Truncate(time.Millisecond)}
		if err := os.CopyFS((*p).dir, os.DirFS(first.dir)); err != nil {
			t.Fatal(err)
		}
	}
	with.serve()
	return without, with
}

// shortDir is t.TempDir with a name that is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve serves what keep serve does until the test ends, but runs nothing.
func (p *place) serve() {
	p.t.Helper()
	p.t.Chdir(p.dir)
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	a := newApp(p.t.Output(), p.t.Output())
	p.clock = func() time.Time { return p.now }
	a.Clock = func() time.Time { return p.clock() }
	a.log = slog.New(slog.NewTextHandler(p.t.Output(), nil))
	check := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	cfg, err := a.LoadConfig(".")
	check(err)
	host, err := a.env().Assemble(ctx, &project.Project{Cfg: cfg})
	check(err)
	check(host.Open(ctx, a.env(), daemon.Watch{}))
	srv, err := a.env().OpenServer(ctx, host, new(metrics.Collector))
	check(err)
	p.asked = new(atomic.Int64)
	inner := srv.Socket.Handler
	srv.Socket.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			p.asked.Add(1)
		}
		if p.between != nil {
			p.between(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	})
	p.gone = func() {
		if err := os.Remove(daemon.SocketOf(cfg)); err != nil {
			p.t.Errorf("remove the socket: %v", err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Run(ctx); err != nil {
			p.t.Errorf("the server: %v", err)
		}
	})
	p.t.Cleanup(func() {
		stop()
		wg.Wait()
		if err := host.Close(); err != nil {
			p.t.Errorf("close: %v", err)
		}
	})
}

// hostConfig is what only a running host says in keep status --json.
var hostConfig = regexp.MustCompile(`(?s)  "config": (null|\{[^}]*\}),\n`)

// random is what differs from one token to the next.
var random = regexp.MustCompile(`keep_[a-z2-7]+_[a-z2-7]+|\b[a-z2-7]{10}\b`)

// Every command says and does the same whether a daemon answers it or the file,
// as text and as JSON, also where it fails; and it does ask the daemon.
func TestLocalAndRemote(t *testing.T) {
	form := newJSONForm(t)
	without, with := newPlaces(t)
	run := without.one("id", map[string]string{"workflow": "mail", "status": "committed"}, "runs", "--status", "committed")
	mutation := without.one("key", map[string]string{"workflow": "mail"}, "mutations")
	input := without.one("id", map[string]string{"status": "pending"}, "inputs")
	other := without.one("id", map[string]string{"external_id": "c1"}, "inputs")
	question := without.one("id", map[string]string{"kind": "unknown_outcome"}, "inbox")
	odd := without.one("id", map[string]string{"workflow": "odd"}, "inbox")
	unknown := without.one("reference", map[string]string{"key": "k2"}, "keys")
	second := without.one("reference", map[string]string{"key": "k3"}, "keys")
	done := without.one("reference", map[string]string{"key": "k1"}, "keys")
	token := without.one("id", map[string]string{"name": "bot"}, "token")

	const both = "" // as text and then as JSON
	steps := []struct {
		flag string // --json, or both
		line []string
	}{}
	each := func(flag string, lines ...[]string) {
		for _, l := range lines {
			if flag == both {
				steps = append(steps, struct {
					flag string
					line []string
				}{"text", l})
			}
			steps = append(steps, struct {
				flag string
				line []string
			}{"--json", l})
		}
	}
	is := func(words ...string) []string { return words }
	each(both, is("status"), is("workflows"), is("workflows", "list", "--workflow", "mail"), is("workflows", "list", "--workflow", "none"),
		is("workflows", "--limit", "1"), is("workflows", "--limit", "1", "--cursor", "mail"), is("workflows", "--cursor", "none"),
		is("workflows", "show", "mail"), is("workflows", "show", "remind"), is("workflows", "show", "none"), is("workflows", "versions", "mail"), is("workflows", "compare", "mail", "1.0", "1.0"), is("workflows", "compare", "mail", "1.0", "9.0"), is("workflows", "compare", "none", "1.0", "1.0"),
		is("runs"), is("runs", "list", "--open"), is("runs", "--limit", "2"), is("runs", "--cursor", "none"), is("runs", "--status", "committed", "--all"),
		is("runs", "show", run), is("runs", "show", "none"), is("runs", "logs", run), is("runs", "logs", "none"), is("runs", "replay", run), is("runs", "replay", run, "--json"), is("runs", "replay", "none"), is("test", "--record", run), is("test", "--record", run, "--plain", "--json"), is("test", "--record", "none"),
		is("inputs"), is("inputs", "list", "--status", "pending"), is("inputs", "show", input), is("inputs", "show", other), is("inputs", "show", "none"),
		is("events"), is("events", "list", "--workflow", "mail", "--topic", "left", "--status", "pending"), is("events", "--all"),
		is("events", "show", "mail", "mail/received", "m/c1"), is("events", "show", "mail", "mail/received", "m/c9"),
		is("topics"), is("topics", "list", "--workflow", "mail"), is("topics", "show", "mail", "left"), is("topics", "show", "mail", "none"),
		is("mutations"), is("mutations", "list", "--status", "indeterminate"), is("mutations", "--tool", "crm.create", "--input", other),
		is("mutations", "show", mutation), is("mutations", "show", "none"),
		is("items"), is("items", "list", "--status", "done"), is("items", "show", "odd", "odd"), is("items", "show", "remind", "a"),
		is("items", "show", "remind", ".."), is("items", "show", "remind", "b/c"), is("items", "show", "remind", "none"),
		is("inbox"), is("inbox", "list", "--workflow", "mail"), is("inbox", "show", question), is("inbox", "show", "none"),
		is("keys"), is("keys", "list", "--status", "unknown"), is("keys", "--key", "k1"), is("keys", "--limit", "1"), is("keys", "show", done), is("keys", "show", unknown),
		is("keys", "show", "key_36aagtdmsnzqbd7rejge7z5zdv"), is("keys", "show", "nonsense"),
		is("why", "m/c1"), is("why", run), is("why", run[len(run)-6:]), is("runs", "show", "last"), is("runs", "show", run[4:]), is("mutations", "show", mutation[4:]), is("why", "a"), is("why", "mail@1.0"), is("why", "none"), is("hooks"), is("hosts"), is("hosts", "list"), is("hosts", "show", "none"), is("hosts", "drain", "none"),
		is("token"), is("audit", "--workflow", "mail"), is("audit", "--workflow", "none"), is("token", "list"), is("grants"), is("grants", "list", "--workflow", "mail"), is("grants", "show", "mail"), is("grants", "show", "none"),
		is("checkpoints", "show", "mail", "feed"), is("checkpoints", "show", "mail", "create"), is("checkpoints", "show", "none", "feed"),
		is("budgets"), is("budgets", "list", "--workflow", "mail"), is("budgets", "show", "records"), is("budgets", "show", "none"),
		is("repairs"), is("repairs", "list", "--workflow", "mail"), is("repairs", "show", "none"),
		is("proposals"), is("proposals", "list", "--origin", "deploy"), is("proposals", "--origin", "x"), is("proposals", "show", "none"), is("proposals", "show", "mail@1.0"))
	// What changes something is done once as text, then as JSON or again.
	each(both, is("items", "reprocess", "remind", "a"), is("items", "reprocess", "remind", "--all"), is("items", "skip", "odd", "odd", "a"), is("items", "skip", "odd", "odd"),
		is("items", "skip", "remind", "none"), is("items", "skip", "none", "--all"), is("pause", "mail"), is("pause", "none"), is("resume", "mail"),
		is("trigger", "none"), is("trigger", "mail"), is("trigger", "mail", "create"), is("trigger", "mail", "none"), is("trigger", "remind"), is("trigger", "quiet"),
		is("publish", "none", "t", "{}"), is("publish", "quiet", "none", "{}"), is("publish", "quiet", "t", "x"), is("publish", "mail", "left", "--id", "c2", "{}"),
		is("inbox", "do", question, "approve"), is("inbox", "do", question, "nonsense"), is("inbox", "do", "none", "skip"),
		is("inbox", "do", question, "skip", "--note", "looked"), is("inbox", "show", question), is("inbox", "--closed"),
		is("inputs", "skip", input, "none"), is("inputs", "skip", input), is("inputs", "skip", input, other),
		is("runs", "cancel", run), is("runs", "cancel", "none", "--yes"), is("runs", "retry", run), is("runs", "retry", run, "--now"), is("runs", "retry", run, "--now", "--dry-run"),
		is("events", "skip", "mail", "left", "c1"), is("events", "skip", "mail", "left", "c2", "none"), is("events", "skip", "mail", "left", "c2"),
		is("inputs", "unskip", input), is("inputs", "unskip", "none"), is("events", "unskip", "mail", "left", "c2"), is("items", "unskip", "remind", "a"), is("items", "unskip", "remind", "none"),
		is("events", "redo", "mail", "left", "c1", "c2"), is("events", "redo", "mail", "left", "--all"), is("events", "redo", "mail", "left", "none"), is("events", "redo", "mail", "m", "c1"), is("events", "redo", "mail", "m", "--all", "--yes"),
		is("inputs", "redo", input), is("inputs", "redo", "none"),
		is("items", "reprocess", "remind", "a", "..", "--yes", "--note", "again"), is("items", "skip", "remind", "--status", "processing", "--yes"),
		is("inbox", "do", odd, "retry"), is("keys", "resolve", unknown, "happened", "--status", "201", "--body", "{}"), is("keys", "show", unknown),
		is("keys", "resolve", second, "did-not-happen"), is("keys", "resolve", second, "did-not-happen", "--yes"), is("keys", "resolve", done, "did-not-happen", "--yes"), is("keys", "resolve", done, "perhaps"), is("keys", "forget", done), is("keys", "forget", done, "--yes"), is("keys", "forget", "none"),
		is("token", "add", "me", "--role", "author"), is("token", "add", "me", "--role", "god"), is("token", "revoke", token), is("token", "revoke", "none"),
		is("grants", "give", "mail", "crm.create"), is("grants", "give", "mail", "crm.none"), is("grants", "give", "none", "crm.create"),
		is("grants", "give", "mail", "crm.create", "--when", "params.id != 'x'", "--approve", "always", "--yes"), is("grants", "give", "mail", "crm.create", "--when", "params.id"),
		is("grants", "take", "mail", "crm.feed"), is("grants", "take", "mail", "crm.none"), is("grants", "take", "mail", "crm.feed", "--yes"), is("grants", "take", "odd", "--yes"), is("grants", "show", "mail"), is("grants"),
		is("checkpoints", "set", "quiet", "tick", "k", `{"a": 1}`), is("checkpoints", "set", "quiet", "tick", "k", `{"a": 1}`, "--yes", "--note", "why"), is("checkpoints", "set", "quiet", "tick", "k", "x"),
		is("checkpoints", "reset", "quiet", "tick", "k"), is("checkpoints", "show", "quiet", "tick"), is("checkpoints", "reset", "quiet", "tick", "none", "--yes"), is("checkpoints", "reset", "quiet", "tick"), is("checkpoints", "reset", "quiet", "tick", "--yes"), is("checkpoints", "reset", "quiet", "none", "--yes"),
		is("repairs", "accept", "none"), is("repairs", "reject", "none", "--note", "why"), is("proposals", "accept", "mail@9.0"), is("proposals", "reject", "mail@9.0"),
		is("budgets", "show", "records"), is("inbox", "do", question, "skip", "--limit", "5"), is("inbox", "do", question, "raise", "--until", "soon"),
		is("deploy", "."), is("deploy", "next"), is("deploy", "next"), is("deploy", "bad"), is("deploy", "none.js"),
		is("status"), is("runs"), is("mutations"), is("items"), is("inputs"), is("events"), is("inbox"), is("keys", "--key", "k1"), is("workflows"), is("mutations", "show", mutation),
		is("workflows", "versions", "mail"), is("workflows", "versions", "quiet"))
	for _, p := range []*place{without, with} {
		for name, text := range map[string]string{
			"next/mail.js":  strings.Replace(remoteProject["mail.js"], `"./lib/title.js"`, `"../lib/title.js"`, 1) + "// changed\nconsole.log(1);",
			"next/quiet.js": `export default Keep.workflow({ name: "quiet", topics: { t: {}, u: {} } });`,
			"bad/broken.ts": "export default Keep.workflow({ name: 'quiet', producers: { async p(ctx) { await ctx.crm.nothing({}); } } });\n",
		} {
			file := filepath.Join(p.dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tried := make(map[string]bool)
	for _, s := range steps {
		line := s.line
		if s.flag == "--json" {
			line = append(slices.Clip(line), "--json")
		}
		a, b := without.keep(line...), with.keep(line...)
		if cmd, _, err := newApp(nil, nil).root().Find(line); err == nil {
			tried[pathOf(cmd)] = true
		}
		if asks := b.Status != exit.Misused && !strings.Contains(b.Talk, "does not exist"); asks && !b.ThroughHost {
			t.Errorf("keep %v did not ask the daemon: %+v", line, b)
		}
		b.ThroughHost = false
		if s.flag == "--json" {
			form.add(strings.Join(line, " "), a.Out)
		}
		valid := json.Valid([]byte(a.Out)) // before a word behind an escape counts as random
		for _, o := range []*outcome{&a, &b} {
			o.Out, o.Talk = random.ReplaceAllString(o.Out, "RANDOM"), random.ReplaceAllString(o.Talk, "RANDOM")
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("keep %v (-file +daemon):\n%s", line, diff)
		}
		if s.flag == "--json" && a.Out != "" && !valid {
			t.Errorf("keep %v prints no JSON: %.300s", line, a.Out)
		}
	}
	form.judge(t)
	for _, cmd := range allCommands(newApp(nil, nil).root()) {
		if _, known := aside[cmd]; !known && !tried[cmd] {
			t.Errorf("keep %s is not tried both ways, and is not among those that need no daemon", cmd)
		}
	}
	for _, p := range []*place{without, with} {
		p.must(0, "doctor")
	}
}

// pathOf returns the words of a command after keep.
func pathOf(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "keep ") }

// allCommands returns every command that runs.
func allCommands(cmd *cobra.Command) (all []string) {
	for _, c := range cmd.Commands() {
		if c.Runnable() && c.Name() != "help" {
			all = append(all, pathOf(c))
		}
		all = append(all, allCommands(c)...)
	}
	return all
}

// The documentation names what goes around a daemon.
func TestAsideIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	known := allCommands(newApp(nil, nil).root())
	for cmd := range aside {
		if !slices.Contains(known, cmd) {
			t.Errorf("there is no keep %s", cmd)
		}
		if !strings.Contains(string(text), "`"+cmd+"`") && !strings.HasPrefix(aside[cmd], "prints") {
			t.Errorf("docs/api.md does not say that `%s` goes around the daemon", cmd)
		}
	}
}
