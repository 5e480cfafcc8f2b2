package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/keep-run/keep/internal/pause"
)

// Bounds of what a service says to a device, in seconds.
const (
	longestInterval = 60 * 60
	longestCode     = 365 * 24 * 60 * 60
	usualInterval   = 5
)

// How a device asks (RFC 8628 §3.5).
const (
	slower  = 5 * time.Second // with each slow_down, for good
	slowest = time.Minute     // without answers, unless the service wants it slower: each one that does not come doubles the pause
)

// Device gets tokens where there is no browser (RFC 8628): show tells a person which page
// to open, on any machine, and the code to enter there. It waits until the person decided,
// the code expired or ctx ended.
func (c *Client) Device(ctx context.Context, show func(page, code string) error) (Tokens, error) {
	if c.DeviceURL == "" {
		return Tokens{}, errors.New("the service has no device flow")
	}
	asked, err := c.askDevice(ctx)
	if err != nil {
		return Tokens{}, err
	}
	if err := show(clip(asked.VerificationURI), clip(asked.UserCode)); err != nil {
		return Tokens{}, err
	}
	if !asked.Expiry.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, asked.Expiry, ErrExpired)
		defer cancel()
	}
	interval := time.Duration(cmp.Or(asked.Interval, usualInterval)) * time.Second
	for wait := interval; ; {
		if err := pause.For(ctx, wait); err != nil {
			return Tokens{}, err
		}
		t, err := c.pollDevice(ctx, asked.DeviceCode)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return Tokens{}, cause // also of a request that is still out when the code expires
		}
		switch codeOf(err) {
		case "authorization_pending":
			wait = interval
			continue
		case "slow_down":
			interval += slower
			wait = interval
			continue
		}
		out, err := c.tokens(t, err, asked.DeviceCode)
		if err == nil || t != nil || isFinal(err) {
			return out, ofDevice(err)
		}
		wait = max(interval, min(2*wait, slowest))
	}
}

// codeOf returns the code of an answer with an error; empty: it has none, or there is no answer.
func codeOf(err error) string {
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return r.ErrorCode
	}
	return ""
}

// isFinal reports whether a service that answered a device so is not asked again. One that is busy, or does not answer, is.
func isFinal(err error) bool {
	r, refused := errors.AsType[*RefusedError](err)
	return refused && !r.Temporary()
}

// ofDevice returns the error of Device for how a service answered.
func ofDevice(err error) error {
	r, ok := errors.AsType[*RefusedError](err)
	switch {
	case ok && r.Code == "access_denied":
		return fmt.Errorf("%w: %w", ErrDenied, r)
	case ok && r.Code == "expired_token":
		return ErrExpired
	}
	return err
}

// pollDevice asks once for the tokens of a code (RFC 8628 §3.4).
//
// The function of x/oauth2 forgets with each request that has no answer how slowly its service wants it to ask.
func (c *Client) pollDevice(ctx context.Context, code string) (*oauth2.Token, error) {
	h := c.http()
	h.Timeout = cmp.Or(h.Timeout, requestLimit)
	conf := clientcredentials.Config{ClientID: c.ID, ClientSecret: c.Secret, TokenURL: c.TokenURL, AuthStyle: c.style(), // which takes other grants, too
		EndpointParams: url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {code}, "client_id": {c.ID}}}
	return conf.Token(context.WithValue(ctx, oauth2.HTTPClient, h))
}

// askDevice asks for a code (RFC 8628 §3.1). The function of x/oauth2 dies of an answer that is null, and takes any interval.
func (c *Client) askDevice(ctx context.Context) (*oauth2.DeviceAuthResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	form := url.Values{"client_id": {c.ID}}
	if len(c.Scopes) > 0 {
		form.Set("scope", c.scope())
	}
	if c.Auth == AuthPost && c.Secret != "" {
		form.Set("client_secret", c.Secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.DeviceURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New(c.clean(err.Error()))
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	asked := time.Now()
	resp, err := c.http().Do(req)
	if err != nil {
		return nil, c.failure(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, metadataLimit))
	if err != nil {
		return nil, c.failure(err)
	}
	var m struct {
		Device      string `json:"device_code"`
		User        string `json:"user_code"`
		Page        string `json:"verification_uri"`
		Former      string `json:"verification_url"` // of drafts of the standard
		Lives       int64  `json:"expires_in"`
		Interval    int64  `json:"interval"`
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	bad := json.Unmarshal(text, &m)
	if q, err := url.ParseQuery(string(text)); bad != nil && err == nil {
		m.Code, m.Description = q.Get("error"), q.Get("error_description") // some services answer so
	}
	m.Page = cmp.Or(m.Page, m.Former)
	switch {
	case resp.StatusCode >= 300 || m.Code != "":
		return nil, c.failure(&oauth2.RetrieveError{Response: resp, ErrorCode: m.Code, ErrorDescription: m.Description})
	case bad != nil:
		return nil, errors.New("the service's answer to a device is no JSON with a code")
	case m.Device == "" || m.User == "" || m.Page == "":
		return nil, errors.New("the service's answer to a device has no code or no page")
	case m.Interval < 0 || m.Interval > longestInterval:
		return nil, fmt.Errorf("the service's answer to a device has the interval %d, want seconds up to %d", m.Interval, longestInterval)
	}
	a := &oauth2.DeviceAuthResponse{DeviceCode: m.Device, UserCode: m.User, VerificationURI: m.Page, Interval: m.Interval}
	if m.Lives != 0 {
		a.Expiry = asked.Add(time.Duration(min(max(m.Lives, 0), longestCode)) * time.Second)
	}
	return a, nil
}
