package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/store/memory"
)

// Hosts in containers share a name: a drain by it is of the one that is alive, and of none if two are. It drained the newest, whichever
// a person meant, and also one that was gone.
func TestDrainByAName(t *testing.T) {
	shared := memory.New().Share(time.Now)
	w := newWorld(t, func(c *api.Config) { c.Hosts = shared })
	beat := func(id keep.HostID, ttl time.Duration) {
		t.Helper()
		if _, err := shared.Heartbeat(t.Context(), keep.Host{ID: id, Name: "keep:1", Version: "v1"}, ttl); err != nil {
			t.Fatal(err)
		}
	}
	drained := func() (out []string) {
		t.Helper()
		all, err := shared.Hosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if h.Draining {
				out = append(out, string(h.ID))
			}
		}
		return out
	}
	beat("host_a", time.Hour)
	beat("host_b", time.Hour)
	w.ask("ann operator", "POST", api.Prefix+"/hosts/keep:1/drain", `{}`).want(t, 422, "host_a")
	if got := drained(); len(got) > 0 {
		t.Errorf("of two hosts of that name %s is drained", got)
	}
	w.ask("ann operator", "POST", api.Prefix+"/hosts/host_a/drain", `{}`).want(t, 200, `"id":"host_a"`)
	if got := strings.Join(drained(), " "); got != "host_a" {
		t.Errorf("by its id %s is drained", got)
	}
}
