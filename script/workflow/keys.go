package workflow

import (
	"cmp"
	"slices"
	"strings"
)

// elsewhere says where a key belongs that authors put in the wrong object.
var elsewhere = map[string]string{
	"schedule":  "schedules are for producers and jobs; a consumer wakes on events and at its wakeAt",
	"subscribe": "only consumers subscribe",
	"publishes": "jobs publish nothing; use a producer or the next of a consumer",
	"onBlocked": `write on_blocked: "poll", beside name`,
	"order":     "only consumers have an order",
	"key":       "only consumers with order: \"key\" have a key",
	"trigger":   "a producer or job has a schedule; a consumer is triggered by its topics",
	"workflow":  "handlers go into producers, consumers and jobs",
	"timezone":  "a timezone belongs into schedule, beside cron",
	"cron":      `write schedule: { cron: "0 9 * * 1-5", timezone: "Europe/Berlin" }`,
	"interval":  `write schedule: { interval: "5m" }`,
	"every":     `write interval: "5m"`,
	"handler":   "a consumer has prepare, mutate and next",
	"version":   "Keep numbers versions itself",
}

// keys reports each key of v that is not known.
func (c *checker) keys(at location, v value, known []string) {
	for _, m := range v.members {
		if slices.Contains(known, m.key) || m.value.undefined() {
			continue
		}
		fix := didYouMean(m.key, known)
		fix = cmp.Or(fix, elsewhere[m.key])
		if fix == "" {
			fix = "remove it"
			if len(known) > 0 {
				fix = "known here: " + strings.Join(known, ", ")
			}
		}
		c.problem(at.key(m.key), fix, "unknown key %q", short(m.key))
	}
}
