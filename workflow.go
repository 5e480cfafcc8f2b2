package keep

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A WorkflowName is chosen by the author and unique in a database.
type WorkflowName string

// A TopicName is chosen by the author and unique within its workflow.
type TopicName string

// A HandlerName names a producer, consumer or job; unique within its workflow.
type HandlerName string

var (
	workflowName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })
	topicName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`) })
	handlerName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,63}$`) })
)

// Validate reports what is wrong with the name and which names are good.
func (n WorkflowName) Validate() error {
	if !workflowName().MatchString(string(n)) {
		return fmt.Errorf("workflow name %q: use 1 to 64 letters, digits, dots, dashes or underscores, starting with a letter or digit", n)
	}
	return nil
}

// Validate reports what is wrong with the name and which names are good.
func (n TopicName) Validate() error {
	if !topicName().MatchString(string(n)) {
		return fmt.Errorf("topic name %q: use 1 to 128 letters, digits or . _ : / -, starting with a letter or digit", n)
	}
	return nil
}

// Validate reports what is wrong with the name and which names are good.
func (n HandlerName) Validate() error {
	if !handlerName().MatchString(string(n)) {
		return fmt.Errorf("handler name %q: use a JavaScript identifier of at most 64 ASCII characters", n)
	}
	return nil
}

// A Version is one deployed script of a workflow. A person's deploy raises
// Major; a repair raises Minor. The zero Version means "none".
type Version struct {
	Major, Minor int
}

// ParseVersion reads what String wrote.
func ParseVersion(s string) (Version, error) {
	major, minor, ok := strings.Cut(s, ".")
	if !ok {
		return Version{}, fmt.Errorf("version %q: want major.minor", s)
	}
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || a < 0 || b < 0 {
		return Version{}, fmt.Errorf("version %q: want major.minor", s)
	}
	return Version{a, b}, nil
}

// String returns "major.minor".
func (v Version) String() string { return strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) }

// IsZero reports whether v names no version.
func (v Version) IsZero() bool { return v == Version{} }

// After reports whether v is later than o.
func (v Version) After(o Version) bool {
	return v.Major > o.Major || v.Major == o.Major && v.Minor > o.Minor
}

// A Kind says what a handler is for, and so which phases its runs have.
type Kind string

const (
	// Producer is read-only ingress: it reads services and publishes events.
	Producer Kind = "producer"

	// Consumer reserves events, makes at most one mutation, and publishes.
	Consumer Kind = "consumer"

	// Job loops over logical items on a schedule.
	Job Kind = "job"
)

// Kinds returns every kind.
func Kinds() []Kind { return []Kind{Producer, Consumer, Job} }

// A Schedule says when a producer or job is due. At most one of Interval and
// Cron is set. The zero Schedule is a bare handler: due at every start of the
// host, and policy.default_interval after the end of its last run.
type Schedule struct {
	Interval time.Duration `json:"interval,omitempty"`
	Cron     string        `json:"cron,omitempty"`     // five fields
	Timezone string        `json:"timezone,omitempty"` // IANA name; empty is UTC
}

// IsZero reports whether the handler is bare.
func (s Schedule) IsZero() bool { return s == Schedule{} }

// A Handler is the declaration of one producer, consumer or job.
type Handler struct {
	Name      HandlerName `json:"name"`
	Kind      Kind        `json:"kind"`
	Subscribe []TopicName `json:"subscribe,omitempty"` // consumers only
	Publishes []TopicName `json:"publishes,omitzero"`  // nil: any declared topic
	Schedule  Schedule    `json:"schedule,omitzero"`   // producers and jobs only
	Items     string      `json:"items,omitempty"`     // the first name that it had, empty if it is Name; of a job always; see ItemsOf
	New       bool        `json:"new,omitempty"`       // jobs and producers: it is none of before by another name
	HasMutate bool        `json:"has_mutate,omitempty"`
	HasNext   bool        `json:"has_next,omitempty"`
	Order     Order       `json:"order,omitempty"` // consumers only

	// IgnoresResult: next does not look at what the call brought. False also means that
	// it is not known.
	IgnoresResult bool `json:"ignores_result,omitempty"`
}

// ItemsOf returns the name under which the items of a job, or the checkpoint of a producer, are
// kept: the first name that it had. So one that is renamed keeps them, and two do not share any.
// Of a consumer nothing is kept under it: it says whose open runs it carries on with.
func (h Handler) ItemsOf() string { return cmp.Or(h.Items, string(h.Name)) }

// DirectWorkflow is the workflow to which calls belong that no script makes: those of agents (docs/design/0012-gateway.md).
const DirectWorkflow WorkflowName = "gateway"

