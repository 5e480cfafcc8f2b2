package web

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// A raise ends when it says, or is refused.
func TestHoursOfARaise(t *testing.T) {
	for hours, good := range map[string]bool{"": true, "1.5": true, "0": false, "-1": false, "9000": false, "NaN": false, "Inf": false, "-Inf": false} {
		d, err := withLimit(&http.Request{PostForm: url.Values{"limit": {"7"}, "hours": {hours}}}, keep.Decision{Action: keep.Raise}, access.Identity{Role: access.Admin})
		if (err == nil) != good || good && hours != "" && !d.Until.After(time.Now()) {
			t.Errorf("%q hours end at %s, %v", hours, d.Until, err)
		}
	}
	for _, limit := range []string{"NaN", "Inf", "-1", "0", ""} {
		if d, err := withLimit(&http.Request{PostForm: url.Values{"limit": {limit}}}, keep.Decision{Action: keep.Raise}, access.Identity{Role: access.Admin}); err == nil {
			t.Errorf("the limit is raised to %v by %q", d.Limit, limit)
		}
	}
}
