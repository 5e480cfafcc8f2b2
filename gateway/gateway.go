// Package gateway stands between agents and servers of the Model Context Protocol, and makes
// each call that may change something a mutation of the ledger (docs/design/0012-gateway.md).
//
//   - recorded-before-sent: the record of a call is on disk before the call is passed on.
//   - A call that an agent issues again because it got no answer is the same call: it joins the
//     first, or gets its answer. What an equal call means after the answer was delivered is the
//     owner's policy; package law/repeat decides.
//   - An unknown outcome is asked for by the pairing of its tool, and without one by a person.
//     The agent gets one sentence, and keep_outcome to ask with.
//   - What an agent cancels, or a client that goes away, does not stop a call that was sent.
//
// Each call is a run of the workflow keep.DirectWorkflow with one mutation; questions,
// approvals, budgets and grants are those of scripts.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/store"
)

// A Store keeps what a gateway did. It is wide because the engine works on all of it.
type Store interface {
	engine.Store
	store.Identity
	store.Links
}

// A Rule is what an owner says of a tool.
type Rule struct {
	Read bool // it changes nothing: its calls pass straight on
	mcp.Pairing
	Repeat repeat.Policy // empty: that of the gateway
}

// Config configures a Gateway.
type Config struct {
	Servers []mcp.ServerConfig
	Was     map[string]connector.Names // by server, all names that it had before: a call that was made under one is known
	Rules   map[keep.ToolName]Rule     // of tools; of one without a rule nothing is known
	Grants  map[string][]string        // by agent, the tools that it may call: up.create_issue, up.list_*; an agent without one may call all
	Repeat  repeat.Rules               // zero: repeat.DefaultRules
	Policy  *policy.Policy             // nil: policy.Default
	Budgets []budget.Rule

	// Alone says that no other process makes calls over the store, as with a file that this
	// process has locked: what is in flight at the start was left by a crash.
	Alone bool

	MessageLimit int // of a frame; zero: mcp.DefaultMessageLimit
	ResultLimit  int // of what is kept of a result; zero: mcp.DefaultResultLimit

	Version string       // of Keep
	Logger  *slog.Logger // nil: slog.Default

	// Clock is the clock of this machine; see engine.Config. If nil, time.Now.
	Clock func() time.Time

	// Trace is called between durable steps; tests die there. Nil: nothing is called.
	Trace func(w keep.WorkflowName, p engine.Point)
}

// A Gateway serves agents. Make one with New, and end it with Close.
type Gateway struct {
	cfg     Config
	name    string // that no other gateway has
	log     *slog.Logger
	store   Store
	engine  *engine.Engine
	tools   *engine.Tools
	caller  *engine.Caller
	servers []*mcp.Server
	ctx     context.Context // ends with the gateway
	stop    context.CancelCauseFunc
	loops   sync.WaitGroup
	kick    chan struct{}            // holds a token when a lookup may be due sooner
	listing map[string]chan struct{} // by server: holds a token while it is listed

	watching sync.Mutex // held while servers are told what clients watch

	mu        sync.Mutex            // protects all below
	flights   map[string]*flight    // calls under way, by today's name of the call
	delivered map[string]delivery   // not stored yet
	lists     map[string]listing    // tools of servers, as they were listed last
	changes   map[string]int        // how often servers said that their tools changed, or may have unsaid
	sessions  map[*session]struct{} // to whom notifications go
	progress  map[string]progress   // by the token that a server was given
	tokens    int
	closed    bool // no call begins any more
}

// errEnded ends what is out when a gateway is closed.
var errEnded = errors.New("the gateway is stopping")

