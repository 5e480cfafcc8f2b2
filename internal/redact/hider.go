package redact

import (
	"slices"
	"sync"
)

// A Hider is a Redactor of secrets that may change: it learns new ones, and forgets none, since
// an answer may hold one that is old by now. The zero Hider knows none. It is safe for
// concurrent use.
type Hider struct {
	mu      sync.RWMutex // protects the fields below
	r       Redactor
	secrets []string
}

// Add hides further secrets.
func (h *Hider) Add(secrets ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := false
	for _, s := range secrets {
		if !slices.Contains(h.secrets, s) {
			h.secrets, fresh = append(h.secrets, s), true
		}
	}
	if fresh {
		h.r = New(h.secrets...)
	}
}

func (h *Hider) redactor() Redactor {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.r
}

// Text returns s without secrets.
func (h *Hider) Text(s string) string { return h.redactor().Text(s) }

// JSON returns raw without secrets.
func (h *Hider) JSON(raw []byte) []byte { return h.redactor().JSON(raw) }
