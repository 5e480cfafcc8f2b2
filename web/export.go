package web

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
)

// exportPage is how many records are read at once. An export is written while it
// is read, so its size has no limit and needs no memory.
const exportPage = 500

// exportCSV writes the records that a filter matches, newest first.
func (s *site) exportCSV(w http.ResponseWriter, r *http.Request) error {
	f, _, err := parseMutationFilter(r.URL.Query())
	if err != nil {
		return err
	}
	asFile(w, exported(time.Now(), "csv"), "text/csv; charset=utf-8")
	out := csv.NewWriter(w)
	err = out.Write([]string{"key", "workflow", "run", "item", "attempt", "tool", "target", "level", "state", "title", "attempts",
		"reconcile_attempts", "resolved_by", "error", "payload_hash", "created_at", "updated_at"})
	if err != nil {
		return nil // nobody reads it any more
	}
	s.export(w, r, f, true, func(m keep.Mutation) error {
		failure := ""
		if m.Error != nil {
			failure = m.Error.Error()
		}
		row := []string{string(m.Key), string(m.Workflow), string(m.Run), m.Item, itoa(m.Attempt), string(m.Tool), m.Target,
			string(m.Level), string(m.State), m.Title, itoa(m.Attempts), itoa(m.ReconcileAttempts), m.ResolvedBy, failure,
			m.PayloadHash, m.CreatedAt.UTC().Format(machineTime), m.UpdatedAt.UTC().Format(machineTime)}
		for i := range row {
			row[i] = inert(row[i])
		}
		return out.Write(row)
	}, func() error { out.Flush(); return out.Error() })
	return nil
}

// inert keeps a spreadsheet from running a cell that begins like a formula. Where lists are written with semicolons, one splits at
// them, and at the end of a line, also within what is one cell here.
func inert(s string) string {
	var b strings.Builder
	for i, begins := 0, true; i < len(s); i++ {
		if c := s[i]; begins && strings.IndexByte("=+-@", c) >= 0 || i == 0 && (c == '\t' || c == '\r') {
			b.WriteByte('\'')
		}
		b.WriteByte(s[i])
		begins = strings.IndexByte(";\t\r\n", s[i]) >= 0 || begins && s[i] == '"'
	}
	return b.String()
}

// exportJSON writes the records that a filter matches, newest first, as an array of
// the objects of the API.
func (s *site) exportJSON(w http.ResponseWriter, r *http.Request) error {
	f, _, err := parseMutationFilter(r.URL.Query())
	if err != nil {
		return err
	}
	asFile(w, exported(time.Now(), "json"), "application/json")
	out := bufio.NewWriter(w)
	sep := "[\n"
	s.export(w, r, f, false, func(m keep.Mutation) error {
		raw, err := json.Marshal(api.MutationOf(m))
		if err != nil {
			return err
		}
		out.WriteString(sep) // the last error is kept, and returned by Flush
		sep = ",\n"
		_, err = out.Write(raw)
		return err
	}, out.Flush)
	// Nothing matched: the file is an empty array, not an empty file.
	if sep == "[\n" {
		out.WriteString(sep)
	}
	out.WriteString("\n]\n")
	out.Flush() // an error means that nobody reads it any more
	return nil
}

// export calls write with each record, and flush after each page. The answer has
// begun: after an error the connection is closed, so that half an export does not look
// like a whole one.
//
// With bare no payload is read: a table has none.
func (s *site) export(w http.ResponseWriter, r *http.Request, f keep.MutationFilter, bare bool, write func(keep.Mutation) error, flush func() error) {
	rc := http.NewResponseController(w)
	for p := (keep.Page{Limit: exportPage, Bare: bare}); ; {
		ms, next, err := s.cfg.Store.Mutations(r.Context(), f, p)
		if err == nil { // a right may end while an export is written
			err = access.Still(r.Context())
		}
		for i := 0; err == nil && i < len(ms); i++ {
			err = write(ms[i])
		}
		if err == nil {
			err = flush()
		}
		// Who does not take a page within a minute is gone: the server has no deadline for an answer, since
		// an export may be long.
		if derr := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err == nil && derr != nil && !errors.Is(derr, http.ErrNotSupported) {
			err = derr
		}
		if err != nil {
			if r.Context().Err() == nil {
				s.log.ErrorContext(r.Context(), "export mutations", "err", err)
			}
			panic(http.ErrAbortHandler)
		}
		if p.After = next; next == "" {
			return
		}
	}
}
