package api

import (
	"cmp"
	"slices"
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

	// Readers are the consumers of the current version that subscribe to the topic.
	// An event that nobody reads stays pending.
	Readers []keep.HandlerName `json:"readers"`
}

// TopicOf returns the object of c, for which readers subscribe.
func TopicOf(c keep.TopicCount, readers []keep.HandlerName) Topic {
	return Topic{Workflow: c.Workflow, Topic: c.Topic, Pending: c.Pending, Reserved: c.Reserved, Consumed: c.Consumed,
		Skipped: c.Skipped, Readers: list(readers)}
}

// A Workflow is a named automation with its current version and its handlers.
type Workflow struct {
	Name keep.WorkflowName `json:"name"`

	// Names are those that its scripts gave it after its first one, newest first.
	Names     []keep.WorkflowName `json:"names"`
	Version   string              `json:"version"`
	Paused    bool                `json:"paused"`
	PauseNote *string             `json:"pause_note"` // why it is paused, in the words of who paused it; null: nobody said
	Intent    *string             `json:"intent"`     // what it is for, in the words of who asked for it; null: nobody said
	Topics    []keep.TopicName    `json:"topics"`
	Handlers  []Handler           `json:"handlers"`   // in the order of the script
	OnBlocked string              `json:"on_blocked"` // stop or poll
	OpenRun   *keep.RunID         `json:"open_run"`   // the oldest run that is not finished
	OpenRuns  []keep.RunID        `json:"open_runs"`  // all of them, oldest first
	CreatedAt Time                `json:"created_at"`
	UpdatedAt Time                `json:"updated_at"`

	History []Act `json:"history,omitzero"` // what people did with it and its producers and jobs, oldest first; absent in lists

	Source map[string]string `json:"source,omitempty" doc:"text of the files of the version by name; when it is asked for"`
}

// A Handler is a producer, consumer or job, and when it comes next.
type Handler struct {
	Name      keep.HandlerName `json:"name"`
	Kind      keep.Kind        `json:"kind"`
	Subscribe []keep.TopicName `json:"subscribe"`
	Publishes []keep.TopicName `json:"publishes"` // the topics to which it may
	Order     *string          `json:"order"`     // consumers: all, key or none
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
// host remembers of its handlers, and open its runs that are not closed.
func WorkflowOf(w keep.Workflow, d keep.Deployment, states []keep.HandlerState, open []keep.Run) Workflow {
	out := Workflow{
		Name: w.Name, Names: list(namesOf(d.Definition)), Version: w.Version.String(), Paused: w.Paused, PauseNote: orNull(w.PauseNote), Intent: orNull(d.Definition.Intent), Topics: list(d.Definition.Topics),
		Handlers: []Handler{}, OnBlocked: d.Definition.OnBlocked.String(), OpenRuns: []keep.RunID{}, CreatedAt: Time(w.CreatedAt), UpdatedAt: Time(w.UpdatedAt),
	}
	for _, r := range open {
		out.OpenRuns = append(out.OpenRuns, r.ID)
	}
	if slices.Sort(out.OpenRuns); len(open) > 0 {
		out.OpenRun = &out.OpenRuns[0]
	}
	known := make(map[keep.HandlerName]keep.HandlerState, len(states))
	for _, s := range states {
		known[s.Handler] = s
	}
	for _, h := range d.Definition.Handlers {
		s := known[h.Name]
		v := Handler{
			Name: h.Name, Kind: h.Kind, Subscribe: list(h.Subscribe), Publishes: list(d.Definition.MayPublish(h)),
			LastRun: orNull(s.LastRun), LastAt: timeOf(s.LastAt),
		}
		if h.Kind == keep.Consumer {
			v.WakeAt = timeOf(s.WakeAt)
			order := h.Order.String()
			v.Order = &order
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

// namesOf returns the names that a workflow had after its first one.
func namesOf(d keep.Definition) (names []keep.WorkflowName) {
	for _, r := range d.Renamed {
		if r.Kind == keep.RenamedWorkflow {
			names = append(names, keep.WorkflowName(r.Name))
		}
	}
	return names
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

// A Version is one script of a workflow: deployed, or waiting for a person.
type Version struct {
	Workflow  keep.WorkflowName  `json:"workflow"`
	Version   string             `json:"version"`
	State     VersionState       `json:"state" enum:"current,waiting,replaced,rejected"`
	Question  *keep.EscalationID `json:"question"` // of one that a person was, or is, asked about
	Hash      string             `json:"hash"`
	Entry     string             `json:"entry"`
	CreatedAt Time               `json:"created_at"`
}

// A VersionState says what a version is to its workflow.
type VersionState string

// States of versions.
const (
	VersionCurrent  VersionState = "current"
	VersionWaiting  VersionState = "waiting"  // a person is asked whether it may call what it calls
	VersionReplaced VersionState = "replaced" // by a later one
	VersionRejected VersionState = "rejected" // by a person; it never ran
)

// VersionsOf returns the versions of a workflow, newest first. current is the one that is
// in force.
func VersionsOf(current keep.Version, deployed []keep.Deployment, proposed []keep.Proposal) []Version {
	out := []Version{}
	asked := make(map[keep.Version]*keep.EscalationID)
	for _, p := range proposed {
		asked[p.Version] = &p.Question
		state := map[keep.ProposalState]VersionState{keep.ProposalWaiting: VersionWaiting, keep.ProposalRejected: VersionRejected,
			keep.ProposalReplaced: VersionReplaced}[p.State]
		if state != "" { // else it was deployed
			out = append(out, versionOf(p.Deployment, state, &p.Question))
		}
	}
	for _, d := range deployed {
		state := VersionReplaced
		if d.Version == current {
			state = VersionCurrent
		}
		out = append(out, versionOf(d, state, asked[d.Version]))
	}
	slices.SortStableFunc(out, func(a, b Version) int { return -compareVersions(a.Version, b.Version) })
	return out
}

// compareVersions compares versions as texts.
func compareVersions(a, b string) int {
	v, _ := keep.ParseVersion(a)
	w, _ := keep.ParseVersion(b)
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor))
}

func versionOf(d keep.Deployment, s VersionState, q *keep.EscalationID) Version {
	return Version{Workflow: d.Workflow, Version: d.Version.String(), State: s, Question: q, Hash: d.Hash, Entry: d.Entry, CreatedAt: Time(d.CreatedAt)}
}
