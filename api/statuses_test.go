package api_test

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
)

// Each status that a request can be refused with before it is looked at is in the document: of a body that is too large, of what this
// host does not do, of a key that nobody keeps, and of what is named in a query and is not there. A new operation is asked, too.
func TestRefusalsFitTheDocument(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Keys = nil }) // nor has it a Deployer and a Replayer
	d := describedBy(t, w)
	const script = `{"file":"a.js","source":"x"}`
	large := `{"source":"` + strings.Repeat("x", 9<<20) + `"}`
	for _, path := range slices.Sorted(maps.Keys(d.doc.Paths)) {
		at := placeholder.ReplaceAllString(path, "nothing")
		for _, method := range []string{"POST", "PUT"} {
			op, ok := d.doc.Paths[path][strings.ToLower(method)]
			if !ok {
				continue
			}
			if op.RequestBody != nil {
				a := w.ask("ann admin", method, at, large)
				a.want(t, 413, "problems/too-large")
				d.fits(t, method, path, a)
			}
			for _, body := range []string{"{}", script, `{"script":` + script + `}`} {
				d.fits(t, method, path, w.ask("ann admin", method, at, body, "If-None-Match", "*"))
			}
			if slices.ContainsFunc(op.Parameters, func(p struct{ Name string }) bool { return p.Name == "Idempotency-Key" }) {
				d.fits(t, method, path, w.ask("ann admin", method, at, "{}", "Idempotency-Key", "k"))
			}
		}
	}
	for _, path := range []string{"/why", "/ids/run", "/ids/nothing", "/workflows/invoices/ids"} {
		at := api.Prefix + strings.NewReplacer("/ids/run", "/ids/{noun}", "/ids/nothing", "/ids/{noun}", "invoices", "{workflow}").Replace(path)
		for _, name := range []string{"nothing", "run_"} {
			d.fits(t, "GET", at, w.ask("ann viewer", "GET", api.Prefix+path+"?"+url.Values{map[bool]string{true: "id", false: "name"}[path == "/why"]: {name}}.Encode(), ""))
		}
	}
}
