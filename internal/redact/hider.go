package redact

import (
	"slices"
	"sync"
)

// MaxOld is how many secrets are remembered after they were replaced: the access and refresh
// tokens of 16 hours, where both are renewed each hour. A service may return one of them, as it
// keeps what it was sent. It rarely returns one that is older, and every text is searched for each.
const MaxOld = 32

// Recent returns the secrets that are in use now, and of those before the first MaxOld others, each
// once. Both lists have the newest first, and so has what is returned.
func Recent(now, before []string) []string {
	var list []string
	end := len(now)
	for i, s := range slices.Concat(now, before) {
		if i == len(now) {
			end = len(list) + MaxOld
		}
		if len(list) < end && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// A Hider is a Redactor of secrets that may change: those of a configuration, and those that each
// request brings. The zero Hider knows none. It is safe for concurrent use.
type Hider struct {
	mu         sync.RWMutex // protects the fields below
	r          Redactor
	configured []string
	recent     []string // of requests
}

// Add hides further secrets for as long as h is used.
func (h *Hider) Add(secrets ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.configured = append(h.configured, secrets...)
	h.r = New(slices.Concat(h.configured, h.recent)...)
}

// Remember hides the secrets of a request, all that it has, and the last MaxOld of other requests.
func (h *Hider) Remember(secrets ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	isNew := func(s string) bool { return !slices.Contains(h.recent, s) }
	if !slices.ContainsFunc(secrets, isNew) {
		return
	}
	h.recent = Recent(secrets, h.recent)
	h.r = New(slices.Concat(h.configured, h.recent)...)
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
