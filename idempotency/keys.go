package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// Keys shows people records and records their decisions: `keep keys`, and the
// admin API of the proxy. It works beside the guards of the same store.
type Keys struct {
	store Store
	clock *clock
}

// NewKeys returns the records of store.
func NewKeys(store Store) *Keys { return &Keys{store, newClock(store, time.Now)} }

// A View is a record as people and programs see it: in commands with --json and
// in the admin API. It never has the caller or what the caller sent.
type View struct {
	Reference   string              `json:"reference"`
	Key         string              `json:"key"`
	Caller      string              `json:"caller"` // a hash
	Method      string              `json:"method"`
	Path        string              `json:"path"`
	Host        string              `json:"-"` // that was asked; empty in records of version 1
	State       key.State           `json:"state"`
	Doubts      int                 `json:"doubts"`
	Status      *int                `json:"status"` // of the answer
	Header      map[string][]string `json:"header,omitempty"`
	Body        *string             `json:"body,omitempty"` // if it is text
	BodySize    *int                `json:"body_size,omitempty"`
	ResolvedBy  *string             `json:"resolved_by"`
	LeaseUntil  *time.Time          `json:"lease_until"`
	UnknownFrom *time.Time          `json:"unknown_from"`
	CreatedAt   time.Time           `json:"created_at"`
	UpdatedAt   time.Time           `json:"updated_at"`
	ExpiresAt   *time.Time          `json:"expires_at"` // null: not before its outcome is known
	Seen        string              `json:"seen"`       // names the record as it is now, for Resolution and ForgetSeen
}

// MarshalJSON writes the times in UTC with milliseconds, as all of Keep does.
func (v View) MarshalJSON() ([]byte, error) {
	type plain View
	stamp := func(t *time.Time) *string {
		if t == nil {
			return nil
		}
		s := t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
		return &s
	}
	return json.Marshal(struct {
		plain
		LeaseUntil  *string `json:"lease_until"`
		UnknownFrom *string `json:"unknown_from"`
		CreatedAt   *string `json:"created_at"`
		UpdatedAt   *string `json:"updated_at"`
		ExpiresAt   *string `json:"expires_at"`
	}{plain(v), stamp(v.LeaseUntil), stamp(v.UnknownFrom), stamp(&v.CreatedAt), stamp(&v.UpdatedAt), stamp(v.ExpiresAt)})
}

// List returns a page of records, newest first, and the cursor of the next; "" if
// it is the last.
func (k *Keys) List(ctx context.Context, f key.Filter, p keep.Page) ([]View, string, error) {
	records, next, err := k.store.List(ctx, f, p)
	if err != nil {
		return nil, "", err
	}
	views := make([]View, 0, len(records))
	for _, r := range records {
		views = append(views, view(r))
	}
	return views, next, nil
}

// MaxUnknown is how far Unknown counts (law: bounded).
const MaxUnknown = 10_000

// Unknown counts the keys whose outcome nobody knows, up to MaxUnknown.
func (k *Keys) Unknown(ctx context.Context) (n int, err error) {
	for cursor := ""; n < MaxUnknown; {
		page, next, err := k.store.List(ctx, key.Filter{State: key.Unknown}, keep.Page{Limit: 1000, After: cursor})
		if err != nil {
			return 0, err
		}
		if n, cursor = n+len(page), next; cursor == "" {
			break
		}
	}
	return min(n, MaxUnknown), nil
}

// Show returns one record with its answer, or keep.ErrNotFound.
func (k *Keys) Show(ctx context.Context, reference string) (View, error) {
	r, err := k.find(ctx, reference)
	if err != nil {
		return View{}, err
	}
	v := view(r)
	if r.State != key.Done {
		return v, nil
	}
	fields, err := key.DecodeFields(r.Answer.Header)
	if err != nil {
		return v, fmt.Errorf("show %s: %w", reference, err)
	}
	v.Header = make(map[string][]string)
	for _, f := range fields {
		v.Header[f.Name] = append(v.Header[f.Name], f.Value)
	}
	size := len(r.Answer.Body)
	v.BodySize = &size
	if text := string(r.Answer.Body); json.Valid(r.Answer.Body) || isText(text) {
		v.Body = &text
	}
	return v, nil
}

