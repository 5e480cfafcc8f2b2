package web_test

import (
	"math"
	"time"

	"github.com/keep-run/keep"
)

// past gives workflows a day that was counted, with an hour in which runs failed.
func (w *world) past(names ...keep.WorkflowName) {
	w.Helper()
	now := time.Now().UTC()
	var list []keep.Counter
	for k, name := range names {
		for ago := 1; ago < 24; ago++ {
			c := keep.Counter{Step: keep.Hour, At: now.Add(-time.Duration(ago) * time.Hour).Truncate(time.Hour), Workflow: name, Idle: 12}
			c.Committed = int(40*(1+math.Sin(float64(ago+3*k)/4))) / (k + 1)
			c.Took = make([]int, len(keep.TookBounds())+1)
			c.Took[3+ago%3], c.Took[8] = c.Committed-c.Committed/10, c.Committed/10
			if ago == 7 && k < 2 {
				c.Failed = 9
			}
			c.Waiting, c.Asked = ago%3, (23-ago)/6
			list = append(list, c)
		}
	}
	w.must(w.db.PutCounters(w.Context(), list, nil))
	w.must(w.host.Count(w.Context()))
}