// DropsResult reports whether nobody looks at what a call of the handler, which is of workflow w, brought: it is a consumer without
// next. Agents have no next either, and are given it.
func (h Handler) DropsResult(w WorkflowName) bool {
	return h.Kind == Consumer && !h.HasNext && w != DirectWorkflow
}

// Subject returns the subject of what persons decide about the handler of a workflow, also under its other names.
func (h Handler) Subject(w WorkflowName) Subject {
	return Subject{Workflow: w, Kind: AboutHandler, ID: h.ItemsOf()}
}

// MayPublish reports whether the declaration allows publishing to topic. Whether
// the topic exists is asked of the Definition.
func (h Handler) MayPublish(topic TopicName) bool {
	return h.Publishes == nil || slices.Contains(h.Publishes, topic)
}

// A Definition is what a script declares: its topics and handlers.
// Package workflow makes one from a script and checks it.
type Definition struct {
	Name     WorkflowName `json:"name"`
	Was      WorkflowName `json:"was,omitempty"` // a name that it had before; see Renamed
	New      bool         `json:"new,omitempty"` // it is none of before by another name
	Topics   []TopicName  `json:"topics"`        // by the names of the database, sorted; see TopicOf
	Handlers []Handler    `json:"handlers"`      // in the order of the script; their topics as in Topics

	// Called has the topics that the script calls by another name than the database; sorted by it.
	Called []CalledTopic `json:"called,omitempty"`

	// NewTopics are those that the script says to be none of before by another name; sorted.
	NewTopics []TopicName `json:"new_topics,omitempty"`

	// Renamed are the names that this version and those before it gave to what the database has by its first name, newest
	// first. No script declares them: they come with a deploy, and later versions inherit them.
	Renamed []Renamed `json:"renamed,omitempty"`

	OnBlocked OnBlocked `json:"on_blocked,omitempty"`

	// Go says that the handlers are functions of a Go program (package handler). Only a host in
	// that program runs them; Deployment.Code then describes them.
	Go bool `json:"go,omitempty"`

	// Intent is what the workflow is for, in the words of the person who asked for it. No script
	// declares it: it comes with a deploy, and later versions inherit it. Empty: nobody said.
	Intent string `json:"intent,omitempty"`

	// Writing is what is known of how the script was written. No version inherits it.
	Writing Writing `json:"writing,omitzero"`
}

// A CalledTopic is a topic that a script calls by another name than the database, which keeps the
// first name that the topic had.
type CalledTopic struct {
	Name  TopicName `json:"name"` // in the script
	First TopicName `json:"first"`
}

// A Renamed is a name that a workflow, or a topic or handler of it, had after its first one.
type Renamed struct {
	Kind  string `json:"kind"`  // RenamedWorkflow, RenamedTopic, or the Kind of a handler
	Name  string `json:"name"`  // that a script gave it
	First string `json:"first"` // by which the database has it
}

// Kinds of what was renamed, beside those of handlers.
const (
	RenamedWorkflow = "workflow"
	RenamedTopic    = "topic"
)

// MaxRenamed bounds the names that a Definition remembers; the oldest are forgotten first (law: bounded).
const MaxRenamed = 256

// A Writing is how a model, or an agent, came to a script: what it says of it, which is its claim,
// and what that took.
type Writing struct {
	Note     string  `json:"note,omitempty"`
	Attempts int     `json:"attempts,omitempty"`
	Tokens   int64   `json:"tokens,omitempty"`
	Cost     float64 `json:"cost,omitempty"` // in the currency of the prices in keep.toml

	// Pages says that it was written on the pages, so that no file needs to have it.
	Pages bool `json:"pages,omitempty"`
}

// MaxNote bounds the note of a Writing, in bytes (law: bounded).
const MaxNote = 2 << 10

// MaxIntent bounds an intent, in bytes (law: bounded).
const MaxIntent = 8 << 10

// Reads reports whether a consumer subscribes to a topic.
func (d Definition) Reads(topic TopicName) bool {
	return slices.ContainsFunc(d.Handlers, func(h Handler) bool { return slices.Contains(h.Subscribe, topic) })
}

// MayPublish returns the topics to which a handler of d may publish; a job publishes nothing.
func (d Definition) MayPublish(h Handler) []TopicName {
	if h.Publishes == nil && h.Kind != Job {
		return d.Topics
	}
	return h.Publishes
}

// Handler returns the handler of that name, and whether there is one.
func (d Definition) Handler(name HandlerName) (Handler, bool) {
	for _, h := range d.Handlers {
		if h.Name == name {
			return h, true
		}
	}
	return Handler{}, false
}

