package simtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
)

// A flow is one workflow of the world.
type flow struct {
	name      keep.WorkflowName
	sources   []*source
	consumers []consumer
	job       *job // nil: none
	onBlocked keep.OnBlocked

	versions  int
	behaviour map[string]behaviour // by hash of the deployment
	retopics  bool                 // every other version calls the topics by other names
	good      bool                 // the current version has no bug
	keyless   bool                 // a version computes wrong keys, or none
}

// A source is where a producer finds things, one after another.
type source struct {
	producer keep.HandlerName
	topic    keep.TopicName
	schedule keep.Schedule
	arrivals []time.Duration // time of the services
	inputs   bool            // the producer registers inputs itself
}

// A consumer is the plan of one consumer.
type consumer struct {
	name      keep.HandlerName
	subscribe []keep.TopicName
	tool      string // empty: it makes no call
	out       keep.TopicName
	batch     int
	peeks     bool // it reads by id in mutate
	order     keep.Order
}

// A job is the plan of one job over items.
type job struct {
	name     keep.HandlerName
	tool     string
	schedule keep.Schedule
	items    []item
}

// An item is one unit of work of a job. Its revision is what people may change
// behind the back of an attempt.
type item struct {
	id    string
	calls int
	rev   int
}

// A behaviour is what one version of a script does wrong.
type behaviour struct {
	bug   string // see bugs; empty: none
	phase string // where, such as "prepare"
	every int    // for one in so many events

	retopics bool // the version calls the topics by their other names
}

// bugs are the ways in which a script can be wrong.
var bugs = []string{"throws", "forbidden", "unknown-event", "garbage", "two-calls", "missing-handler"}

// plan draws the world from the seed.
func (w *world) plan() {
	pick := func(xs ...float64) float64 { return xs[w.below(len(xs))] }
	w.rates = rates{
		crash: pick(0.003, 0.02, 0.04, 0.08), commit: pick(0, 0.02, 0.1), read: pick(0, 0, 0.02),
		call: pick(0.1, 0.4, 0.8), ask: pick(0.1, 0.5, 0.9), script: pick(0, 0.05, 0.3),
		lie: pick(0, 0, 0, 0.1), folly: pick(0, 0, 0.2),
		bustle: time.Duration(pick(1, 10, 60)) * time.Minute,
		life:   time.Duration(pick(0.1, 5, 100) * float64(time.Hour)),
		points: 3000, stretch: 1 + w.below(3),
	}
	w.policy = policy.Default()
	w.policy.Retry.Attempts = 1 + w.below(5)
	w.policy.Reconcile.Attempts = 1 + w.below(10)
	w.policy.OnItemBlocked = []policy.OnItemBlocked{policy.Stop, policy.Continue}[w.below(2)]
	w.unique = rand.New(rand.NewPCG(w.seed, 4)).IntN(3) == 0 // its own draw: see orders
	w.policy.Shutdown = time.Duration(pick(1, 30)) * time.Second
	w.policy.Approval.Expires = []time.Duration{time.Minute, time.Hour, 24 * time.Hour}[rand.New(rand.NewPCG(w.seed, 7)).IntN(3)]
	w.slow = []time.Duration{0, 5 * time.Millisecond}[w.below(2)]
	w.forgetKeys()
	w.setting = w.setsThings()
	w.users = w.hasUsers()
	w.limit()
	for range 3 {
		w.tools = append(w.tools, w.newTools(len(w.tools), settings{}))
	}
	for i := range 1 + w.below(3) {
		w.flows = append(w.flows, w.newFlow(i))
	}
	w.callSetters()
	w.budget()
	w.offset = 30 * 24 * time.Hour
	w.orders()
	w.edited = w.edits()
	w.granted = w.consents()
	w.skipping = w.skips()
	w.intervening = w.intervenes()
	w.breaker()
}

// firstOrdered is the first seed whose world may have orders: the seeds below it are
// those of worlds from before there were any.
const firstOrdered = 1_000_000_001

// orders lets workflows choose what an unfinished run holds up, in worlds of odd seeds.
// The draws are its own, so that the rest of a world does not depend on it.
func (w *world) orders() {
	if w.seed < firstOrdered || w.seed%2 == 0 {
		return
	}
	w.ordered = true
	rng := rand.New(rand.NewPCG(w.seed, 3))
	for _, f := range w.flows {
		f.onBlocked = []keep.OnBlocked{keep.BlockedStop, keep.BlockedPoll}[rng.IntN(2)]
		for i := range f.consumers {
			f.consumers[i].order = []keep.Order{keep.OrderAll, keep.OrderKey, keep.OrderKey, keep.OrderNone}[rng.IntN(4)]
		}
	}
}

// orderKey is the key of an event. There are few keys, so that some wait.
func orderKey(id string) string { return string('a' + id[len(id)-1]%3) }

// tools that consumers and jobs may call. An empty one makes no call.
var mutators = []string{"a", "b", "c", "d", "p"}

