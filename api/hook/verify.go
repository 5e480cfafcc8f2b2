package hook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Scheme is how a service proves that a delivery is its own.
type Scheme string

// The schemes, each as its service documents it.
const (
	StandardWebhooks Scheme = "standard-webhooks" // github.com/standard-webhooks/standard-webhooks/blob/main/spec
	GitHub           Scheme = "github"            // docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
	Stripe           Scheme = "stripe"            // docs.stripe.com/webhooks#verify-manually
	Slack            Scheme = "slack"             // docs.slack.dev/authentication/verifying-requests-from-slack
	Token            Scheme = "token"             // a secret in a header
)

// Schemes returns every scheme.
func Schemes() []Scheme { return []Scheme{StandardWebhooks, GitHub, Stripe, Slack, Token} }

// maxSignatures is how many signatures of one delivery are looked at (law: bounded).
const maxSignatures = 32

// A verifier checks deliveries of one hook. Several keys are valid at once while a secret
// is replaced.
type verifier struct {
	scheme    Scheme
	keys      [][]byte
	header    string // of Token; empty: Authorization: Bearer
	tolerance time.Duration
}

// keyOf returns the key of a secret as its scheme writes it. The error never shows it.
func keyOf(s Scheme, secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("is empty: anybody could deliver")
	}
	if s != StandardWebhooks {
		return []byte(secret), nil
	}
	text, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return nil, errors.New("does not begin with whsec_, as the secrets of standard-webhooks do")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, errors.New("is not base64 after whsec_")
	case len(key) == 0:
		return nil, errors.New("is empty after whsec_: anybody could deliver")
	}
	return key, nil
}

// verify returns why a delivery is not the service's; nil: it is.
func (v *verifier) verify(h http.Header, body []byte, now time.Time) error {
	switch v.scheme {
	case StandardWebhooks:
		return v.standard(h, body, now)
	case GitHub:
		return v.github(h, body)
	case Stripe:
		return v.stripe(h, body, now)
	case Slack:
		return v.slack(h, body, now)
	case Token:
		return v.token(h)
	}
	return fmt.Errorf("no scheme %q", v.scheme)
}

// one returns the value of a header that must be there once: of two values, who made the
// signature may have read the other.
func one(h http.Header, name string) (string, error) {
	switch values := h.Values(name); len(values) {
	case 0:
		return "", errors.New("no " + name)
	case 1:
		return values[0], nil
	}
	return "", errors.New("more than one " + name)
}

// fresh refuses a time that is too far from now, in seconds since 1970.
func (v *verifier) fresh(text string, now time.Time) error {
	if len(text) > 12 {
		return errors.New("the time is no number of seconds")
	}
	sec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || sec < 0 || strconv.FormatInt(sec, 10) != text {
		return errors.New("the time is no number of seconds")
	}
	switch at := time.Unix(sec, 0); {
	case now.Sub(at) > v.tolerance:
		return errors.New("stale: signed too long ago")
	case at.Sub(now) > v.tolerance:
		return errors.New("signed in the future: check the clocks")
	}
	return nil
}

var errSignature = errors.New("the signature does not match")

// signed reports whether one of the signatures is that of the message under one of the
// keys. It takes as long whichever key or signature it is.
func (v *verifier) signed(signatures [][]byte, message ...[]byte) error {
	match := 0
	for _, key := range v.keys {
		mac := hmac.New(sha256.New, key)
		for _, part := range message {
			mac.Write(part)
		}
		want := mac.Sum(nil)
		for _, got := range signatures {
			match |= subtle.ConstantTimeCompare(want, got)
		}
	}
	if match == 0 {
		return errSignature
	}
	return nil
}

// standard checks the signature of Standard Webhooks: id.time.body, base64, version v1.
func (v *verifier) standard(h http.Header, body []byte, now time.Time) error {
	id, err := one(h, "webhook-id")
	if err != nil {
		return err
	}
	at, err := one(h, "webhook-timestamp")
	if err != nil {
		return err
	}
	list, err := one(h, "webhook-signature")
	if err != nil {
		return err
	}
	if err := v.fresh(at, now); err != nil {
		return err
	}
	var signatures [][]byte
	for text := range strings.FieldsSeq(list) {
		version, value, _ := strings.Cut(text, ",")
		sig, err := base64.StdEncoding.DecodeString(value)
		if version == "v1" && err == nil && len(signatures) < maxSignatures {
			signatures = append(signatures, sig)
		}
	}
	return v.signed(signatures, []byte(id+"."+at+"."), body)
}

// github checks X-Hub-Signature-256: sha256=HEX of the body. GitHub signs no time.
func (v *verifier) github(h http.Header, body []byte) error {
	text, err := one(h, "X-Hub-Signature-256")
	if err != nil {
		return err
	}
	sig, err := unhex(text, "sha256=")
	if err != nil {
		return err
	}
	return v.signed([][]byte{sig}, body)
}

// unhex reads a signature in hex.
func unhex(text, prefix string) ([]byte, error) {
	value, ok := strings.CutPrefix(text, prefix)
	sig, err := hex.DecodeString(value)
	if !ok || err != nil {
		return nil, errSignature
	}
	return sig, nil
}

// stripe checks Stripe-Signature: t=TIME,v1=HEX,… of TIME.body.
func (v *verifier) stripe(h http.Header, body []byte, now time.Time) error {
	text, err := one(h, "Stripe-Signature")
	if err != nil {
		return err
	}
	var at string
	var signatures [][]byte
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "t" && at != "":
			return errors.New("more than one time in Stripe-Signature")
		case name == "t":
			at = value
		case name == "v1" && len(signatures) < maxSignatures:
			if sig, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, sig)
			}
		}
	}
	if err := v.fresh(at, now); err != nil {
		return err
	}
	return v.signed(signatures, []byte(at+"."), body)
}

// slack checks X-Slack-Signature: v0=HEX of v0:TIME:body.
func (v *verifier) slack(h http.Header, body []byte, now time.Time) error {
	at, err := one(h, "X-Slack-Request-Timestamp")
	if err != nil {
		return err
	}
	text, err := one(h, "X-Slack-Signature")
	if err != nil {
		return err
	}
	if err := v.fresh(at, now); err != nil {
		return err
	}
	sig, err := unhex(text, "v0=")
	if err != nil {
		return err
	}
	return v.signed([][]byte{sig}, []byte("v0:"+at+":"), body)
}

// token compares the secret in a header. Hashes are compared, so that the time does not
// tell how long the secret is.
func (v *verifier) token(h http.Header) error {
	name := v.header
	name = cmp.Or(name, "Authorization")
	text, err := one(h, name)
	if err != nil {
		return err
	}
	if v.header == "" {
		scheme, value, _ := strings.Cut(text, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return errors.New("Authorization is no Bearer token")
		}
		text = strings.TrimSpace(value)
	}
	got, match := sha256.Sum256([]byte(text)), 0
	for _, key := range v.keys {
		want := sha256.Sum256(key)
		match |= subtle.ConstantTimeCompare(want[:], got[:])
	}
	if match == 0 {
		return errors.New("the token does not match")
	}
	return nil
}
