//go:build unix

package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/repeat"
)

// A keepFile is what a keep.toml says. What it says of the server is true.
type keepFile struct {
	name     string   // of the server
	was      []string // its names before
	level    keep.Level
	looks    bool // a tool of level A has a lookup, too
	identity []string
	keyLasts time.Duration
	timeout  time.Duration
	repeat   repeat.Policy
	approve  string
	denied   string        // an agent that may not call the tool
	setLasts time.Duration // key_lasts of the tool that sets
	budget   string        // the name of that of all calls; empty: there is none
	limit    int
	per      time.Duration
}

func (f keepFile) String() string {
	return fmt.Sprintf("%s was %v, level %s, looks %t, identity %v, key_lasts %s, timeout %s, repeat %s, approve %q, denied %q, budget %s of %d in %s",
		f.name, f.was, f.level, f.looks, f.identity, f.keyLasts, f.timeout, f.repeat, f.approve, f.denied, f.budget, f.limit, f.per)
}

// worldPolicy has doubts end while the world lasts.
func worldPolicy() *policy.Policy {
	p := policy.Default()
	p.Reconcile.First, p.Reconcile.Max, p.Reconcile.Inline = time.Second, 20*time.Second, 3*time.Second
	p.Reconcile.Attempts, p.Breaker.Failures = 12, 0
	return &p
}

// worldRejoin is for how long an answer that was not delivered is given again.
const worldRejoin = 24 * time.Hour

// config returns what a gateway makes of the file.
func (f keepFile) config(w *world, p *process) gateway.Config {
	pairing := mcp.Pairing{Tool: "create", Identity: f.identity, Timeout: f.timeout, SettleAfter: longestLag + time.Second, Approve: f.approve}
	look := &mcp.Lookup{Tool: "list", Found: "$.notes", Complete: true}
	switch f.level {
	case keep.LevelKey:
		pairing.TokenParam, pairing.Deduplicates, pairing.KeyLasts = "key", true, f.keyLasts
		if f.looks {
			pairing.Lookup = look
		}
	case keep.LevelWitness:
		pairing.TokenParam, pairing.TokenAppend, pairing.Lookup = "body", " <!-- keep:{token} -->", look
	}
	cfg := gateway.Config{
		Servers: []mcp.ServerConfig{{Name: f.name, URL: "http://" + w.host() + "/mcp"}},
		Was:     map[string]connector.Names{f.name: f.was},
		Rules: map[keep.ToolName]gateway.Rule{
			keep.ToolName(f.name + ".list"):   {Read: true},
			keep.ToolName(f.name + ".create"): {Pairing: pairing},
		},
		Repeat: repeat.Rules{Repeat: f.repeat, Window: time.Hour, Rejoin: worldRejoin},
		Policy: worldPolicy(), Logger: slog.New(slog.NewTextHandler(worldLog{p}, &slog.HandlerOptions{ReplaceAttr: withoutTime})), Trace: p.at, Clock: w.now,
	}
	f.moreRules(w, cfg.Rules)
	cfg.Budgets = f.rules()
	if f.denied != "" {
		cfg.Grants = map[string][]string{f.denied: {f.name + ".list"}}
	}
	return cfg
}

// A worldLog writes the log of a gateway into the trace of TestWorld. It is none of what a seed decides: what a gateway says while it ends may be cut off.
type worldLog struct{ p *process }

