package api_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
)

// Each path that the document has takes the methods that it has there, and says so to every other one (RFC 9110, 15.5.6).
func TestMethodNotAllowed(t *testing.T) {
	w := newWorld(t, nil)
	paths := describedBy(t, w).doc.Paths
	for path := range paths {
		at := placeholder.ReplaceAllString(path, "nothing")
		methods := methodsAt(paths, at)
		allow := strings.ToUpper(strings.Join(methods, ", "))
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"} {
			if slices.Contains(methods, strings.ToLower(method)) {
				continue
			}
			a := w.ask("ann admin", method, at, "")
			if a.Status != 405 || a.Header.Get("Allow") != allow {
				t.Errorf("%s %s: status %d, Allow %q, want 405 and %q", method, path, a.Status, a.Header.Get("Allow"), allow)
			}
			if method != "HEAD" {
				a.want(t, 405, "problems/method", at+" takes "+allow+", not "+method)
			}
		}
	}
	if a := w.ask("ann viewer", "HEAD", api.Prefix+"/events", ""); a.Status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD of the stream: %d %v", a.Status, a.Header)
	}
	w.ask("ann admin", "POST", api.Prefix+"/openapi.json", "").want(t, 405, "takes GET, HEAD, not POST")
	w.ask("ann admin", "POST", api.Prefix+"/runs", "").want(t, 405, "takes GET, HEAD, not POST")
	for _, path := range []string{"/nothing", "/runs/run_1/nothing", "/"} {
		a := w.ask("ann admin", "POST", api.Prefix+path, "")
		if a.want(t, 404, "problems/no-route"); a.Header.Get("Allow") != "" {
			t.Errorf("POST %s, which is no route, allows %q", path, a.Header.Get("Allow"))
		}
	}
}

// methodsAt returns the methods of the operations whose path at is, in the order of Allow.
func methodsAt(paths map[string]map[string]documented, at string) []string {
	const order = "get head post put patch delete"
	found := map[string]bool{}
	for path, ops := range paths {
		if regexp.MustCompile("^" + placeholder.ReplaceAllString(path, "[^/]+") + "$").MatchString(at) {
			for method := range ops {
				found[method] = true
			}
		}
	}
	if found["get"] {
		found["head"] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int { return strings.Index(order, a) - strings.Index(order, b) })
}
