package web

import (
	"net/http"
	"runtime"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/access"
)

// settingsData is what is in force. Nothing of it is changed here: it comes from
// keep.toml.
type settingsData struct {
	Who     access.Identity
	Policy  []setting
	Limits  []setting
	Levels  []keep.Level
	Version []setting
}

// A setting is a name of keep.toml, its value and what it does.
type setting struct{ Name, Value, Meaning string }

func (s *site) settings(r *http.Request) (page, error) {
	p := s.policy
	id, _ := access.From(r.Context())
	d := settingsData{
		Who: id,
		Policy: []setting{
			{"retry.first", human(p.Retry.First), "wait before a failed run is tried again; doubles each time"},
			{"retry.max", human(p.Retry.Max), "longest wait between tries"},
			{"retry.attempts", number(p.Retry.Attempts), "repeats after the first try; then a person is asked"},
			{"reconcile.inline", human(p.Reconcile.Inline), "how long the lookup right after a doubt may take"},
			{"reconcile.first", human(p.Reconcile.First), "wait before a service is asked again; doubles each time"},
			{"reconcile.max", human(p.Reconcile.Max), "longest wait between lookups"},
			{"reconcile.attempts", number(p.Reconcile.Attempts), "lookups before a person is asked"},
			{"wake", human(p.Wake.Min) + " to " + human(p.Wake.Max), "when a script that asks to be woken is woken"},
			{"default_interval", human(p.DefaultInterval), "between the runs of a producer or job without a schedule"},
			{"on_item_blocked", string(p.OnItemBlocked), "what a job does about an item whose outcome is unknown"},
			{"shutdown", human(p.Shutdown), "how long a stop waits for calls that are out"},
		},
		Limits: []setting{
			{"payload", byteCount(p.Limits.Payload), "of one event, or of a call's params"},
			{"reservations", number(p.Limits.Reservations), "events that one run reserves"},
			{"publishes", number(p.Limits.Publishes), "events that one run publishes"},
			{"causes", number(p.Limits.Causes), "inputs that one event comes from"},
			{"checkpoint value", byteCount(p.Limits.KVValue), "of one value of a producer's checkpoint"},
			{"checkpoint", byteCount(p.Limits.KVTotal), "of one producer's whole checkpoint"},
			{"peek", number(p.Limits.Peek), "events that one peek returns"},
		},
		Levels: keep.Levels(),
		Version: []setting{
			{"Keep", s.cfg.Version, ""},
			{"Go", runtime.Version(), ""},
			{"Platform", runtime.GOOS + "/" + runtime.GOARCH, ""},
		},
	}
	return page{Title: "Settings", Section: "settings", Data: d}, nil
}
