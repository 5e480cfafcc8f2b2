package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/pin"
)

const (
	listTime  = 30 * time.Second // for the list of a server
	maxName   = 128              // of a tool, in bytes
	maxAgreed = 2 * mcp.MaxTools // of a server
)

// Points of the durable step of pinning.
const (
	BeforePin engine.Point = "before-pin"
	AfterPin  engine.Point = "after-pin"
)

// A toolEntry is a tool as a server lists it.
type toolEntry struct {
	name  string
	raw   json.RawMessage
	hash  string
	state pin.State
	asked bool            // a person is asked about what its server changed
	was   json.RawMessage // the entry that was agreed to, of one that its server changed; nil: it is not kept
}

// A listing is the list of a server, and when it holds: until the server is connected to again, or
// says that its tools changed.
type listing struct {
	tools      []toolEntry
	connection int
	changes    int
}

// stops reports whether a tool of the list is stopped.
func (l listing) stops() bool {
	return slices.ContainsFunc(l.tools, func(t toolEntry) bool { return t.state.Stopped() })
}

// offered returns the tools of a server for the list of an agent: of one that does not answer, those
// that it had.
func (g *Gateway) offered(ctx context.Context, s *mcp.Server) []toolEntry {
	tools, err := g.list(ctx, s)
	if err == nil {
		return tools
	}
	g.log.Warn("the tools of an MCP server are not known", "server", s.Name(), "err", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lists[s.Name()].tools
}

// stopped says why a tool may not be called as its server lists it now, or not with these arguments; empty: it may. What a server
// says to arguments that do not fit its schema would be no proof that it did nothing.
func stopped(t toolEntry, rule Rule, args json.RawMessage) string {
	switch {
	case t.state == pin.New:
		return "its server listed too many tools over time; a person must look at it first (keep gateway tools)"
	case t.state.Stopped():
		return "its server changed it since it was agreed to; a person must look at it first (keep inbox, or keep gateway tools)"
	}
	if why := misfit(mcp.ToolInfo{Name: t.name, Raw: t.raw}, rule.Pairing, args); why != "" {
		return "its arguments do not fit: " + why
	}
	return ""
}

// allowed says why a tool may not be called as its server lists it now, or not with these arguments, for whatever: a call of an agent, one
// that is made again under its key, and one that looks for what became of another. These two are rare, and what they show is believed:
// the tools are listed anew for them, since a server may become another program without a word.
func (g *Gateway) allowed(ctx context.Context, server, tool string, args json.RawMessage) error {
	if mcp.Asks(ctx) {
		g.mu.Lock()
		g.changes[server]++
		g.mu.Unlock()
	}
	tools, err := g.list(ctx, g.server(server))
	if err != nil {
		return fmt.Errorf("the tools of the MCP server %s are not known: %w", server, err)
	}
	name := keep.ToolName(server + "." + tool)
	i := slices.IndexFunc(tools, func(t toolEntry) bool { return t.name == tool })
	if i < 0 {
		return fmt.Errorf("the MCP server %s lists no tool %s", server, pin.Mark(tool))
	}
	t, rule := tools[i], g.rule(name)
	if rule.Level() != keep.LevelKey {
		args = nil // they were compared when the call came, or are a lookup's
	}
	why, code := stopped(t, rule, args), keep.CodeToolStopped
	if t.state == pin.Changed && t.asked {
		code = keep.CodeToolChanged
	}
	if why != "" {
		return keep.Failf(keep.ClassPermission, code, "%s is not called: %s", pin.Mark(string(name)), why)
	}
	return nil
}

// ready reports whether a person has answered about the tools by which a call in doubt is asked about, as far as that is known
// without its server.
func (g *Gateway) ready(m keep.Mutation) bool {
	tool := g.today(m.Tool)
	server := tool.Connection()
	g.mu.Lock()
	l, known := g.lists[server]
	g.mu.Unlock()
	if !known {
		return false // the next lookup lists them
	}
	agreed, err := readIndex(g.ctx, g.store, pin.Agreed, server)
	if err != nil {
		return false
	}
	names := []string{ownName(tool)}
	if l := g.rule(tool).Lookup; l != nil {
		names = append(names, l.Tool)
	}
	return !slices.ContainsFunc(l.tools, func(t toolEntry) bool {
		is := pin.Of(t.raw, time.Time{})
		if !slices.Contains(names, t.name) || pin.Decide(agreed[t.name], &is, false) != pin.Changed {
			return false
		}
		open, next, err := question(g.ctx, g.store, keep.ToolName(server+"."+t.name), is.Hash)
		return err != nil || open != "" || next != ""
	})
}

// list returns the tools of a server as it lists them now, each compared with what was agreed to.
func (g *Gateway) list(ctx context.Context, s *mcp.Server) ([]toolEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	connection, err := s.Connection(ctx)
	if err != nil {
		return nil, err
	}
	if l, holds := g.holds(s.Name(), connection); holds && !l.stops() {
		return l.tools, nil
	}
	select {
	case g.listing[s.Name()] <- struct{}{}:
		defer func() { <-g.listing[s.Name()] }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l, holds := g.holds(s.Name(), connection)
	if !holds {
		g.mu.Lock()
		l = listing{connection: connection, changes: g.changes[s.Name()]}
		g.mu.Unlock()
		infos, err := g.infosOf(ctx, s)
		if err != nil {
			return nil, err
		}
		l.tools = usable(g.log, s.Name(), infos)
	}
	if !holds || l.stops() { // a person may have looked meanwhile
		if l.tools, err = g.compare(ctx, s.Name(), l.tools); err != nil {
			return nil, g.inLedger(err)
		}
	}
	return l.tools, g.use(s.Name(), l)
}

// A ledgerError is one of the store as agents are shown it: a database that is away names its user and its host.
type ledgerError struct{ of error }

func (ledgerError) Error() string { return "the ledger cannot be written or read now" }

func (e ledgerError) Unwrap() error { return e.of }

// inLedger logs an error of the store, and returns it for agents.
func (g *Gateway) inLedger(err error) error {
	g.log.Error("the ledger could not be written or read", "err", err)
	return ledgerError{err}
}

// infosOf lists the tools of a server: of more than there may be, all that were agreed to.
func (g *Gateway) infosOf(ctx context.Context, s *mcp.Server) ([]mcp.ToolInfo, error) {
	agreed, err := readIndex(ctx, g.store, pin.Agreed, s.Name())
	if err != nil {
		return nil, g.inLedger(err)
	}
	infos, left, err := s.SomeTools(ctx, func(tool string) bool { return agreed[tool] != nil })
	if err == nil && left > 0 && len(infos) == 0 {
		return nil, mcp.ErrTooManyTools
	}
	if left > 0 {
		g.log.Warn(fmt.Sprintf("an MCP server lists more than %d tools; the others, which nobody agreed to, are left out", mcp.MaxTools), "server", s.Name(), "left_out", left)
	}
	return infos, err
}

// holds returns the list of a server if it still holds.
func (g *Gateway) holds(server string, connection int) (listing, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.lists[server]
	return l, known && l.connection == connection && l.changes == g.changes[server]
}

// use makes the tools of a list those of the engine, at the same time for all who look: a call of a tool that is listed
// would be told else that there is none.
func (g *Gateway) use(server string, l listing) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, known := g.lists[server]
	g.lists[server] = l
	fresh, err := engine.NewTools(g.connections())
	if err != nil {
		if g.lists[server] = was; !known {
			delete(g.lists, server)
		}
		return fmt.Errorf("the tools of %s cannot be used: %w", server, err)
	}
	g.tools.Replace(fresh, func() {})
	return nil
}

// usable returns the tools of a list that can be named, each once.
func usable(log *slog.Logger, server string, infos []mcp.ToolInfo) []toolEntry {
	var tools []toolEntry
	seen := make(map[string]bool)
	for _, t := range infos {
		if seen[t.Name] || len(t.Name) > maxName || strings.ContainsFunc(t.Name, pin.Hidden) {
			log.Warn("a tool is left out: its name is not unique, too long, or has hidden characters", "server", server, "tool", pin.Mark(t.Name[:min(len(t.Name), maxName)]))
			continue
		}
		seen[t.Name] = true
		tools = append(tools, toolEntry{name: t.Name, raw: t.Raw, hash: pin.Of(t.Raw, time.Time{}).Hash})
	}
	return tools
}

// maxCompared is how often a list is compared while others agree to its tools (law: bounded).
const maxCompared = 10

// compare returns the tools of a list with their states. What it pins, what it stops and what it asks a
// person is on disk before any agent sees the list.
func (g *Gateway) compare(ctx context.Context, server string, tools []toolEntry) (out []toolEntry, err error) {
	for range maxCompared {
		if out, err = g.compareOnce(ctx, server, tools); !errors.Is(err, keep.ErrStale) {
			break
		}
	}
	return out, err
}

// compareOnce is compare, or keep.ErrStale if somebody else, such as another gateway, agreed to one of the tools since it looked.
func (g *Gateway) compareOnce(ctx context.Context, server string, tools []toolEntry) ([]toolEntry, error) {
	p, err := readPins(ctx, g.store, server)
	if err != nil {
		return nil, err
	}
	now := g.engine.Now()
	var changes []keep.Change
	out := slices.Clone(tools)
	room := maxAgreed - len(p.agreed)
	for i, t := range out {
		is := pin.Of(t.raw, now)
		out[i].state = pin.Decide(p.agreed[t.name], &is, room > 0)
		if out[i].state == pin.Take {
			room--
			changes = append(changes, keep.IfKV{Producer: pin.Pins(pin.Agreed, server), Key: t.name})
			changes = append(changes, pin.Put(pin.Agreed, server, t.name, is)...)
			out[i].state = pin.Pinned
		}
		if !out[i].state.Stopped() {
			continue
		}
		more, err := g.stopTool(ctx, server, &out[i], p, is)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
		delete(p.listed, t.name)
	}
	for name, was := range p.listed { // it is as it was agreed to again, or gone
		tool := keep.ToolName(server + "." + name)
		changes = append(changes, pin.Forget(pin.Listed, server, name)...)
		if q, _, err := question(ctx, g.store, tool, was.Hash); err != nil {
			return nil, err
		} else if q != "" {
			changes = append(changes, keep.CloseEscalation{ID: q})
		}
	}
	if len(changes) == 0 {
		return out, nil
	}
	g.trace(BeforePin)
	if err := g.store.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: now, Changes: changes}); err != nil {
		return nil, fmt.Errorf("store what was agreed to: %w", err)
	}
	g.trace(AfterPin)
	return out, nil
}

