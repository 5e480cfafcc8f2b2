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
)

// Bounds of what a service says to a device, in seconds.
const (
	longestInterval = 60 * 60
	longestCode     = 365 * 24 * 60 * 60
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
	h := c.http()
	h.Timeout = cmp.Or(h.Timeout, requestLimit)
	ctx, conf := context.WithValue(ctx, oauth2.HTTPClient, h), c.config()
	if err := show(clip(asked.VerificationURI), clip(asked.UserCode)); err != nil {
		return Tokens{}, err
	}
	for {
		t, err := conf.DeviceAccessToken(ctx, asked)
		if err == nil {
			return c.tokens(t, nil)
		}
		if cause := context.Cause(ctx); cause != nil {
			return Tokens{}, cause
		}
		if !asked.Expiry.IsZero() && !time.Now().Before(asked.Expiry) {
			return Tokens{}, ErrExpired // and not by the error: a request that took too long ends with the same one
		}
		err = c.failure(err, asked.DeviceCode)
		if _, lost := errors.AsType[*LostError](err); lost || errors.Is(err, ErrNotSent) {
			continue // asked again after the interval, until the code expires (RFC 8628 §3.5)
		}
		if r, ok := errors.AsType[*RefusedError](err); ok && r.Code == "access_denied" {
			return Tokens{}, fmt.Errorf("%w: %w", ErrDenied, r)
		} else if ok && r.Code == "expired_token" {
			return Tokens{}, ErrExpired
		}
		return Tokens{}, err
	}
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
