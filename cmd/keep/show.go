package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// at returns a time of an object as people read it.
func (a *app) at(t api.Time) string { return a.when(time.Time(t)) }

// number is a cell of a table.
func number(n int) string { return strconv.Itoa(n) }

// orEmpty returns the text of a value that may be absent.
func orEmpty[S ~string](s *S) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

// orDash is orEmpty for tables, where an empty cell looks like a mistake.
func orDash[S ~string](s *S) string {
	if s == nil {
		return "-"
	}
	return clean(string(*s))
}

// joinIDs returns message ids, which scripts and senders choose, on one line.
func joinIDs(ids []keep.MessageID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = clean(string(id))
	}
	return strings.Join(out, ", ")
}

// errorText returns a failure as one line: what, where, of which class.
func errorText(f *api.Failure) string {
	s := clean(f.Message)
	if f.Tool != nil {
		s = string(*f.Tool) + ": " + s
	}
	if f.At != nil {
		s = clean(*f.At) + ": " + s
	}
	return fmt.Sprintf("%s (%s, %s)", s, f.Class, f.Code)
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

// inMemory pages through a list that is read as a whole. The cursor is the key
// of the last row.
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
