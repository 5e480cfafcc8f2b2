// Package pin decides whether a tool of an MCP server is still the one that its owner agreed to
// (docs/design/0012-gateway.md).
//
// An owner agrees to the tools of a server by naming the server in keep.toml: a tool is pinned as it is
// listed first. From then on one that is listed otherwise is stopped until a person has seen it. A tool
// that is listed again as it was pinned is not stopped.
package pin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/keep-run/keep/law/canonical"
)

// maxKept is how much of an entry is kept to be shown: one value of the store. The hash is always
// that of all of it.
const maxKept = 64 << 10

// A Pin is a tool as its server listed it at some time.
type Pin struct {
	Hash  string          `json:"hash"`
	Entry json.RawMessage `json:"-"` // what was hashed; empty: it is too large to keep
	At    time.Time       `json:"at"`
	By    string          `json:"by,omitempty"` // who agreed to it; empty: it was in the first list
}

// Of returns the pin of an entry of tools/list. It covers every member but _meta and icons, so
// that nothing that an agent reads changes unseen; the order of members means nothing.
func Of(entry json.RawMessage, at time.Time) Pin {
	var all map[string]json.RawMessage
	if json.Unmarshal(entry, &all) == nil {
		delete(all, "_meta")
		delete(all, "icons")
		if text, err := canonical.Object(all); err == nil {
			entry = text
		}
	}
	sum := sha256.Sum256(entry)
	p := Pin{Hash: hex.EncodeToString(sum[:]), At: at}
	if len(entry) <= maxKept && json.Valid(entry) {
		p.Entry = bytes.Clone(entry)
	}
	return p
}

// A State is how a tool stands.
type State string

const (
	Pinned  State = "pinned"  // it is as it was agreed to, and may be called
	Take    State = "take"    // it is listed for the first time: it is pinned before any agent sees it
	Changed State = "changed" // it is not as it was agreed to: stopped
	New     State = "new"     // it is listed for the first time, and its server has no room for more: stopped
	Absent  State = "absent"  // it was agreed to, and is not listed
)

// States returns every state.
func States() []State { return []State{Pinned, Take, Changed, New, Absent} }

// Stopped reports whether a tool in the state is not called.
func (s State) Stopped() bool { return s == Changed || s == New }

// Decide returns how a tool stands. Agreed is what was agreed to, and listed what its server
// lists now; nil: nothing. Room says that tools that are listed for the first time are pinned.
func Decide(agreed, listed *Pin, room bool) State {
	switch {
	case listed == nil:
		return Absent
	case agreed != nil && agreed.Hash == listed.Hash:
		return Pinned
	case agreed != nil:
		return Changed
	case room:
		return Take
	}
	return New
}

// minShown is how many characters of a hash name what was shown.
const minShown = 12

// Accept returns the pin that a person agrees to: what is listed now, if it is what was shown to
// them. Shown is the hash of that, or its beginning.
func Accept(listed *Pin, shown, by string, at time.Time) (Pin, error) {
	switch {
	case listed == nil:
		return Pin{}, fmt.Errorf("its server does not list it otherwise than it was agreed to")
	case len(shown) < minShown:
		return Pin{}, fmt.Errorf("the hash of what was shown has at least %d characters", minShown)
	case !strings.HasPrefix(listed.Hash, shown):
		return Pin{}, fmt.Errorf("it changed again since it was shown: it is %s now", Short(listed.Hash))
	}
	p := *listed
	p.At, p.By = at, by
	return p, nil
}

// Short returns the beginning of a hash, as people see it.
func Short(hash string) string { return hash[:min(len(hash), minShown)] }

// A Change is a member of an entry that differs. Old or New is empty if there is no such member.
type Change struct {
	Member string `json:"member"`
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`
}

// Changes returns what differs between two pins, sorted by member; hidden characters are marked.
// One whose entry is not kept differs in "entry".
func Changes(agreed, listed *Pin) []Change {
	if agreed != nil && listed != nil && agreed.Hash == listed.Hash {
		return nil
	}
	was, wasKnown := members(agreed)
	is, isKnown := members(listed)
	if !wasKnown || !isKnown {
		return []Change{{Member: "entry", Old: Mark(short(agreed)), New: Mark(short(listed))}}
	}
	names := maps.Clone(was)
	maps.Copy(names, is)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			out = append(out, Change{Mark(name), Mark(was[name]), Mark(is[name])})
		}
	}
	return out
}

// short returns what stands for an entry that is not kept.
func short(p *Pin) string {
	if p == nil {
		return ""
	}
	return "sha256 " + Short(p.Hash)
}

// members returns the members of an entry as texts, and whether they are known.
func members(p *Pin) (map[string]string, bool) {
	out := make(map[string]string)
	if p == nil {
		return out, true
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(p.Entry, &all) != nil {
		return nil, false
	}
	for name, raw := range all {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		out[name] = text
	}
	return out, true
}

// Mark returns a text in which characters that may be in it without being seen are written as
// \u{200B}: control and format characters, tags, fillers, and selectors of variants.
func Mark(s string) string {
	if strings.IndexFunc(s, Hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Hidden(r) {
			fmt.Fprintf(&b, `\u{%04X}`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// emoji is the selector after characters that are shown as pictures. It is common, and in itself
// says nothing.
const emoji = '\uFE0F'

// Hidden reports whether a character may be in a text without being seen.
func Hidden(r rune) bool {
	if r == '\n' || r == '\t' || r == emoji {
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
