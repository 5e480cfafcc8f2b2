package metrics

import (
	"sync"

	"github.com/keep-run/keep/engine"
	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds the sets of labels of each of these figures: what comes after them is counted
// under names that are Other. Scripts choose names, and each costs a scraper memory.
const maxSeries = 500

// Other is the name of all workflows, handlers and tools that are too many.
const Other = "other"

// took is how long things took, and what went wrong with them, since the process began.
type took struct {
	run, queue, call, lookup, read *prometheus.HistogramVec
	errors                         *prometheus.CounterVec
	known                          sync.Map // of label sets that have a series; see bounded
	mu                             sync.Mutex
	series                         map[engine.Measured]int
}

// newTook returns figures without values. Services and runs have buckets of their own: a call lasts seconds,
// a run that waits for a service hours.
func newTook() *took {
	histogram := func(what, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "keep_" + what + "_seconds", Help: help, Buckets: buckets}, labels)
	}
	service := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	return &took{
		run: histogram("run", "Runs by the status that they came to, from their start in this process until they ended or stopped.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600}, "workflow", "handler", "status"),
		queue: histogram("queue", "From the commit of an event until a run of this process began with it.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60, 300, 3600, 24 * 3600}, "workflow", "handler"),
		call:   histogram("call", "Calls of mutate tools.", service, "workflow", "tool"),
		lookup: histogram("lookup", "Lookups of what became of a call.", service, "workflow", "tool"),
		read:   histogram("read", "Calls of list and get tools, with the time for which they waited for limits.", service, "workflow", "tool"),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keep_errors_total",
			Help: "What went wrong, by class: of runs (then tool is empty), calls and reads (then handler is empty)."}, []string{"what", "workflow", "handler", "tool", "class"}),
		series: make(map[engine.Measured]int),
	}
}

func (t *took) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.run, t.queue, t.call, t.lookup, t.read, t.errors}
}

// observe counts a measure.
func (t *took) observe(m engine.Measure) {
	m = t.bounded(m)
	w, h, tool, s := string(m.Workflow), string(m.Handler), string(m.Tool), m.Took.Seconds()
	switch m.What {
	case engine.MeasuredRun:
		t.run.WithLabelValues(w, h, string(m.Status)).Observe(s)
	case engine.MeasuredQueue:
		t.queue.WithLabelValues(w, h).Observe(s)
	case engine.MeasuredCall:
		t.call.WithLabelValues(w, tool).Observe(s)
	case engine.MeasuredLookup:
		t.lookup.WithLabelValues(w, tool).Observe(s)
	case engine.MeasuredRead:
		t.read.WithLabelValues(w, tool).Observe(s)
	}
	if m.Class != "" {
		t.errors.WithLabelValues(string(m.What), w, h, tool, string(m.Class)).Inc()
	}
}

// bounded returns m with the names that it is counted under. Statuses and classes are few, so only
// names are counted.
//
// The first look needs no lock, since nearly all measures have names that are known; the second is for those
// that became known while this one waited.
func (t *took) bounded(m engine.Measure) engine.Measure {
	key := engine.Measure{What: m.What, Workflow: m.Workflow, Handler: m.Handler, Tool: m.Tool}
	if _, ok := t.known.Load(key); ok {
		return m
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known.Load(key); ok {
		return m
	}
	if t.series[m.What] < maxSeries {
		t.series[m.What]++
		t.known.Store(key, nil)
		return m
	}
	m.Workflow = Other
	if m.Handler != "" {
		m.Handler = Other
	}
	if m.Tool != "" {
		m.Tool = Other
	}
	return m
}
