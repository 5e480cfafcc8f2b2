package oauth

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/oauth2"
)

// Device gets tokens where there is no browser (RFC 8628): show tells a person which page
// to open, on any machine, and the code to enter there. It waits until the person decided,
// the code expired or ctx ended.
func (c *Client) Device(ctx context.Context, show func(page, code string) error) (Tokens, error) {
	if c.DeviceURL == "" {
		return Tokens{}, errors.New("the service has no device flow")
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, c.http())
	conf := c.config()
	opts := []oauth2.AuthCodeOption{}
	if len(c.Scopes) > 0 {
		opts = append(opts, oauth2.SetAuthURLParam("scope", c.scope()))
	}
	if c.Auth == AuthPost && c.Secret != "" {
		opts = append(opts, oauth2.SetAuthURLParam("client_secret", c.Secret))
	}
	asked, err := conf.DeviceAuth(ctx, opts...)
	if err != nil {
		return Tokens{}, c.failure(err)
	}
	if asked.DeviceCode == "" || asked.UserCode == "" || asked.VerificationURI == "" {
		return Tokens{}, errors.New("the service's answer to a device has no code or no page")
	}
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
		if errors.Is(err, context.DeadlineExceeded) {
			return Tokens{}, ErrExpired
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
