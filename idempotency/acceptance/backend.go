package acceptance

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Backend is an endpoint that does as a request's headers say, and counts. The
// zero Backend is ready; it is safe for concurrent use.
//
//	X-Do-Status: 422        the status; 201 if missing
//	X-Do-Body: BASE64       the body; one that names the run if missing
//	X-Do-Header: Name: v    a header of the answer, as often as it is there
//	X-Do-Size: 9000000      that many bytes instead of a body
//	X-Do-Wait: 200ms        answers that much later
//	X-Do-Cut: yes           hangs up instead of an answer
//
// GET with X-Do-Count answers how often requests with that key were executed.
type Backend struct {
	// mu protects the field below.
	mu   sync.Mutex
	runs map[string]int
}

// ServeHTTP does as it is told.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if k := r.Header.Get("X-Do-Count"); k != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		fmt.Fprint(w, b.runs[k])
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	n := b.count(r)
	if d, err := time.ParseDuration(r.Header.Get("X-Do-Wait")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	if r.Header.Get("X-Do-Cut") != "" {
		panic(http.ErrAbortHandler)
	}
	for _, line := range r.Header["X-Do-Header"] {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Add(name, value)
	}
	status, err := strconv.Atoi(r.Header.Get("X-Do-Status"))
	if err != nil {
		status = http.StatusCreated
	}
	body := []byte(fmt.Sprintf(`{"run":%d}`, n))
	if text := r.Header.Get("X-Do-Body"); text != "" {
		body, _ = base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "b"))
	}
	w.WriteHeader(status)
	if size, err := strconv.Atoi(r.Header.Get("X-Do-Size")); err == nil {
		_, _ = io.CopyN(w, zeros{}, int64(size))
		return
	}
	_, _ = w.Write(body)
}

func (b *Backend) count(r *http.Request) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs == nil {
		b.runs = make(map[string]int)
	}
	id := r.Header.Get("X-Do-Id")
	b.runs[id]++
	return b.runs[id]
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
