package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/law/key"
)

// A Probe asks whether a request happened whose outcome is unknown. It must not
// change anything. An error means that it can't tell.
type Probe func(ctx context.Context, q Question) (Finding, error)

// A Question names the request that a probe asks about.
type Question struct {
	Key    string
	Host   string // that was asked; empty: not known
	Caller string // hash of who sent it; empty: anonymous
	Method string
	Path   string
	Since  time.Time // since when the outcome is unknown

	// Header is that of the retry, of the same caller, on whose behalf is asked.
	Header http.Header
}

// A Finding is what a probe found. The zero Finding means that it didn't happen.
type Finding struct {
	// Happened is true if the effect is there.
	Happened bool

	// Status, Header and Body become the kept answer of a request that happened.
	// If Status is zero, 200.
	Status int
	Header http.Header
	Body   []byte

	// WithoutBody is true if the answer to a request that happened is not known: its retries get KindBodyNotStored
	// with Status.
	WithoutBody bool
}

// ErrCannotTell is returned by a Probe that got no useful answer.
var ErrCannotTell = errors.New("the probe cannot tell")

// ProbeURL returns a probe that asks a URL, in which {key} stands for the key and
// {caller} for the caller as caller returns it; nil: for its hash. An
// answer of 2xx means that it happened and is kept, unless it may be half since only the
// end of its connection ends it and it is no complete JSON of a type that has one value; 404 means that it did not, any
// other nothing. If client is nil, http.DefaultClient. An answer over limit bytes
// tells nothing. What would lead to another place of a path ("..") is asked about in a query alone.
func ProbeURL(client *http.Client, template string, caller func(Question) string, limit int64) Probe {
	if client == nil {
		client = http.DefaultClient
	}
	return func(ctx context.Context, q Question) (Finding, error) {
		who := q.Caller
		if caller != nil {
			who = caller(q)
		}
		target, err := urlOf(template, q.Key, who)
		if err != nil {
			return Finding{}, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return Finding{}, withoutURL(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			return Finding{}, withoutURL(err)
		}
		defer resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusNotFound:
			return Finding{}, nil
		case resp.StatusCode < 200 || resp.StatusCode > 299:
			return Finding{}, fmt.Errorf("%w: it answered %d", ErrCannotTell, resp.StatusCode)
		}
		endless := resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !resp.Uncompressed
		body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
		if err != nil {
			return Finding{}, err
		}
		if int64(len(body)) > limit {
			return Finding{}, fmt.Errorf("%w: its answer has over %d bytes", ErrCannotTell, limit)
		}
		if endless && mayBeHalf(resp.Header.Get("Content-Type"), body) {
			return Finding{Happened: true, Status: resp.StatusCode, WithoutBody: true}, nil
		}
		return Finding{Happened: true, Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
	}
}

// urlOf returns the URL that asks about a key and a caller. They are what they are, wherever the template has them: a character that
// means something in a query would ask about another one, who is not found, or whose answer is shown.
func urlOf(template, key, caller string) (string, error) {
	path, _, _ := strings.Cut(template, "?")
	for name, text := range map[string]string{"{key}": key, "{caller}": caller} {
		if strings.Contains(path, name) && hasDotSegment(text) {
			return "", fmt.Errorf("%w: its %s has a part that is a dot or two, which servers take away with what is before it; put it into the query of the URL", ErrCannotTell, name)
		}
	}
	return strings.NewReplacer("{key}", escapeAll(key), "{caller}", escapeAll(caller)).Replace(template), nil
}

// hasDotSegment reports whether a text leads to another place where it is a part of a path: many servers decode a path before they clean it.
func hasDotSegment(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// escapeAll returns a text as it stands in a path as well as in a query: all but what never means anything is escaped (RFC 3986 section 2.3).
func escapeAll(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// withoutURL returns an error without the URL that it is about: that has the key, and perhaps the caller, which are never logged.
func withoutURL(err error) error {
	if about, ok := errors.AsType[*url.Error](err); ok {
		return about.Err
	}
	return err
}

// What a probe led to.
type probed int

const (
	found      probed = iota // what became of it, and the record moved if there is no error: look again
	cannotTell               // nobody knows more than before
	tooEarly                 // "it did not happen", which can't be believed yet
	unasked                  // the client left before the probe answered, which may know
)

// probe asks the route's probe and records what it found. An error says that it is not recorded.
func (c *exchange) probe(rec key.Record) (probed, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), DefaultProbeTimeout)
	defer cancel()
	asked := c.g.clock.now()
	f, err := c.rt.Probe(ctx, Question{Key: rec.Key, Host: rec.Host, Caller: rec.Caller,
		Method: rec.Method, Path: rec.Path, Since: rec.DoubtAt, Header: c.r.Header})
	if err != nil && c.r.Context().Err() != nil {
		return unasked, nil
	}
	if err != nil {
		c.g.cfg.Logger.WarnContext(ctx, "idempotency key: probe cannot tell",
			"key", rec.ID.String(), "route", c.rt.name, "err", err)
		return cannotTell, nil
	}
	e := key.Fact{Evidence: key.Absent, By: "probe"}
	if f.Happened {
		e.Evidence, e.Answer, e.WithoutBody = key.Happened, f.answer(), f.WithoutBody
	} else if asked.Before(rec.SettlesAt(c.effectTimeout(), c.rt.SettleAfter)) {
		return tooEarly, nil
	}
	return found, c.learn(rec, e)
}

// effectTimeout returns by when after the key was taken what the handler set going has ended.
func (c *exchange) effectTimeout() time.Duration {
	if c.rt.EffectTimeout == 0 {
		return 0
	}
	return c.g.cfg.StoreTimeout + c.rt.EffectTimeout // a handler begins no later than that: see begin
}

// answer returns the finding as a record keeps it.
func (f Finding) answer() key.Answer {
	status := f.Status
	status = cmp.Or(status, http.StatusOK)
	return key.Answer{Status: status, Header: encodeHeader(f.Header), Body: f.Body}
}

// encodeHeader returns the fields of h that a record keeps.
func encodeHeader(h http.Header) []byte {
	named := make(http.Header, len(h)) // a person may write content-type; net/http would guess one beside it
	for _, name := range slices.Sorted(maps.Keys(h)) {
		name, lines := http.CanonicalHeaderKey(name), h[name]
		named[name] = append(named[name], lines...)
	}
	fields := fieldsOf(named, nil)
	kept := fields[:0]
	for _, f := range fields {
		if key.Kept(f.Name, named["Connection"]) {
			kept = append(kept, f)
		}
	}
	return key.EncodeFields(kept)
}
