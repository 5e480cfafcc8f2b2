package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/law/pin"
)

// What a person is shown of the tools of servers, and agrees to.

// A Pins is where pins are kept.
type Pins interface {
	Workflow(ctx context.Context, name keep.WorkflowName) (keep.Workflow, error)
	KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error)
	KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) ([]keep.SetKV, error)
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)
	Commit(ctx context.Context, c keep.Commit) error
}

// A ToolPin says how a tool stands.
type ToolPin struct {
	Tool    keep.ToolName
	State   pin.State    // New: nobody agreed to it; Absent: its server does not list it
	Agreed  *pin.Pin     // nil: nobody agreed to it
	Listed  *pin.Pin     // what its server lists otherwise; nil: nothing
	Changes []pin.Change // from one to the other

	// What the server says of it, with hidden characters marked: nothing of it is believed.
	Description string
	Annotations json.RawMessage // nil: none
}

// Name is how agents call the tool.
func (t ToolPin) Name() string {
	return shownAs(t.Tool)
}

// A Lister lists the tools of servers for a person.
type Lister struct {
	Pins    Pins // nil: nothing is pinned yet
	Servers []mcp.ServerConfig
	Now     func() time.Time
	Logger  *slog.Logger // nil: slog.Default

	// Silent is called for a server that does not answer, one at a time.
	Silent func(server string, err error)
}

// Tools starts the servers, calls no tool, and returns how their tools stand: by server, and by name. Those of
// a server that does not answer are as they were listed last.
func (l Lister) Tools(ctx context.Context) ([]ToolPin, error) {
	type list struct {
		tools []toolEntry
		err   error
	}
	log := cmp.Or(l.Logger, slog.Default())
	lists := make([]list, len(l.Servers))
	servers := make([]*mcp.Server, len(l.Servers))
	for i, cfg := range l.Servers {
		cfg.Logger = log
		servers[i] = mcp.NewServer(cfg)
		defer servers[i].Close()
	}
	each(servers, func(i int, s *mcp.Server) {
		ctx, cancel := context.WithTimeout(ctx, listTime)
		defer cancel()
		infos, err := s.Tools(ctx)
		lists[i] = list{usable(log, s.Name(), infos), err}
	})
	var out []ToolPin
	for i, of := range lists {
		server := l.Servers[i].Name
		if of.err != nil {
			l.Silent(server, of.err)
		}
		some, err := l.server(ctx, server, of.tools, of.err == nil)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// server returns how the tools of a server stand. Known says that tools are what it lists now.
func (l Lister) server(ctx context.Context, server string, tools []toolEntry, known bool) ([]ToolPin, error) {
	var p pins
	if l.Pins != nil {
		var err error
		if p, err = readPins(ctx, l.Pins, server); err != nil {
			return nil, err
		}
	}
	names := make(map[string]json.RawMessage)
	for name := range p.agreed {
		names[name] = nil
	}
	for name := range p.listed {
		if !known {
			names[name] = nil
		}
	}
	for _, t := range tools {
		names[t.name] = t.raw
	}
	var out []ToolPin
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := ToolPin{Tool: keep.ToolName(server + "." + name), Agreed: p.agreed[name], Listed: p.listed[name]}
		for kind, of := range map[string]*pin.Pin{pin.Agreed: t.Agreed, pin.Listed: t.Listed} {
			if err := l.entry(ctx, kind, server, name, of); err != nil {
				return nil, err
			}
		}
		out = append(out, t.stand(names[name], known, l.Now()))
	}
	return out, nil
}

// entry adds to a pin what was hashed, if it is kept.
func (l Lister) entry(ctx context.Context, kind, server, name string, of *pin.Pin) error {
	if of == nil {
		return nil
	}
	at, key := pin.EntryOf(kind, server, name)
	entry, err := l.Pins.KV(ctx, keep.DirectWorkflow, at, key)
	if err == nil && entry != nil && pin.Of(entry, of.At).Hash == of.Hash {
		of.Entry = bytes.Clone(entry)
	}
	return err
}

// stand returns how a tool stands that is listed as raw now; nil: not, if that is known.
func (t ToolPin) stand(raw json.RawMessage, known bool, now time.Time) ToolPin {
	if known {
		since := t.Listed
		t.Listed = nil
		if raw != nil {
			is := pin.Of(raw, now)
			if since != nil && since.Hash == is.Hash {
				is.At = since.At
			}
			t.Listed = &is
		}
	} else if t.Listed == nil {
		t.Listed = t.Agreed
	}
	t.State = pin.Decide(t.Agreed, t.Listed, false)
	entry := raw
	switch {
	case entry != nil:
	case t.Listed != nil:
		entry = t.Listed.Entry
	default:
		entry = t.Agreed.Entry
	}
	if !t.State.Stopped() {
		t.Listed = nil
	} else {
		t.Changes = pin.Changes(t.Agreed, t.Listed)
	}
	var says struct {
		Description string          `json:"description"`
		Annotations json.RawMessage `json:"annotations"`
	}
	if len(entry) > 0 {
		_ = json.Unmarshal(shown(entry, t.Name()), &says)
	}
	t.Description, t.Annotations = pin.Mark(says.Description), says.Annotations
	return t
}

// agreed is a tool as it stands when somebody agreed to what is listed.
func (t ToolPin) agreed(p pin.Pin) ToolPin {
	t.State, t.Agreed, t.Listed, t.Changes = pin.Pinned, &p, nil, nil
	return t
}

// PinTools agrees to the tools of a list that nobody agreed to yet, as they are in it. The list is then as they stand. If somebody agreed to one
// of them since the list was read, a gateway at first sight of it too, the error is keep.ErrStale, and nothing is agreed to.
func PinTools(ctx context.Context, db Pins, list []ToolPin, by string, now time.Time) error {
	var changes []keep.Change
	agreed := make(map[string]int)
	for _, t := range list {
		if t.Agreed != nil {
			agreed[t.Tool.Connection()]++
		}
	}
	for i, t := range list {
		server := t.Tool.Connection()
		if t.State != pin.New {
			continue
		}
		if agreed[server]++; agreed[server] > maxAgreed {
			return tooManyAgreed(server)
		}
		is := *t.Listed
		is.At, is.By = now, by
		name := strings.TrimPrefix(string(t.Tool), server+".")
		changes = append(changes, keep.IfKV{Producer: pin.Pins(pin.Agreed, server), Key: name})
		changes = append(changes, pin.Put(pin.Agreed, server, name, is)...)
		list[i] = t.agreed(is)
	}
	if len(changes) == 0 {
		return nil
	}
	if err := deploy(ctx, db, now); err != nil {
		return err
	}
	err := db.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: now, Changes: changes})
	if errors.Is(err, keep.ErrStale) {
		return fmt.Errorf("%w: somebody agreed to one of the new tools since they were listed; nothing is agreed to; look at the list again", err)
	}
	return err
}