// New opens a gateway over an open store, and takes over what an earlier one left. It starts no
// server.
func New(ctx context.Context, db Store, cfg Config) (*Gateway, error) {
	if cfg.Repeat == (repeat.Rules{}) {
		cfg.Repeat = repeat.DefaultRules()
	}
	cfg.MessageLimit = cmp.Or(cfg.MessageLimit, mcp.DefaultMessageLimit)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	g := &Gateway{
		cfg: cfg, name: rand.Text()[:8], log: cfg.Logger, store: db, kick: make(chan struct{}, 1),
		flights: make(map[string]*flight), delivered: make(map[string]delivery), lists: make(map[string]listing), changes: make(map[string]int),
		sessions: make(map[*session]struct{}), progress: make(map[string]progress), listing: make(map[string]chan struct{}),
	}
	for _, s := range cfg.Servers {
		s.MessageLimit, s.Logger = cmp.Or(s.MessageLimit, cfg.MessageLimit), cfg.Logger
		s.Notified = func(m mcp.Message) { g.notified(s.Name, m) }
		s.Allowed = func(ctx context.Context, tool string, args json.RawMessage) error {
			return g.allowed(ctx, s.Name, tool, args)
		}
		s.Asked = func(ctx context.Context, m mcp.Message) mcp.Message { return g.asked(ctx, s.Name, m) }
		g.servers = append(g.servers, mcp.NewServer(s))
		g.listing[s.Name] = make(chan struct{}, 1)
	}
	var err error
	if g.tools, err = engine.NewTools(g.connections()); err != nil {
		return nil, err
	}
	salt, err := db.StoreID(ctx)
	if err != nil {
		return nil, err
	}
	secretKey, err := db.LinkKey(ctx)
	if err != nil {
		return nil, err
	}
	rules := policy.Default()
	if cfg.Policy != nil {
		rules = *cfg.Policy
	}
	rules.Outage.After = 0 // the agent repeats calls, not the gateway: none is held back since others were lost
	g.engine, err = engine.New(db, nil, g.tools, engine.Config{Policy: &rules, Budgets: cfg.Budgets, Clock: cfg.Clock, Salt: salt, SecretKey: secretKey,
		Only: []keep.WorkflowName{}, Logger: cfg.Logger, Trace: cfg.Trace})
	if err != nil {
		return nil, err
	}
	if err := deploy(ctx, db, g.engine.Now()); err != nil {
		return nil, err
	}
	g.ctx, g.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	g.caller = g.engine.Caller(g.ctx)
	g.caller.Ready = g.ready
	if err := g.caller.Recover(ctx, cfg.Alone); err != nil {
		return nil, err
	}
	g.loops.Go(g.ask)
	return g, nil
}

// Left reports whether there are calls that a gateway has not ended.
func Left(ctx context.Context, db Store) (bool, error) {
	open, err := db.OpenRuns(ctx, keep.DirectWorkflow)
	return len(open) > 0, err
}

// deploy makes the workflow to which the calls belong, if there is none.
func deploy(ctx context.Context, db Pins, now time.Time) error {
	_, err := db.Workflow(ctx, keep.DirectWorkflow)
	if _, missing := errors.AsType[*keep.NotFoundError](err); !missing {
		return err
	}
	err = db.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: now, Changes: []keep.Change{
		keep.Deploy{Deployment: engine.DirectDeployment(now)},
	}})
	if errors.Is(err, keep.ErrStale) {
		return nil // another process did
	}
	return err
}

// Close gives up what is out, which stays in flight and is asked about at the next start, and
// ends the servers.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop(errEnded)
	g.loops.Wait()
	var errs []error
	for _, s := range g.servers {
		errs = append(errs, s.Close())
	}
	errs = append(errs, g.flush(context.Background()))
	return errors.Join(errs...)
}

// connections returns the tools of the servers as the engine has them: those with a rule, and
// those that were listed.
func (g *Gateway) connections() []connector.Connection {
	var conns []connector.Connection
	for _, s := range g.servers {
		c := connector.Connection{Name: s.Name(), Connector: mcp.Kind, Pack: s.Pack(), Sender: s.Sender(), Was: g.cfg.Was[s.Name()]}
		seen := make(map[string]bool)
		add := func(name string) {
			rule := g.rule(keep.ToolName(s.Name() + "." + name))
			if seen[name] || rule.Read {
				return
			}
			seen[name] = true
			rule.Tool = name
			c.Tools = append(c.Tools, s.Tool(rule.Pairing, g.cfg.ResultLimit))
		}
		for name := range g.cfg.Rules {
			if name.Connection() == s.Name() {
				add(string(name[len(s.Name())+1:]))
			}
		}
		for _, t := range g.lists[s.Name()].tools {
			add(t.name)
		}
		conns = append(conns, c)
	}
	return conns
}

// rule returns what the owner says of a tool.
func (g *Gateway) rule(name keep.ToolName) Rule { return g.cfg.Rules[name] }

// today returns the name that a tool has now, of which a record has perhaps another.
func (g *Gateway) today(name keep.ToolName) keep.ToolName {
	for _, s := range g.servers {
		if slices.Contains(g.cfg.Was[s.Name()], name.Connection()) {
			return keep.ToolName(s.Name() + "." + ownName(name))
		}
	}
	return name
}

