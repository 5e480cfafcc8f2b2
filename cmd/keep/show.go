package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// joinIDs returns message ids, which scripts and senders choose, on one line.
func joinIDs[T ~string](ids []T) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = terminal.Clean(string(id))
	}
	return strings.Join(out, ", ")
}

// maxShown is how much of a payload is shown; --json has all of it.
const maxShown = 4000

// indented returns JSON as people read it.
func indented(raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		b.Reset()
		b.Write(raw)
	}
	s := b.String()
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + fmt.Sprintf("…\n(%d bytes in all; see --json)", len(raw))
	}
	return s
}

// inMemory pages through a list that is read as a whole, so that short lists have the flags that
// long ones have. The cursor is the key of the last row; if that row is gone by the next page,
// the page is refused, since nobody knows where it would begin.
func inMemory[T any](all []T, p api.Paging, key func(T) string, err error) (api.Page[T], error) {
	if err != nil {
		return api.Page[T]{}, err
	}
	if p.Cursor != "" {
		i := slices.IndexFunc(all, func(v T) bool { return key(v) == p.Cursor })
		if i < 0 {
			return api.Page[T]{}, fmt.Errorf("%w; take it from the page before", keep.ErrBadCursor)
		}
		all = all[i+1:]
	}
	if len(all) <= p.Limit {
		return api.Page[T]{Items: all}, nil
	}
	all = all[:p.Limit]
	next := key(all[len(all)-1])
	return api.Page[T]{Items: all, Next: &next}, nil
}
