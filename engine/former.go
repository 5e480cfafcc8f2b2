package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/store"
)

// The key of a call in an item is made of what the configuration calls it and of what it
// says is its identity. When the configuration changes while an item is unfinished, the
// key of an applied call is another one. So before a call is made for the first time, it
// is looked for among the item's records that were made under another configuration.

// namesWith returns the names of the tool, with that of a record.
func (t *tool) namesWith(record keep.ToolName) []keep.ToolName {
	if slices.Contains(t.names, record) {
		return t.names
	}
	return append(slices.Clip(t.names), record)
}

// A match is how a record fits a call that has another key.
type match int

const (
	otherCall   match = iota
	sameCall          // today's configuration would give the record the key of the call
	perhapsSame       // only a person can tell
)

// former returns the record of the item that was made for this very call under another
// configuration; zero: there is none, and the call was not made. A *keep.Failure asks a
// person, since no match is certain.
func (h *scriptHost) former(ctx context.Context, call *takenCall, key keep.MutationKey) (keep.Mutation, error) {
	s := h.item
	if err := h.readFormer(ctx); err != nil {
		return keep.Mutation{}, err
	}
	var same, perhaps []keep.Mutation
	for _, m := range s.former {
		switch h.matches(m, call, key) {
		case sameCall:
			same = append(same, m)
		case perhapsSame:
			if !s.claimed[m.Key] {
				perhaps = append(perhaps, m)
			}
		}
	}
	if len(same) > 1 {
		hash := ledger.Hash(call.payload)
		for _, m := range same {
			if m.PayloadHash == hash {
				same = []keep.Mutation{m}
				break
			}
		}
	}
	switch {
	case len(same) > 0:
		s.claim(same[0].Key)
		return same[0], nil
	case len(perhaps) == 0:
		return keep.Mutation{}, nil
	}
	m := perhaps[0]
	if h.x.e.tools.known(m.Tool) != nil || lifecycle.Unknown(m.State) {
		return m, nil // its content differs, or its outcome is not known: both are asked about
	}
	conn, tool, _ := strings.Cut(string(m.Tool), ".")
	nowConn, nowTool, _ := strings.Cut(string(call.tool.name), ".")
	var conns, tools []string
	for _, name := range call.tool.names[1:] {
		was, wasTool, _ := strings.Cut(string(name), ".")
		conns, tools = append(conns, was), append(tools, wasTool)
	}
	d := rename.Doubt{Kind: rename.Connection, Fresh: nowConn, Names: rename.List(append(conns, conn), nowConn), InGo: h.x.v.Definition.Go}
	if conn == nowConn || slices.Contains(conns, conn) {
		d.Kind, d.Fresh, d.Names = rename.Tool, string(call.tool.name), rename.List(append(tools, tool), nowTool)
	}
	f := keep.Failf(keep.ClassPrecondition, "call-unmatched",
		"item %q: %s is configured no more, and was called for %s; %s would be called with the same identity, and nothing was sent. "+
			"To say what it is, %s; then retry", s.item.ID, m.Tool, m.Target, call.tool.name, d.Fix())
	f.Tool, f.At = call.tool.name, call.at
	return keep.Mutation{}, f
}

// matches tells how a record fits a call.
func (h *scriptHost) matches(m keep.Mutation, call *takenCall, key keep.MutationKey) match {
	t := h.x.e.tools.known(m.Tool)
	switch {
	case m.Subkey != call.subkey:
		return otherCall
	case t == nil && (m.Connector != call.tool.connector || call.tool.named.IsNot(m.Tool)):
		return otherCall
	case t != nil && t.name != call.tool.name:
		return otherCall
	case t != nil && h.keyToday(t, m) == key:
		return sameCall
	case sameIdentity(m.Identity, call.payload):
		return perhapsSame
	}
	return otherCall
}

// keyToday returns the key that a record's call would have under today's configuration.
func (h *scriptHost) keyToday(t *tool, m keep.Mutation) keep.MutationKey {
	identity, _, _, err := ledger.Identify(m.Payload, t.spec.Identity)
	if err != nil {
		return ""
	}
	target, f := t.target(m.Payload, "")
	if f != nil {
		return ""
	}
	return ledger.ItemKey(ledger.ItemCall{
		Workflow: h.x.a.name, Item: h.item.item.ID, Attempt: h.item.item.Attempt,
		Tool: t.name, Target: target, Identity: identity, Subkey: m.Subkey,
	})
}

// sameIdentity reports whether params have the values of an identity.
func sameIdentity(identity, params []byte) bool {
	var names map[string]json.RawMessage
	if json.Unmarshal(identity, &names) != nil {
		return true // it can't be told apart
	}
	same, _, _, err := ledger.Identify(params, sortedKeys(names))
	was, wasErr := canonical.JSON(identity)
	return err != nil || wasErr != nil || string(same) == string(was)
}

// readFormer reads, once for each time that the item is worked on, its records that were
// made under another configuration than today's.
func (h *scriptHost) readFormer(ctx context.Context) error {
	s := h.item
	if s.read || s.fresh {
		return nil
	}
	for m, err := range store.All(ctx, h.x.e.store.Mutations, keep.MutationFilter{Workflow: h.x.a.name, Item: s.item.ID}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return &storeError{err}
		}
		t := h.x.e.tools.known(m.Tool)
		switch {
		case m.Attempt != s.item.Attempt, !ledger.MayHaveHappened(m.State) && !m.Doubted:
			continue // it did nothing
		case t != nil && t.name == m.Tool && t.pinHash == m.PinHash && m.Attempts == 1:
			continue // its key is today's; one that was sent again has that of the first time
		}
		whole, err := h.x.e.store.Mutation(ctx, m.Key)
		if err != nil {
			return &storeError{err}
		}
		if t != nil && h.keyToday(t, whole) == whole.Key {
			continue
		}
		s.former = append(s.former, whole)
	}
	s.read = true
	return nil
}