// server returns a server by its name; nil: there is none.
func (g *Gateway) server(name string) *mcp.Server {
	i := slices.IndexFunc(g.servers, func(s *mcp.Server) bool { return s.Name() == name })
	if i < 0 {
		return nil
	}
	return g.servers[i]
}

// How often the gateway looks what people decided, and stores what was delivered.
const (
	askEvery   = time.Second
	flushEvery = 5 * time.Second
)

// ask asks about calls in doubt when that is due, and stores what was delivered.
func (g *Gateway) ask() {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	flushed := time.Now()
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
		case <-g.kick:
		}
		if err := errors.Join(g.caller.Recover(g.ctx, false), g.look()); err != nil && g.ctx.Err() == nil {
			g.log.Warn("ask what became of calls", "err", err)
		}
		if time.Since(flushed) >= flushEvery {
			flushed = time.Now()
			if err := g.flush(g.ctx); err != nil && g.ctx.Err() == nil {
				g.log.Warn("store what was delivered", "err", err)
			}
		}
	}
}

// look asks about calls in doubt once.
func (g *Gateway) look() error {
	_, err := g.caller.Ask(g.ctx)
	return err
}

// A delivery says that the answer of a run reached its agent.
type delivery struct {
	Run       keep.RunID `json:"run"`
	Delivered time.Time  `json:"delivered,omitzero"`
}

// Keys of the checkpoint of an identity, each with a delivery. Which run is the last is written with the first commit of
// that run, and never else. That its answer was delivered is written at any time later, and counts
// for that run alone: a write that is late, or made twice, loses at most that an answer was delivered.
const (
	lastKey      = "last" // earlier versions wrote the time of the delivery here, too
	deliveredKey = "delivered"
)

// checkpoint is where the last call of an identity is kept.
func checkpoint(id string) keep.HandlerName { return keep.HandlerName("call:" + id) }

// put returns the change that stores d under a key of an identity.
func (d delivery) put(id, key string) keep.Change {
	value, _ := json.Marshal(d)
	return keep.SetKV{Producer: checkpoint(id), Key: key, Value: value}
}

// deliveries returns the changes that store what was delivered; stored must be called when they are durable. They need no
// commit of their own: what is lost counts as not delivered, and is answered again.
func (g *Gateway) deliveries() (changes []keep.Change, stored func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := maps.Clone(g.delivered)
	for id, d := range taken {
		changes = append(changes, d.put(id, deliveredKey))
	}
	return changes, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		maps.DeleteFunc(g.delivered, func(id string, d delivery) bool { return taken[id] == d })
	}
}

// flush stores what was delivered.
func (g *Gateway) flush(ctx context.Context) error {
	changes, stored := g.deliveries()
	if len(changes) == 0 {
		return nil
	}
	err := g.store.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: g.engine.Now(), Changes: changes})
	if err == nil {
		stored()
	}
	return err
}

// lastRun returns the last run of an identity, and when its answer was delivered; without a run: none is kept. Seen is what
// is stored of which it is.
func (g *Gateway) lastRun(ctx context.Context, id string) (last delivery, seen json.RawMessage, err error) {
	g.mu.Lock()
	noted := g.delivered[id] // before the store is read: once that has it, it may be forgotten here
	g.mu.Unlock()
	rows, err := g.store.KVs(ctx, keep.DirectWorkflow, checkpoint(id))
	var stored delivery
	for _, row := range rows {
		switch row.Key {
		case lastKey:
			seen = row.Value
			err = errors.Join(err, json.Unmarshal(row.Value, &last))
		case deliveredKey:
			err = errors.Join(err, json.Unmarshal(row.Value, &stored))
		}
	}
	for _, d := range []delivery{stored, noted} {
		if d.Run == last.Run && d.Run != "" {
			last = d
		}
	}
	return last, seen, err
}

// last returns the call of a delivery with its run and its record; nil: there is none, or it is not kept any more.
func (g *Gateway) last(ctx context.Context, d delivery) (*repeat.Last, error) {
	if d.Run == "" {
		return nil, nil
	}
	last := &repeat.Last{Delivered: d.Delivered}
	var err error
	last.Run, err = g.store.Run(ctx, d.Run)
	if _, swept := errors.AsType[*keep.NotFoundError](err); swept {
		return nil, nil
	}
	if err == nil {
		last.Mutation, err = g.caller.Known(ctx, last.Run)
	}
	return last, err
}

// Settle waits until no call is under way, or until ctx ends.
func (g *Gateway) Settle(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		g.mu.Lock()
		calls := len(g.flights)
		g.mu.Unlock()
		if calls == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