// Carrier returns the handler of d that carries on with what one of that kind and name did: that of
// the name, or the one that had the name first.
func (d Definition) Carrier(kind Kind, name HandlerName) (Handler, bool) {
	if h, ok := d.Handler(name); ok {
		return h, h.Kind == kind
	}
	return d.FirstNamed(kind, string(name))
}

// FirstNamed returns the handler of a kind that keeps what it did under a name; see Handler.ItemsOf.
func (d Definition) FirstNamed(kind Kind, first string) (Handler, bool) {
	for _, h := range d.Handlers {
		if h.Kind == kind && h.ItemsOf() == first {
			return h, true
		}
	}
	return Handler{}, false
}

// Reader returns the first consumer of d that reads one of the topics.
func (d Definition) Reader(topics ...TopicName) (Handler, bool) {
	for _, h := range d.Handlers {
		if slices.ContainsFunc(topics, func(t TopicName) bool { return slices.Contains(h.Subscribe, t) }) {
			return h, true
		}
	}
	return Handler{}, false
}

// HasTopic reports whether the topic is declared.
func (d Definition) HasTopic(t TopicName) bool { return slices.Contains(d.Topics, t) }

// TopicOf returns the name by which the database has a topic that the script calls t. What is no
// such name is returned as it is, so that the name in the database may be said, too.
func (d Definition) TopicOf(t TopicName) TopicName {
	for _, c := range d.Called {
		if c.Name == t {
			return c.First
		}
	}
	return t
}

// CalledIn returns the name by which the script calls a topic of the database.
func (d Definition) CalledIn(t TopicName) TopicName {
	for _, c := range d.Called { // no two have the same one
		if c.First == t {
			return c.Name
		}
	}
	return t
}

// KeepAs returns d with topics that are called by other names than the database has: called has
// the database's, by those that d uses now.
func (d Definition) KeepAs(called map[TopicName]TopicName) Definition {
	if len(called) == 0 {
		return d
	}
	was := d
	d.Called = slices.DeleteFunc(slices.Clone(d.Called), func(c CalledTopic) bool { return called[c.First] != "" })
	for now, first := range called {
		d.Called = append(d.Called, CalledTopic{was.CalledIn(now), first})
	}
	slices.SortFunc(d.Called, func(a, b CalledTopic) int { return cmp.Compare(a.Name, b.Name) })
	stored := func(list []TopicName) []TopicName {
		list = slices.Clone(list)
		for i, t := range list {
			list[i] = cmp.Or(called[t], t)
		}
		return list
	}
	d.Topics = stored(d.Topics)
	slices.Sort(d.Topics)
	d.Handlers = slices.Clone(d.Handlers)
	for i := range d.Handlers {
		h := &d.Handlers[i]
		h.Subscribe, h.Publishes = stored(h.Subscribe), stored(h.Publishes)
	}
	return d
}

// A Deployment is one version of a workflow with everything needed to run it
// again. Deployments are never changed.
type Deployment struct {
	Workflow   WorkflowName
	Version    Version
	Hash       string // hex SHA-256 of Code
	Entry      string // file name as errors show it
	Code       []byte // the bundled script
	Map        []byte // its source map
	Definition Definition
	CreatedAt  time.Time
}

// Sources returns the author's files of a version, by name, from its source map.
func (d Deployment) Sources() map[string]string {
	var m struct {
		Sources        []string `json:"sources"`
		SourcesContent []string `json:"sourcesContent"`
	}
	files := make(map[string]string)
	if json.Unmarshal(d.Map, &m) != nil {
		m.Sources = nil
	}
	for i, name := range m.Sources {
		if i < len(m.SourcesContent) {
			files[name] = m.SourcesContent[i]
		}
	}
	if len(files) == 0 && len(d.Code) > 0 {
		files[d.Entry] = string(d.Code) // nothing was mapped: it is as it was written
	}
	return files
}

// A Workflow is the row that says which version is current and whether a person
// paused it.
type Workflow struct {
	Name      WorkflowName
	Version   Version
	Paused    bool
	PauseNote string // why it is paused, in the words of who paused it; empty: nobody said
	Granted   int    // Grant.N of the grant that holds; 0: none was ever given
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A HandlerState is what the host remembers of a handler between runs.
type HandlerState struct {
	Workflow WorkflowName
	Handler  HandlerName
	Kind     Kind

	// IdleSeq is the newest event of the workflow that an empty prepare of
	// this consumer has seen. Only a later event wakes it again, so that empty
	// reservations never spin.
	IdleSeq int64

	WakeAt      time.Time // consumers: asked for by prepare; zero: not asked
	NextAt      time.Time // producers and jobs: when due; zero: due at start
	RequestedAt time.Time // when a person caused the next run; zero: nobody did
	LastRun     RunID     // empty: never ran
	LastAt      time.Time // when LastRun ended
}
