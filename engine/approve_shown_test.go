package engine_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A question has the whole payload, how its tool wants it to be read, what the script says
// of it, and what is there now or why that is not known. A connector that ignores the end of the time for that is not waited for.
func TestApprovalShowsTheCall(t *testing.T) {
	for name, tt := range map[string]struct {
		fails error
		takes time.Duration
		now   string
		why   bool
	}{
		"read": {nil, 0, `{"read":true}`, false}, "not readable": {keep.Failf(keep.ClassTransient, "http-503", "down"), 0, "", true},
		"not returned": {nil, 6 * time.Hour, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.approve = "always"
				w.service.onRead = func() error {
					time.Sleep(tt.takes)
					return tt.fails
				}
				view := keep.View{Kind: keep.ViewRow, Parts: []keep.ViewPart{{Role: "key", Param: "id"}}}
				w.connect = func() []connector.Connection {
					c := w.service.connection()
					create := c.Tools[0].(asker)
					create.spec.View, create.spec.Now = view, "get"
					c.Tools[0] = create
					return []connector.Connection{c}
				}
				w.deploy()
				w.publish("in", "a")
				start := time.Now()
				if w.run(); time.Since(start) > time.Hour {
					t.Errorf("Run ended after %s", time.Since(start))
				}
				defer time.Sleep(tt.takes) // it returns
				q := w.questions()[0]
				a := q.Approval
				if a == nil || string(a.Payload) != `{"id":"a","text":"hello"}` || a.View.Kind != view.Kind || string(a.Now) != tt.now || (a.NowWhy != "") != tt.why {
					t.Fatalf("the question shows %+v", a)
				}
				var claim struct{ Title string }
				if err := json.Unmarshal(a.Claim, &claim); err != nil || claim.Title != "do a" {
					t.Errorf("the claim is %s, %v", a.Claim, err)
				}
			})
		})
	}
}