// stopTool returns the changes by which a tool is stopped and a person asked about it, and notes what agents see
// of it.
func (g *Gateway) stopTool(ctx context.Context, server string, t *toolEntry, p pins, is pin.Pin) ([]keep.Change, error) {
	tool := keep.ToolName(server + "." + t.name)
	agreed, was := p.agreed[t.name], p.listed[t.name]
	var changes []keep.Change
	if was == nil || was.Hash != is.Hash {
		changes = pin.Put(pin.Listed, server, t.name, is)
		g.log.Warn("a tool is stopped until a person has looked at it", "tool", tool, "why", t.state, "hash", pin.Short(is.Hash))
	}
	if agreed == nil {
		return changes, nil
	}
	at, key := pin.EntryOf(pin.Agreed, server, t.name)
	entry, err := g.store.KV(ctx, keep.DirectWorkflow, at, key)
	if err != nil {
		return nil, err
	}
	if entry != nil && pin.Of(entry, agreed.At).Hash == agreed.Hash {
		t.was, agreed.Entry = bytes.Clone(entry), bytes.Clone(entry)
	}
	if was != nil && was.Hash != is.Hash {
		open, _, err := question(ctx, g.store, tool, was.Hash)
		if err != nil {
			return nil, err
		}
		if open != "" {
			changes = append(changes, keep.CloseEscalation{ID: open})
		}
	}
	open, next, err := question(ctx, g.store, tool, is.Hash)
	t.asked = open != "" || next != ""
	if err == nil && open == "" && next != "" {
		changes = append(changes, keep.OpenEscalation{Escalation: pin.Question(next, keep.DirectWorkflow, tool, agreed, &is, is.At)})
	}
	return changes, err
}

