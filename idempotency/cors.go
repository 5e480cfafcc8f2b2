package idempotency

import (
	"net/http"
	"sync"
)

// maxOrigins is how many origins a route remembers.
const maxOrigins = 256

// origins are what the answers of a route allow to pages of other origins. A refusal
// of the guard allows the same: a page that may read the answer must be able to read
// why there is none. Browsers ask before they send a key, so the guard has seen an
// answer by then.
type origins struct {
	// mu protects the field below.
	mu      sync.Mutex
	allowed map[string][2]string // Access-Control-Allow-Origin and -Credentials by origin
}

// learn remembers what an answer to a request of an origin allows it.
func (o *origins) learn(origin string, h http.Header) {
	allow := h.Get("Access-Control-Allow-Origin")
	if origin == "" || len(origin) > 255 || allow != "*" && allow != origin {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.allowed == nil || len(o.allowed) >= maxOrigins {
		o.allowed = make(map[string][2]string)
	}
	o.allowed[origin] = [2]string{allow, h.Get("Access-Control-Allow-Credentials")}
}

// allow sets what the origin of a request is allowed.
func (o *origins) allow(origin string, h http.Header) {
	o.mu.Lock()
	values, ok := o.allowed[origin]
	o.mu.Unlock()
	if !ok || h.Get("Access-Control-Allow-Origin") != "" {
		return
	}
	h.Set("Access-Control-Allow-Origin", values[0])
	if values[1] != "" {
		h.Set("Access-Control-Allow-Credentials", values[1])
	}
	h.Add("Vary", "Origin")
	exposeHeaders(h)
}
