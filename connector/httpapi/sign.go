package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/keep-run/keep/connector/internal/ontime"
)

// A Signer adds to a request what shows the receiver who sent it. ID is the host's key.
type Signer func(h http.Header, body []byte, id string)

// sign signs a change, if the connection does that.
func (s *service) sign(req *http.Request, body []byte, id string) {
	if s.signer != nil {
		s.signer(req.Header, body, id)
	}
}

// StandardWebhooks signs as https://github.com/standard-webhooks/standard-webhooks says. The
// secret is "whsec_" and base64.
func StandardWebhooks(secret string) (Signer, error) {
	text, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 16 {
		return nil, errors.New(`want "whsec_" and at least 16 bytes in base64`)
	}
	return func(h http.Header, body []byte, id string) {
		at := strconv.FormatInt(ontime.Now().Unix(), 10)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(body)
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", at)
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}, nil
}
