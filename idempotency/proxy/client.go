package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// An AdminClient looks at records and decides about them through the admin API of
// a running proxy. Its methods are those of idempotency.Keys, with the same
// errors; those of the network come as they are.
type AdminClient struct {
	// URL of the admin address, such as "http://127.0.0.1:7434".
	URL string

	// Token is the proxy's AdminToken. A socket needs none.
	Token string

	// Socket, if not empty, is asked instead of the host of URL.
	Socket string

	// Client sends the requests. If nil, one that gives up after 30 seconds.
	Client *http.Client
}

// maxAdminAnswer bounds an answer: a page of records, or one with its body.
const maxAdminAnswer = 64 << 20

// Healthy reports whether a proxy answers.
func (c *AdminClient) Healthy(ctx context.Context) bool {
	_, err := c.call(ctx, http.MethodGet, "/healthz", nil, nil)
	return err == nil
}

// List returns a page of records, newest first, and the cursor of the next; "" if
// it is the last.
func (c *AdminClient) List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error) {
	q := url.Values{"limit": {strconv.Itoa(p.Size())}}
	for name, value := range map[string]string{"state": string(f.State), "key": f.Key, "caller": f.Caller, "cursor": p.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var views []idempotency.View
	header, err := c.call(ctx, http.MethodGet, "/api/v1/keys?"+q.Encode(), nil, &views)
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	link, _, _ := strings.Cut(strings.TrimPrefix(header.Get("Link"), "<"), ">")
	next, err := url.Parse(link)
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: link %q: %w", link, err)
	}
	return views, next.Query().Get("cursor"), nil
}

// Show returns one record with its answer, or keep.ErrNotFound.
func (c *AdminClient) Show(ctx context.Context, reference string) (idempotency.View, error) {
	return c.one(ctx, http.MethodGet, reference, "", nil)
}

// Resolve records what a person knows. The proxy's clock is taken, not now.
func (c *AdminClient) Resolve(ctx context.Context, reference string, res idempotency.Resolution, _ time.Time) (idempotency.View, error) {
	return c.one(ctx, http.MethodPost, reference, "/resolve", res)
}

// Forget gives a key free. The proxy's clock is taken, not now.
func (c *AdminClient) Forget(ctx context.Context, reference, by string, now time.Time) (idempotency.View, error) {
	return c.ForgetSeen(ctx, reference, by, "", now)
}

// ForgetSeen is Forget of the key that the person saw, as View.Seen names it.
func (c *AdminClient) ForgetSeen(ctx context.Context, reference, by, seen string, _ time.Time) (idempotency.View, error) {
	in := map[string]string{"by": by}
	if seen != "" {
		in["seen"] = seen
	}
	return c.one(ctx, http.MethodPost, reference, "/forget", in)
}

// one asks about one record.
func (c *AdminClient) one(ctx context.Context, method, reference, action string, in any) (v idempotency.View, err error) {
	if _, err := key.ParseID(reference); err != nil {
		return v, err
	}
	_, err = c.call(ctx, method, "/api/v1/keys/"+reference+action, in, &v)
	if errors.Is(err, keep.ErrNotFound) {
		err = &keep.NotFoundError{What: "idempotency key", ID: reference}
	}
	return v, err
}

// client returns what sends the requests.
func (c *AdminClient) client() *http.Client {
	switch {
	case c.Client != nil:
		return c.Client
	case c.Socket == "":
		return &http.Client{Timeout: 30 * time.Second}
	}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
		},
	}}
}

// call makes one request, and decodes its answer into out unless that is nil.
func (c *AdminClient) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(cmp.Or(c.URL, "http://localhost"), "/")+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.client().Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp, text)
	}
	if out == nil {
		return resp.Header, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("%s does not answer as an admin API: %w", c.URL, err)
	}
	return resp.Header, nil
}

// refusal returns the error that an answer means.
func refusal(resp *http.Response, text []byte) error {
	var problem struct{ Detail string }
	if err := json.Unmarshal(text, &problem); err != nil || problem.Detail == "" {
		problem.Detail = "the admin API answered " + resp.Status
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return keep.ErrNotFound
	case http.StatusConflict:
		return &refusedError{problem.Detail, idempotency.ErrNotUnknown}
	}
	return errors.New(problem.Detail)
}

// A refusedError has the words of the admin API and the meaning of an error of
// ours.
type refusedError struct {
	detail string
	is     error
}

// Error returns what the admin API said.
func (e *refusedError) Error() string { return e.detail }

// Unwrap returns what it means.
func (e *refusedError) Unwrap() error { return e.is }