func (l worldLog) Write(line []byte) (int, error) {
	if *oneWorld != 0 {
		l.p.w.notes("gateway %d: %s", l.p.n, strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// lanes returns the lanes of a call at a gateway of the file, today's first.
func (f keepFile) lanes(m *meant) (lanes []keep.Lane) {
	text := m.identity(f)
	for _, name := range append([]string{f.name}, f.was...) {
		id := repeat.Identity{Agent: m.agent, Tool: keep.ToolName(name + "." + m.tool), Identity: text, Intent: m.intent}
		lanes = append(lanes, keep.KeyLane(engine.DirectHandler, id.Hash()))
	}
	return lanes
}

// first begins the gateways, and returns their files.
func (w *world) first() []keepFile {
	r := w.rng
	f := keepFile{name: "notes", level: pick(r, keep.LevelKey, keep.LevelWitness, keep.LevelNone), looks: chance(r, 0.5), keyLasts: pick(r, 2*time.Minute, time.Hour),
		timeout: pick(r, 15*time.Second, 30*time.Second), repeat: repeat.Allow, setLasts: time.Hour}
	w.held.first(&f)
	files := []keepFile{f}
	if chance(r, 0.6) {
		files = append(files, f)
	}
	w.faults = pick(r, 0, 0.02, 0.08)
	w.notes("%d gateways: %s; commits fail %v", len(files), f, w.faults)
	for i := range files {
		w.start(files, i)
	}
	return files
}

// start begins the gateway of a file; nothing if it cannot begin.
func (w *world) start(files []keepFile, i int) {
	w.clock.set(w)
	time.Sleep(span(w.rng, 100*time.Millisecond)) // what two of them do every second comes at different times
	w.mu.Lock()
	w.started++
	p := &process{w: w, n: w.started, file: files[i], began: time.Now(), ended: make(chan struct{}), conns: make(map[io.Closer]struct{}), slot: i, lucky: rand.New(rand.NewPCG(w.seed, 100+uint64(w.started)))}
	w.mu.Unlock()
	if w.rough(1) > 0 && chance(w.rng, 0.5) {
		p.killAt = pick(w.rng, engine.BeforeCall, engine.Recorded, engine.Answered, engine.AfterCommit, gateway.BeforePin, gateway.AfterPin)
		p.after = w.rng.IntN(4)
	}
	cfg := p.file.config(w, p)
	cfg.Alone = len(files) == 1
	g, err := gateway.New(context.WithValue(context.Background(), processKey{}, p), worldStore{w.store, p}, cfg)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, p.file)
	if err != nil {
		w.note("gateway %d does not begin: %v", p.n, err)
		return
	}
	p.gateway, p.close = g, g.Close
	p.opens()
	w.gateways = append(w.gateways, p)
	w.note("gateway %d begins: %s", p.n, p.file)
	close(w.begins)
	w.begins = make(chan struct{})
}

// renew ends what is left of the gateway of a file, if it is asked to, and begins it again if it has ended.
func (w *world) renew(files []keepFile, i int, kill bool) {
	for _, p := range w.gatewaysNow() {
		if p.slot == i {
			p.end(kill)
		}
	}
	time.Sleep(span(w.rng, pick(w.rng, time.Second, 10*time.Second)))
	w.start(files, i)
}

// lives reports whether the gateway of a file lives.
func (w *world) lives(i int) bool {
	return slices.ContainsFunc(w.gatewaysNow(), func(p *process) bool { return p.slot == i })
}

// edit changes a file.
func (w *world) edit(f *keepFile) (what string) {
	r := w.rng
	switch r.IntN(9) {
	case 0:
		f.identity = pick(r, nil, []string{"title"}, []string{"body", "title"})
		return "identity"
	case 1:
		f.level, f.looks = pick(r, keep.LevelKey, keep.LevelWitness, keep.LevelNone), chance(r, 0.5)
		return "level"
	case 2, 3:
		was := append([]string{f.name}, f.was...)
		f.name = pick(r, "notes", "pad", "memo")
		slices.Sort(was)
		f.was = slices.DeleteFunc(slices.Compact(was), func(n string) bool { return n == f.name })
		return "name, with was"
	case 4:
		if chance(r, 0.5) {
			f.name, f.was = pick(r, "notes", "pad", "memo"), nil
			return "name, without was"
		}
		f.was = slices.DeleteFunc([]string{"memo", "notes", "pad"}, func(n string) bool { return n == f.name })
		return "was"
	case 5:
		f.keyLasts, f.timeout = pick(r, 2*time.Minute, time.Hour), pick(r, 15*time.Second, 30*time.Second)
		return "key_lasts and timeout"
	case 6:
		f.repeat = pick(r, repeat.Policies()...)
		return "rule"
	case 7:
		f.approve = pick(r, "", "always")
		return "approve"
	}
	f.denied = pick(r, "", "", "ann", "bob")
	return "agents"
}

// chaos has things go wrong for some minutes, and then makes all well.
func (w *world) chaos(files []keepFile) {
	r := w.rng
	ends := time.Now().Add(time.Minute + span(r, 3*time.Minute))
	for time.Now().Before(ends) {
		time.Sleep(span(r, 20*time.Second))
		i := r.IntN(len(files))
		switch r.IntN(8) {
		case 0, 1:
			w.sees("gateway killed")
			w.renew(files, i, true)
		case 2, 3, 4:
			what := w.edit(&files[i])
			w.tools.edit(&files[i])
			w.held.edit(&files[i])
			w.sees("keep.toml edited: " + what)
			if len(files) > 1 && chance(r, 0.5) {
				files[1-i] = files[i]
				w.renew(files, 1-i, chance(r, 0.3))
			}
			w.renew(files, i, chance(r, 0.3))
		case 5:
			w.sees("tool changed")
			w.mu.Lock()
			w.variant, w.changed = pick(r, 0, 1, 2, 3, 4), time.Now()
			w.note("server: lists variant %d", w.variant)
			w.mu.Unlock()
		case 6:
			if chance(r, 0.2) {
				w.away(files, pick(r, 10*time.Minute, 70*time.Minute, 3*time.Hour, 26*time.Hour))
			}
		}
		for i := range files {
			if !w.lives(i) {
				w.start(files, i)
			}
		}
	}
	w.settles(files)
}

func (w *world) sees(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("%s", what)
	w.saw(what)
}

// away has all gateways be gone for a time.
func (w *world) away(files []keepFile, d time.Duration) {
	w.sees("away for " + d.String())
	for _, p := range w.gatewaysNow() {
		p.end(true)
	}
	time.Sleep(d)
	for i := range files {
		w.start(files, i)
	}
}

// settles has nothing go wrong any more.
func (w *world) settles(files []keepFile) {
	w.mu.Lock()
	w.faults, w.variant, w.changed = 0, 6, time.Now()
	close(w.calm)
	w.note("calm")
	w.mu.Unlock()
	files[0].denied = ""
	for i := range files {
		files[i] = files[0]
	}
	for i := range files {
		w.renew(files, i, false)
	}
	if len(w.gatewaysNow()) != len(files) {
		w.t.Fatalf("%d gateways live at the end: %s", len(w.gatewaysNow()), strings.Join(w.problems, "\n"))
	}
}
