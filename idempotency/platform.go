package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/keep-run/keep/law/key"
)

// A PlatformKey is a row of the table platform_idempotency_keys, as Postgres
// writes it with row_to_json. It becomes a record as follows:
//
//	key, user_id                the record's key, and its caller: user_id is what a
//	                            request has in the header that Import is given
//	endpoint                    method and path, "POST /api/x" or "/api/x"
//	completed                   done, with response_status and response_body; the
//	                            only header is Content-Type: application/json
//	in_progress                 unknown: whoever was at it is gone
//	failed                      unknown too: that table says so of requests that
//	                            may have had their effect
//	completed_at                the answer is kept for the TTL from then on, or from
//	                            created_at; one whose outcome is unknown, from the
//	                            time on at which it is resolved
//
// The table has neither host nor fingerprint, so every request with the key gets the
// answer.
type PlatformKey struct {
	Key            string          `json:"key"`
	UserID         string          `json:"user_id"`
	Endpoint       string          `json:"endpoint"`
	Status         string          `json:"status"`
	ResponseStatus int             `json:"response_status"`
	ResponseBody   json.RawMessage `json:"response_body"`
	CreatedAt      time.Time       `json:"created_at"`
	CompletedAt    *time.Time      `json:"completed_at"`
}

// Imported counts what Import did.
type Imported struct {
	Added   int `json:"added"`
	Known   int `json:"known"`   // the store has a record of that key already
	Expired int `json:"expired"` // too old to be of use
}

// Import reads rows of platform_idempotency_keys, one JSON object after the other,
// and adds a record for each that the store does not have. Callers are known by
// header; the guard's route needs the same, with ByHeader. It may be run again:
// what is there stays as it is.
func Import(ctx context.Context, store Store, rows io.Reader, header string, ttl time.Duration, now time.Time) (n Imported, err error) {
	dec := json.NewDecoder(rows)
	for line := 1; ; line++ {
		var row PlatformKey
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("import row %d: %w", line, err)
		}
		r, err := row.record(header, ttl, now)
		if err != nil {
			return n, fmt.Errorf("import row %d: %w", line, err)
		}
		if r.Expired(now) {
			n.Expired++
			continue
		}
		was, err := store.Read(ctx, r.ID)
		if err != nil {
			return n, fmt.Errorf("import row %d: %w", line, err)
		}
		if was.Rev != 0 {
			n.Known++
			continue
		}
		if err := store.Write(ctx, r); err != nil {
			return n, fmt.Errorf("import row %d: %w", line, err)
		}
		n.Added++
	}
}

// record returns what the row becomes.
func (p PlatformKey) record(header string, ttl time.Duration, now time.Time) (key.Record, error) {
	name, err := key.Parse(`"` + escape(p.Key) + `"`)
	if err != nil {
		return key.Record{}, err
	}
	caller, err := ByHeader(header)(&http.Request{Header: http.Header{http.CanonicalHeaderKey(header): {p.UserID}}})
	if err != nil {
		return key.Record{}, err
	}
	method, path := "POST", p.Endpoint
	if m, rest, ok := bytes.Cut([]byte(p.Endpoint), []byte(" ")); ok {
		method, path = string(m), string(rest)
	}
	// The record walks the same path as one of ours: begun, then what came of it.
	id := key.FormerID(caller, name) // the table doesn't say which host was asked
	claim := key.Claim{ID: id, Former: id, Key: name, Caller: hashCaller(caller), Method: method, Path: path, Fingerprint: key.Any, TTL: ttl}
	r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: newFence(), Claim: claim}, p.CreatedAt)
	if err != nil {
		return r, err
	}
	e, known := key.Fact{Evidence: key.Unsure, Fence: r.Fence}, now
	switch p.Status {
	case "completed":
		e = key.Fact{Evidence: key.Answered, Fence: r.Fence, By: "import", Answer: key.Answer{
			Status: p.ResponseStatus, Header: key.EncodeFields([]key.Field{{Name: "Content-Type", Value: "application/json"}}), Body: p.ResponseBody}}
		if known = p.CreatedAt; p.CompletedAt != nil {
			known = *p.CompletedAt
		}
		if p.ResponseStatus < 200 || p.ResponseStatus > 599 {
			return r, fmt.Errorf("key with status completed has response_status %d", p.ResponseStatus)
		}
	case "in_progress", "failed":
	default:
		return r, fmt.Errorf("unknown status %q", p.Status)
	}
	return key.Apply(r, e, known)
}

// escape returns s as the inside of a structured string.
func escape(s string) string {
	var b bytes.Buffer
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
