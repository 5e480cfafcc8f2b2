package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/law/key"
)

func texts[S ~string](all []S) (out []string) {
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

// A filter by status or state takes the values that there are, and refuses others: an empty list
// would look as if there was nothing.
func TestFiltersRefuseWhatIsNoStatus(t *testing.T) {
	w := newWorld(t, nil)
	values := map[string][]string{
		"/runs": texts(keep.RunStatuses()), "/mutations": texts(keep.MutationStates()), "/inputs": texts(keep.InputStatuses()),
		"/items": texts(keep.ItemStatuses()), "/topics/events": texts(keep.ListedEventStatuses()), "/keys": texts(key.States()), "/proposals": texts(api.ProposalStates()),
		"/workflows/{workflow}/events": texts(keep.ListedEventStatuses()),
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   struct{ Enum []string }
			}
		}
	}
	if err := json.Unmarshal([]byte(w.ask("ann viewer", "GET", api.Prefix+"/openapi.json", "").Body), &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, of := range doc.Paths {
		for _, p := range of["get"].Parameters {
			if p.In != "query" || p.Name != "status" && p.Name != "state" {
				continue
			}
			seen++
			want := values[strings.TrimSuffix(strings.TrimPrefix(path, api.Prefix), "/counts")]
			got := slices.Sorted(slices.Values(p.Schema.Enum))
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%s: %s is one of %v, want %v", path, p.Name, got, want)
			}
			real := strings.ReplaceAll(path, "{workflow}", "invoices")
			w.ask("ann viewer", "GET", real+"?"+p.Name+"=failed", "").want(t, map[bool]int{true: 200, false: 422}[slices.Contains(want, "failed")])
			w.ask("ann viewer", "GET", real+"?"+p.Name+"=bogus", "").want(t, 422, "query."+p.Name, fmt.Sprint(want[0]))
			for _, value := range append(want, "") {
				w.ask("ann viewer", "GET", real+"?"+p.Name+"="+url.QueryEscape(value), "").want(t, 200)
			}
		}
	}
	if seen < 12 {
		t.Errorf("%d filters by status or state, want at least 12", seen)
	}
}
