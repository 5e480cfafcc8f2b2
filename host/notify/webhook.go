package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// SinkWebhook is the sink of a Webhook.
const SinkWebhook keep.Sink = "webhook"

// secretPrefix marks a symmetric secret (Standard Webhooks 1.0, "Signature
// scheme").
const secretPrefix = "whsec_"

// A Webhook sends questions to a URL, signed as Standard Webhooks 1.0 says
// (https://www.standardwebhooks.com): webhook-id, webhook-timestamp and
// webhook-signature, which is v1 and the HMAC-SHA256 of id, time and body joined
// by dots. Any of its libraries verifies it. A status of 2xx is success;
// redirects are not followed.
type Webhook struct {
	url    string
	secret []byte
	client *http.Client
}

// NewWebhook returns a webhook that sends to an http or https URL and signs with
// a key; see ParseSecret. Its error does not quote the URL.
func NewWebhook(target string, key []byte) (*Webhook, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("want https:// or http:// and a host")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // no transport repeats a request on its own
	return &Webhook{url: target, secret: key, client: &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, Protocols: protocols},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ParseSecret returns the key that a secret stands for: whsec_ and the base64 of
// 24 to 64 random bytes. Its error does not quote the secret.
func ParseSecret(secret string) ([]byte, error) {
	const want = "want whsec_ and the base64 of 24 to 64 random bytes, such as: echo whsec_$(openssl rand -base64 32)"
	text, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, errors.New("does not begin with whsec_: " + want)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("is not base64: " + want)
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("has %d bytes: %s", len(key), want)
	}
	return key, nil
}

// Sink returns SinkWebhook.
func (h *Webhook) Sink() keep.Sink { return SinkWebhook }

// Deliver sends one request.
func (h *Webhook) Deliver(ctx context.Context, m Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(m.Body))
	if err != nil {
		return errors.New("the url of the webhook cannot be used") // err would quote it
	}
	stamp := strconv.FormatInt(m.At.Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "keep")
	req.Header.Set("webhook-id", m.ID)
	req.Header.Set("webhook-timestamp", stamp)
	req.Header.Set("webhook-signature", h.sign(m.ID, stamp, m.Body))
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer: %w", reason(ctx, err))
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // its status said all
	if resp.StatusCode/100 == 2 {
		return nil
	}
	f := keep.Failf(keep.ClassTransient, "http-"+strconv.Itoa(resp.StatusCode), "the webhook answered %d %s",
		resp.StatusCode, http.StatusText(resp.StatusCode))
	s, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // of too large a number the largest, and else zero
	f.RetryAfter = time.Duration(min(max(s, 0), 24*3600)) * time.Second
	return f
}

// sign returns the signature of one attempt.
func (h *Webhook) sign(id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, h.secret)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// reason returns why there was no answer, without the URL, which may hold a
// secret.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
