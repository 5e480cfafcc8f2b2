package twin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// Webhook follows https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
// it verifies the signature over id, time and body, and ignores an id that it knows.
type Webhook struct{ seen map[string]bool }

// Authorized verifies the signature.
func (*Webhook) Authorized(r *http.Request, body []byte, secret string) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "."))
	mac.Write(body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return r.Header.Get("Webhook-Id") != "" && hmac.Equal([]byte(want), []byte(r.Header.Get("Webhook-Signature")))
}

// Change takes a message.
func (w *Webhook) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Type, Timestamp string
		Data            json.RawMessage
	}
	if json.Unmarshal(body, &p) != nil || p.Type == "" || p.Timestamp == "" || p.Data == nil {
		return "", func() Reply { return Reply{Status: http.StatusBadRequest} }
	}
	id := r.Header.Get("Webhook-Id")
	return p.Type, func() Reply {
		if w.seen == nil {
			w.seen = map[string]bool{}
		}
		same := w.seen[id]
		w.seen[id] = true
		return Reply{Status: http.StatusNoContent, Same: same}
	}
}

// Read answers that there is nothing to read.
func (*Webhook) Read(*http.Request) Reply { return Reply{Status: http.StatusMethodNotAllowed} }