// newFlow draws one workflow: sources that feed a chain of consumers, the last of
// which may take in two topics, and perhaps a job.
func (w *world) newFlow(i int) *flow {
	f := &flow{name: keep.WorkflowName(fmt.Sprintf("w%d", i)), behaviour: make(map[string]behaviour), retopics: rand.New(rand.NewPCG(w.seed, 12)).IntN(2) == 0}
	f.sources = append(f.sources, w.newSource("poll", "t0"))
	length := 1 + w.below(3)
	for n := range length {
		c := consumer{
			name:      keep.HandlerName(fmt.Sprintf("c%d", n)),
			subscribe: []keep.TopicName{keep.TopicName(fmt.Sprintf("t%d", n))},
			tool:      mutators[w.below(len(mutators))],
			batch:     1 + w.below(3), peeks: w.chance(0.3),
		}
		if w.chance(0.15) {
			c.tool = ""
		}
		if n < length-1 || w.chance(0.5) {
			c.out = keep.TopicName(fmt.Sprintf("t%d", n+1))
		}
		f.consumers = append(f.consumers, c)
	}
	if w.chance(0.4) { // fan in
		f.sources = append(f.sources, w.newSource("poll2", "side"))
		last := &f.consumers[length-1]
		last.subscribe = append(last.subscribe, "side")
	}
	if w.chance(0.6) {
		f.job = &job{name: "remind", tool: mutators[w.below(len(mutators))], schedule: w.newSchedule()}
		for n := range 1 + w.below(6) {
			f.job.items = append(f.job.items, item{id: fmt.Sprintf("i%d", n), calls: 1 + w.below(3)})
		}
	}
	return f
}

func (w *world) newSource(p keep.HandlerName, t keep.TopicName) *source {
	s := &source{producer: p, topic: t, schedule: w.newSchedule(), inputs: w.chance(0.5)}
	at := time.Duration(0)
	for range 10 + w.below(40) {
		at += w.span(time.Hour)
		s.arrivals = append(s.arrivals, at)
	}
	return s
}

func (w *world) newSchedule() keep.Schedule {
	switch w.below(3) {
	case 0:
		return keep.Schedule{Cron: "17 */3 * * *", Timezone: "Europe/Berlin"}
	case 1:
		return keep.Schedule{Interval: time.Hour + w.span(8*time.Hour).Truncate(time.Second)}
	}
	return keep.Schedule{} // bare
}

// definition returns what the script declares in a version with that behaviour.
func (f *flow) definition(b behaviour, set settings) keep.Definition {
	d := keep.Definition{Name: f.name, OnBlocked: f.onBlocked, Topics: []keep.TopicName{"side", "t0", "t1", "t2", "t3"}}
	for _, s := range f.sources {
		d.Handlers = append(d.Handlers, keep.Handler{Name: s.producer, Kind: keep.Producer, Schedule: s.schedule})
	}
	for i, c := range f.consumers {
		if b.bug == "missing-handler" && i == len(f.consumers)-1 {
			continue
		}
		d.Handlers = append(d.Handlers, keep.Handler{Name: c.name, Kind: keep.Consumer, Subscribe: c.subscribe,
			HasMutate: c.tool != "", HasNext: c.out != "", Order: c.order})
	}
	if b.retopics {
		for _, t := range d.Topics {
			d.Called = append(d.Called, keep.CalledTopic{Name: b.called(t), First: t})
		}
	}
	if f.job != nil && (b.bug != "missing-handler" || b.every > 1) {
		d.Handlers = append(d.Handlers, set.job(keep.Handler{Name: f.job.name, Kind: keep.Job, Schedule: f.job.schedule}))
	}
	return d
}

// deployment returns the next version of the workflow.
func (f *flow) deployment(b behaviour, set settings) keep.Deployment {
	f.versions++
	hash := fmt.Sprintf("%s-%d", f.name, f.versions)
	b.retopics = f.retopics && f.versions%2 == 0
	f.behaviour[hash] = b
	f.keyless = f.keyless || b.phase == "key"
	return keep.Deployment{Workflow: f.name, Hash: hash, Entry: "w.js", Code: []byte(hash), Definition: f.definition(b, set)}
}

// broken draws a behaviour that is wrong.
func (w *world) newBug() behaviour {
	phases := []string{"prepare", "mutate", "next", "producer", "job"}
	if w.ordered {
		phases = append(phases, "key")
	}
	return behaviour{bug: bugs[w.below(len(bugs))], phase: phases[w.below(len(phases))], every: 1 + w.below(3)}
}

// schemas are those of the tools of all worlds, which every start of a host would compile again.
var schemas engine.Schemas

// newTools returns the tools of the services, as far as an upgrade left them.
func (w *world) newTools(upgrade int, set settings) *engine.Tools {
	ts, err := schemas.Tools(w.connections(upgrade, set))
	if err != nil {
		panic(err) // the plan is wrong
	}
	return ts
}
