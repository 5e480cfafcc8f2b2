package web

import (
	"net/http"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/host/feed"
)

// hooksData is what came to hooks.
type hooksData struct{ Hooks []hookRow }

// A hookRow is a hook; times are zero if nothing came.
type hookRow struct {
	api.Hook
	Last, LastRefused time.Time
	Why               string // the last refusal
}

// hooks lists the hooks with what came to them. The counts make no change of their own, so the page is
// read again when events come.
func (s *site) hooks(r *http.Request) (page, error) {
	p := page{Title: "Hooks", Section: "connections", Watch: []feed.Kind{feed.Event}}
	var d hooksData
	if s.cfg.Hooks != nil {
		all, err := s.cfg.Hooks(r.Context())
		if err != nil {
			return p, err
		}
		for _, h := range all {
			row := hookRow{Hook: h, Last: timeOf(h.LastAt), LastRefused: timeOf(h.LastRefusedAt)}
			if h.LastRefusal != nil {
				row.Why = *h.LastRefusal
			}
			d.Hooks = append(d.Hooks, row)
		}
	}
	p.Data = d
	return p, nil
}

// timeOf returns the time of an object of the API; zero if there is none.
func timeOf(t *api.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Time(*t)
}
