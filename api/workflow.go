package api

import (
	"strconv"
	"time"

	"github.com/keep-run/keep"
)

// A Topic says how many events of a topic are in which state.
type Topic struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Topic    keep.TopicName    `json:"topic"`
	Pending  int               `json:"pending"`  // free ones
	Reserved int               `json:"reserved"` // pending, and pinned by a run
	Consumed int               `json:"consumed"`
	Skipped  int               `json:"skipped"`
}

// TopicOf returns the object of c.
func TopicOf(c keep.TopicCount) Topic { return Topic(c) }

// A Workflow is a named automation with its current version and its handlers.
type Workflow struct {
	Name      keep.WorkflowName `json:"name"`
	Version   string            `json:"version"`
	Paused    bool              `json:"paused"`
	Topics    []keep.TopicName  `json:"topics"`
	Handlers  []Handler         `json:"handlers"` // in the order of the script
	OpenRun   *keep.RunID       `json:"open_run"` // the run that is not finished
	CreatedAt Time              `json:"created_at"`
	UpdatedAt Time              `json:"updated_at"`
}

// A Handler is a producer, consumer or job, and when it comes next.
type Handler struct {
	Name      keep.HandlerName `json:"name"`
	Kind      keep.Kind        `json:"kind"`
	Subscribe []keep.TopicName `json:"subscribe"`
	Publishes []keep.TopicName `json:"publishes"` // null: any topic of the workflow
	Schedule  *Schedule        `json:"schedule"`
	NextRunAt *Time            `json:"next_run_at"` // producers and jobs
	WakeAt    *Time            `json:"wake_at"`     // consumers
	LastRun   *keep.RunID      `json:"last_run"`
	LastAt    *Time            `json:"last_at"`
}

// A Schedule says when a producer or job is due.
type Schedule struct {
	Interval *string `json:"interval"`
	Cron     *string `json:"cron"`
	Timezone *string `json:"timezone"`
}

// WorkflowOf returns the object of w. d is its current version, states what the
// host remembers of its handlers, and open its run that is not closed; a zero
// open means none.
func WorkflowOf(w keep.Workflow, d keep.Deployment, states []keep.HandlerState, open keep.Run) Workflow {
	out := Workflow{
		Name: w.Name, Version: w.Version.String(), Paused: w.Paused, Topics: list(d.Definition.Topics),
		Handlers: []Handler{}, OpenRun: orNull(open.ID), CreatedAt: Time(w.CreatedAt), UpdatedAt: Time(w.UpdatedAt),
	}
	known := make(map[keep.HandlerName]keep.HandlerState, len(states))
	for _, s := range states {
		known[s.Handler] = s
	}
	for _, h := range d.Definition.Handlers {
		s := known[h.Name]
		v := Handler{
			Name: h.Name, Kind: h.Kind, Subscribe: list(h.Subscribe), Publishes: h.Publishes,
			LastRun: orNull(s.LastRun), LastAt: timeOf(s.LastAt),
		}
		if h.Kind == keep.Consumer {
			v.WakeAt = timeOf(s.WakeAt)
		} else {
			v.NextRunAt = timeOf(s.NextAt)
		}
		if !s.RequestedAt.IsZero() {
			v.NextRunAt = timeOf(s.RequestedAt)
		}
		if !h.Schedule.IsZero() {
			v.Schedule = scheduleOf(h.Schedule)
		}
		out.Handlers = append(out.Handlers, v)
	}
	return out
}

// scheduleOf returns the object of s.
func scheduleOf(s keep.Schedule) *Schedule {
	out := &Schedule{Cron: orNull(s.Cron), Timezone: orNull(s.Timezone)}
	if s.Interval > 0 {
		text := interval(s.Interval)
		out.Interval = &text
	}
	return out
}

// interval writes a duration as scripts do: "90s", "5m", "1h", "1d".
func interval(d time.Duration) string {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return d.String()
}

// A Version is one deployed script of a workflow.
type Version struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	Version   string            `json:"version"`
	Hash      string            `json:"hash"`
	Entry     string            `json:"entry"`
	CreatedAt Time              `json:"created_at"`
}

// VersionOf returns the object of d.
func VersionOf(d keep.Deployment) Version {
	return Version{Workflow: d.Workflow, Version: d.Version.String(), Hash: d.Hash, Entry: d.Entry, CreatedAt: Time(d.CreatedAt)}
}
