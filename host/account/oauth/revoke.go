package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// What a token that is revoked was for (RFC 7009 §2.1).
const (
	HintAccess  = "access_token"
	HintRefresh = "refresh_token"
)

// Revoke tells the service that a token is no longer wanted (RFC 7009). Its error is a
// *LostError if it is unknown whether the service received it, and [ErrNotSent] if it did
// not; asking again does no harm. A token that the service doesn't know is revoked.
func (c *Client) Revoke(ctx context.Context, token, hint string) error {
	if c.RevokeURL == "" {
		return errors.New("the service has no address to revoke a token at")
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	form := url.Values{"token": {token}, "token_type_hint": {hint}}
	if c.Auth != AuthBasic {
		form.Set("client_id", c.ID)
		if c.Secret != "" {
			form.Set("client_secret", c.Secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.RevokeURL, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New(c.clean(err.Error(), token))
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if c.Auth == AuthBasic {
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	}
	resp, err := c.http().Do(req)
	if err != nil {
		err := c.unanswered(err, token)
		if lost, ok := errors.AsType[*LostError](err); ok {
			lost.revoking = true
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode >= 500:
		return &LostError{Err: fmt.Errorf("the service answered HTTP %d", resp.StatusCode), revoking: true}
	}
	return fmt.Errorf("the service did not revoke the token: HTTP %d", resp.StatusCode)
}
