package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// KeyQuery selects idempotency keys.
type KeyQuery struct {
	State  key.State `query:"state" enum:"in_progress,done,done_without_body,unknown,released"`
	Key    string    `query:"key" maxLength:"255" doc:"as clients sent it, of any caller"`
	Caller string    `query:"caller" maxLength:"255" doc:"the hash that records hold"`
}

// KeyPaging is Paging of keys, and of other lists whose rows have no other form in full.
type KeyPaging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"most items of the page"`
	Cursor string `query:"cursor" doc:"next of the page before; empty: the first page"`
}

// A KeyPath is the idempotency key of a path.
type KeyPath struct {
	Reference string `path:"key" doc:"its reference: key_…"`
}

// Resolution is what a person knows about a request whose outcome is unknown.
type Resolution struct {
	Happened bool        `json:"happened" doc:"false: the key is released, and the next request with it is executed"`
	Status   int         `json:"status,omitempty" minimum:"200" maximum:"599" doc:"of the answer that retries get; 200 if it is left out"`
	Header   http.Header `json:"header,omitempty" doc:"of that answer, such as its Content-Type"`
	Body     string      `json:"body,omitempty" doc:"of that answer"`
	Seen     string      `json:"seen,omitempty" doc:"of the key as it was shown: if it is another by now, nothing is done"`
}

// A Forgetting says which key is given free, as it was shown.
type Forgetting struct {
	Seen string `json:"seen,omitempty" doc:"of the key as it was shown: if it is another by now, nothing is done"`
}

// ownHost is the host of the requests of this API, in the records of their keys.
const ownHost = "keep"

// ShownTo returns a key as somebody with a role may see it: what this API answered may be for admins alone, as the value of
// a checkpoint is.
func ShownTo(role access.Role, v idempotency.View) idempotency.View {
	if v.Host == ownHost && !role.Covers(access.Admin) {
		v.Header, v.Body, v.BodySize = nil, nil, nil
	}
	return v
}

// idempotencyKeys registers what is about idempotency keys.
func (s *Server) idempotencyKeys() {
	if s.cfg.Keys == nil {
		return
	}
	keys := idempotency.NewKeys(s.cfg.Keys)
	get(s, "/keys", "list-keys", "Idempotency keys of HTTP requests", func(ctx context.Context, in *struct {
		KeyQuery
		KeyPaging
	}) (Page[idempotency.View], error) {
		return paged(keys.List(ctx, key.Filter(in.KeyQuery), keep.Page{Limit: in.Limit, After: in.Cursor}))
	})
	get(s, "/keys/{key}", "show-key", "One idempotency key, with its answer", func(ctx context.Context, in *KeyPath) (idempotency.View, error) {
		id, _ := access.From(ctx)
		v, err := ofKey(in.Reference, func() (idempotency.View, error) { return keys.Show(ctx, in.Reference) })
		return ShownTo(id.Role, v), err
	})
	post(s, "/keys/{key}/resolve", "resolve-key", "Say what became of a request whose outcome is unknown", func(ctx context.Context, in *struct {
		KeyPath
		Body Resolution
	}) (idempotency.View, error) {
		id, _ := access.From(ctx)
		res := idempotency.Resolution{Happened: in.Body.Happened, Status: in.Body.Status, Body: in.Body.Body, By: id.Name, Header: in.Body.Header, Seen: in.Body.Seen}
		return ofKey(in.Reference, func() (idempotency.View, error) { return keys.Resolve(ctx, in.Reference, res, s.cfg.Clock()) })
	})
	post(s, "/keys/{key}/forget", "forget-key", "Release a key: the next request with it is executed", func(ctx context.Context, in *struct {
		KeyPath
		Body *Forgetting
	}) (idempotency.View, error) {
		id, _ := access.From(ctx)
		var as Forgetting
		if in.Body != nil {
			as = *in.Body
		}
		return ofKey(in.Reference, func() (idempotency.View, error) {
			return keys.ForgetSeen(ctx, in.Reference, id.Name, as.Seen, s.cfg.Clock())
		})
	})
}

// ofKey does something about a record, and makes problems of the errors that only
// idempotency keys have.
func ofKey(reference string, do func() (idempotency.View, error)) (idempotency.View, error) {
	if _, err := key.ParseID(reference); err != nil {
		return idempotency.View{}, problemOf(http.StatusUnprocessableEntity, KindAmbiguous, err.Error())
	}
	v, err := do()
	if errors.Is(err, idempotency.ErrNotUnknown) {
		err = problemOf(http.StatusConflict, KindRefused, err.Error())
	}
	return v, err
}