// A Resolution is what a person knows about a request whose outcome is unknown.
type Resolution struct {
	// Happened says whether it did. If false, the key is released.
	Happened bool `json:"happened"`

	// Status, Header and Body become the kept answer. If Status is zero, 200.
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`

	// By is who says so.
	By string `json:"by"`

	// Seen is that of the View which the person saw: if the record is another by now, perhaps of another
	// request with the key, Resolve refuses with keep.ErrStale. If empty, it is whatever there is.
	Seen string `json:"seen,omitempty"`
}

// ErrNotUnknown is returned when a record is resolved whose outcome is not
// unknown, or was decided by somebody else meanwhile.
var ErrNotUnknown = errors.New("the outcome is not unknown")

// ErrInvalid is returned when what is asked for cannot be: a reference that is none, nobody who says so.
var ErrInvalid = errors.New("it cannot be asked like that")

// An invalidError says why an error is ErrInvalid.
type invalidError string

func (e invalidError) Error() string { return string(e) }

// Is reports whether the target is ErrInvalid.
func (e invalidError) Is(target error) bool { return target == ErrInvalid }

// Resolve records what a person knows. It refuses records that are not unknown
// with ErrNotUnknown: nobody decides twice.
func (k *Keys) Resolve(ctx context.Context, reference string, res Resolution, now time.Time) (View, error) {
	if res.By == "" {
		return View{}, invalidError("resolve: who says so is required")
	}
	if res.Happened && res.Status != 0 && (res.Status < 200 || res.Status > 599) {
		return View{}, invalidError(fmt.Sprintf("resolve: %d is not the status of an answer", res.Status))
	}
	e := key.Fact{Evidence: key.Absent, By: "person: " + res.By}
	if res.Happened {
		e.Evidence = key.Happened
		e.Answer = Finding{Happened: true, Status: res.Status, Header: res.Header, Body: []byte(res.Body)}.answer()
	}
	return k.move(ctx, reference, e, res.Seen, now)
}

// Forget gives a key free whose request is over, with its answer: the next
// request with it is executed. One that is being executed is refused.
func (k *Keys) Forget(ctx context.Context, reference, by string, now time.Time) (View, error) {
	return k.ForgetSeen(ctx, reference, by, "", now)
}

// ForgetSeen is Forget of the record that the person saw, as View.Seen names it; of another it is keep.ErrStale.
func (k *Keys) ForgetSeen(ctx context.Context, reference, by, seen string, now time.Time) (View, error) {
	if by == "" {
		return View{}, invalidError("forget: who says so is required")
	}
	return k.move(ctx, reference, key.Fact{Evidence: key.Forgotten, By: "person: " + by}, seen, now)
}

// move learns e about a record. saw is what names the one that the person saw; empty: whatever there is.
func (k *Keys) move(ctx context.Context, reference string, e key.Fact, saw string, now time.Time) (View, error) {
	r, err := k.find(ctx, reference)
	if err != nil {
		return View{}, err
	}
	if now, err = k.clock.decided(ctx, now); err != nil {
		return View{}, err
	}
	isSeen := saw == "" || saw == seen(r)
	// A record that nobody has looked at since its owner died says in_progress.
	if late, err := key.Apply(r, key.Fact{Evidence: key.LeaseEnded, By: "lease"}, now); err == nil {
		if err := k.store.Write(ctx, late); err != nil {
			return View{}, fmt.Errorf("mark %s: %w", reference, err)
		}
		r = late
		r.Rev++
	}
	next, err := key.Apply(r, e, now)
	if err != nil {
		return view(r), fmt.Errorf("%s is %q: %w", reference, r.State, ErrNotUnknown)
	}
	if !isSeen {
		return view(r), fmt.Errorf("%s is not as it was shown: %w", reference, keep.ErrStale)
	}
	if err := k.store.Write(ctx, next); errors.Is(err, keep.ErrStale) {
		return view(r), fmt.Errorf("%s: %w any more", reference, ErrNotUnknown)
	} else if err != nil {
		return view(r), err
	}
	next.Rev++ // as it is stored
	return view(next), nil
}

func (k *Keys) find(ctx context.Context, reference string) (key.Record, error) {
	id, err := key.ParseID(reference)
	if err != nil {
		return key.Record{}, invalidError(err.Error())
	}
	r, err := k.store.Read(ctx, id)
	if err == nil && r.Rev == 0 {
		err = &keep.NotFoundError{What: "idempotency key", ID: reference}
	}
	return r, err
}

func view(r key.Record) View {
	v := View{Reference: r.ID.String(), Key: r.Key, Caller: r.Caller, Method: r.Method, Path: r.Path, Host: r.Host, State: r.State,
		Doubts: r.Doubts, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Seen: seen(r)}
	if r.Answer.Status != 0 {
		v.Status = &r.Answer.Status
	}
	if r.ResolvedBy != "" {
		v.ResolvedBy = &r.ResolvedBy
	}
	if r.State == key.InProgress {
		v.LeaseUntil = &r.LeaseUntil
	}
	if r.State == key.Unknown {
		v.UnknownFrom = &r.DoubtAt
	}
	if r.State != key.InProgress && r.State != key.Unknown {
		v.ExpiresAt = &r.ExpiresAt
	}
	return v
}

// seen names a record as it stands: another request with its key has another name, also where the record is new again.
func seen(r key.Record) string { return fmt.Sprintf("%d-%d", r.CreatedAt.UnixMilli(), r.Rev) }

// isText reports whether a terminal can show s as it is.
func isText(s string) bool {
	for _, c := range s {
		if c == '\uFFFD' || c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
