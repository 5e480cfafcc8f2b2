package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// This file keeps what a cache between us and the service answers from being evidence. It is what the service answered before: that there
// was nothing then says nothing of a call that was made since.

// uncached asks caches to ask the service. A connection that configures the header keeps its own.
func uncached(req *http.Request) {
	if req.Header.Get("Cache-Control") == "" {
		req.Header.Set("Cache-Control", "no-cache")
	}
}

// cached says how old an answer is that a cache gave for the service (RFC 9111, 5.1); empty: nothing says that one did. Some caches say 0
// of what they have just asked for.
func (a answer) cached() string {
	age := strings.TrimSpace(a.header.Get("Age"))
	if _, err := strconv.ParseUint(age, 10, 64); err != nil && !errors.Is(err, strconv.ErrRange) || strings.Trim(age, "0") == "" {
		return ""
	}
	return fmt.Sprintf("a cache answered, with what the service said %.20s s before", age)
}

// fresh returns a verdict that an answer shows. One of a cache shows an effect, and nothing else.
func (a answer) fresh(verdict connector.Answer) connector.Answer {
	if why := a.cached(); why != "" && verdict.Verdict != connector.Happened {
		return retry(", but " + why)
	}
	return verdict
}

// ofNow returns a failure if a question can only be answered by the service itself and a cache has answered it.
func (m *mutator) ofNow(a answer, mut question) error {
	if why := a.cached(); why != "" && mut.now {
		return m.failf(keep.ClassTransient, "cached", "reconcile: %s", why)
	}
	return nil
}
