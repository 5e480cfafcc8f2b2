package twin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stripe follows https://docs.stripe.com/api/idempotent_requests and .../pagination: a
// request with a known key gets the first answer again, whatever it was; with other params it
// is refused; lists are newest first, filter by created, and continue after an id.
type Stripe struct {
	objects []stripeObject
	keys    map[string]stripeKey
}

type stripeObject struct {
	kind   string
	ID     string            `json:"id"`
	Object string            `json:"object"`
	At     int64             `json:"created"`
	Meta   map[string]string `json:"metadata"`
	Params map[string]string `json:"params"`
}

type stripeKey struct {
	params  string
	reply   Reply
	running bool
}

// stripeError is how Stripe refuses.
func stripeError(status int, kind, message string) Reply {
	return Reply{Status: status, Body: map[string]any{"error": map[string]string{"type": kind, "message": message}}}
}

// Change makes an object.
func (s *Stripe) Change(r *http.Request, body []byte) (string, func() Reply) {
	params, err := url.ParseQuery(string(body))
	kind, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if err != nil || !ok || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return "", func() Reply { return stripeError(http.StatusBadRequest, "invalid_request_error", "not a form") }
	}
	key := r.Header.Get("Idempotency-Key")
	if known, again := s.keys[key]; again && key != "" {
		if known.running {
			return "", func() Reply {
				return stripeError(http.StatusConflict, "idempotency_error", "a request with the key is running")
			}
		}
		if known.params != params.Encode() {
			return "", func() Reply {
				return stripeError(http.StatusBadRequest, "idempotency_error", "the key came with other params")
			}
		}
		return "", func() Reply {
			replay := known.reply
			replay.Header = http.Header{"Idempotent-Replayed": {"true"}}
			return replay
		}
	}
	return params.Get("description"), func() Reply {
		o := stripeObject{kind: kind, ID: fmt.Sprintf("obj_%d", len(s.objects)+1), Object: kind, At: time.Now().Unix(),
			Meta: map[string]string{}, Params: map[string]string{}}
		for name := range params {
			if inner, ok := strings.CutPrefix(name, "metadata["); ok {
				o.Meta[strings.TrimSuffix(inner, "]")] = params.Get(name)
			} else {
				o.Params[name] = params.Get(name)
			}
		}
		s.objects = append(s.objects, o)
		reply := Reply{Status: http.StatusOK, Body: o}
		s.keep(key, stripeKey{params: params.Encode(), reply: reply})
		return reply
	}
}

// keep stores a key.
func (s *Stripe) keep(key string, k stripeKey) {
	if s.keys == nil {
		s.keys = map[string]stripeKey{}
	}
	s.keys[key] = k
}

// Running keeps the key of a request that is not done.
func (s *Stripe) Running(r *http.Request) {
	s.keep(r.Header.Get("Idempotency-Key"), stripeKey{running: true})
}

// Failed keeps the answer of a request that was performed, or was not, and answered with 500.
func (s *Stripe) Failed(r *http.Request, body []byte, answer Reply) {
	params, _ := url.ParseQuery(string(body)) // that Change has read
	s.keep(r.Header.Get("Idempotency-Key"), stripeKey{params: params.Encode(), reply: answer})
}

// Read lists objects.
func (s *Stripe) Read(r *http.Request) Reply {
	q := r.URL.Query()
	since, _ := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
	found := []stripeObject{}
	for _, o := range slices.Backward(s.objects) {
		if "/v1/"+o.kind == r.URL.Path && o.At >= since {
			found = append(found, o)
		}
	}
	if after := q.Get("starting_after"); after != "" {
		i := slices.IndexFunc(found, func(o stripeObject) bool { return o.ID == after })
		if i < 0 {
			return stripeError(http.StatusBadRequest, "invalid_request_error", "no such object")
		}
		found = found[i+1:]
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		limit = 10
	}
	more := len(found) > limit
	return Reply{Status: http.StatusOK, Body: map[string]any{"object": "list", "data": found[:min(limit, len(found))], "has_more": more}}
}