// maxQuestions is how often a person is asked about one hash of a tool (law: bounded).
const maxQuestions = 100

// question returns the open question about a tool that is listed with that hash, or else the next one to
// ask. Both are empty if a person answered.
func question(ctx context.Context, db Pins, tool keep.ToolName, hash string) (open, next keep.EscalationID, err error) {
	for n := 1; n <= maxQuestions; n++ {
		id := pin.QuestionID(tool, hash, n)
		q, err := db.Escalation(ctx, id)
		switch {
		case isMissing(err):
			return "", id, nil
		case err != nil:
			return "", "", err
		case q.ClosedAt.IsZero():
			return id, "", nil
		case q.Decision != nil && q.Decision.Action == keep.Reject:
			return "", "", nil
		}
	}
	return "", "", nil
}

// trace calls what a test asked to be called.
func (g *Gateway) trace(p engine.Point) {
	if g.cfg.Trace != nil {
		g.cfg.Trace(keep.DirectWorkflow, p)
	}
}

// pins are those of a server.
type pins struct {
	agreed, listed map[string]*pin.Pin
}

// readPins returns the pins of a server, without their entries.
func readPins(ctx context.Context, db Pins, server string) (pins, error) {
	var p pins
	var err error
	if p.agreed, err = readIndex(ctx, db, pin.Agreed, server); err != nil {
		return pins{}, err
	}
	p.listed, err = readIndex(ctx, db, pin.Listed, server)
	return p, err
}

// readIndex returns the pins of one kind.
func readIndex(ctx context.Context, db Pins, kind, server string) (map[string]*pin.Pin, error) {
	rows, err := db.KVs(ctx, keep.DirectWorkflow, pin.Pins(kind, server))
	if err != nil {
		return nil, err
	}
	out := make(map[string]*pin.Pin, len(rows))
	for _, row := range rows {
		var p pin.Pin
		if err := json.Unmarshal(row.Value, &p); err != nil {
			return nil, fmt.Errorf("the pin of %s.%s: %w", server, row.Key, err)
		}
		out[row.Key] = &p
	}
	return out, nil
}
