package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/ceiling"
)

// hostileBodies are bodies of requests that make a reader compute or hold much, up to what a
// request may have.
func hostileBodies() map[string]string {
	const long = 7 << 20
	fill := func(text string) string { return strings.Repeat(text, long/len(text)-8) }
	return map[string]string{
		"brackets":       fill("["),
		"nested objects": strings.Repeat(`{"payload":`, long/12) + "1" + strings.Repeat("}", long/12),
		"names":          `{` + strings.TrimSuffix(fill(`"payload":1,`), ",") + `}`,
		"long number":    `{"payload":` + fill("9") + `}`,
		"exponents":      `{"payload":[` + strings.TrimSuffix(fill(`1e999999,`), ",") + `],"messageId":"m","result":1e999999}`,
		"escapes":        `{"messageId":"` + fill(`\u0001`) + `"}`,
		"names of all":   `{"ids":[` + strings.TrimSuffix(fill(`"m1",`), ",") + `],"inputs":[` + strings.TrimSuffix(fill(`"m1",`), ",") + `]}`,
		"no JSON":        fill("a=b&"),
	}
}

// hostileQueries are queries of lists.
func hostileQueries() map[string]string {
	return map[string]string{
		"limit":   "limit=99999999999999999999999",
		"cursor":  "cursor=" + strings.Repeat("x", 200_000),
		"search":  "q=" + strings.Repeat("%25_", 50_000),
		"text":    "q=" + strings.Repeat("%22*(", 40),
		"values":  strings.Repeat("workflow=a&", 50_000),
		"names":   strings.Repeat("x[]=a&", 50_000),
		"encoded": "workflow=" + strings.Repeat("%00", 100_000),
	}
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// Law bounded: whatever somebody with every right sends to any door of the API, it takes
// little of memory and processor, and ends with an answer.
func TestHostileRequests(t *testing.T) {
	ceiling.Need(t)
	w := newWorld(t, nil)
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(w.ask("ann owner", "GET", api.Prefix+"/openapi.json", "").Body), &doc); err != nil {
		t.Fatal(err)
	}
	bodies, queries := hostileBodies(), hostileQueries()
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		at := placeholder.ReplaceAllString(path, "invoices")
		for method := range doc.Paths[path] {
			switch method {
			case "get":
				if path == api.Prefix+"/events" {
					continue // a stream, which has no end
				}
				t.Run("GET "+path, func(t *testing.T) {
					ceiling.Ceiling{CPU: 2 * time.Second, Memory: 64 << 20}.Check(t, func() {
						for name, q := range queries {
							w.attack(t, name, "GET", at+"?"+q, nil)
						}
					})
				})
			case "post", "put":
				for name, body := range bodies {
					t.Run(strings.ToUpper(method)+" "+path+" "+name, func(t *testing.T) {
						ceiling.Ceiling{CPU: 3 * time.Second, Memory: 192 << 20}.Check(t, func() {
							w.attack(t, name, strings.ToUpper(method), at, strings.NewReader(body))
						})
					})
				}
			}
		}
	}
}

// attack sends a request as the owner, which must be answered, and by no failure of ours.
func (w *world) attack(t *testing.T, name, method, path string, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("As", "ann owner")
	r.Header.Set("Content-Type", "application/json")
	res, err := w.server.Client().Do(r)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented {
		t.Errorf("%s: status %d, %d bytes, %v", name, res.StatusCode, n, err)
	}
}