func tooManyAgreed(server string) error {
	return fmt.Errorf("%s has %d tools that were agreed to, and may not have more", server, maxAgreed)
}

// AcceptTool agrees to a tool as its server lists it now, if that is what was shown, and returns how it stands then.
// Shown is the hash of that, or its beginning. It answers the question about it. A running gateway sees it at the next call.
func AcceptTool(ctx context.Context, db Pins, t ToolPin, shown, by string, now time.Time) (ToolPin, error) {
	server := t.Tool.Connection()
	name := strings.TrimPrefix(string(t.Tool), server+".")
	p, err := readPins(ctx, db, server)
	if err != nil {
		return t, err
	}
	if t.Agreed == nil && len(p.agreed) >= maxAgreed {
		return t, tooManyAgreed(server)
	}
	accepted, err := pin.Accept(t.Listed, shown, by, now)
	if err != nil {
		return t, fmt.Errorf("%s: %w", t.Tool, err)
	}
	changes := pin.Put(pin.Agreed, server, name, accepted)
	open, _, err := question(ctx, db, t.Tool, t.Listed.Hash)
	if err != nil {
		return t, err
	}
	if open != "" {
		changes = append(changes, keep.CloseEscalation{ID: open, Decision: &keep.Decision{Action: keep.Approve, By: by, From: "cli", At: now}})
	}
	return t.agreed(accepted), db.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: now, Changes: changes})
}
