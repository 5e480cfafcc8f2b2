// Package metrics tells Prometheus how a host does: what there is by state, what
// waits, how old the oldest doubt is, and how long doubts last.
//
// Most figures are read from the store when somebody asks, by its counts, which
// cost little; so two hosts on one database say the same. How long things took, and what
// went wrong, is counted by each process. Nothing here is a title,
// a payload or another thing that a script chose, but for names of workflows, handlers,
// topics and tools, of which there are at most maxSeries.
package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config configures a Host.
type Config struct {
	// Store is read when somebody asks. Required.
	Store store.Reader

	// Grouped returns how many commits the store wrote, in how many
	// transactions. If nil, it is not told.
	Grouped func() (commits, groups uint64)

	// Sandbox returns the phases that wait for a processor, and the instances
	// that are kept. If nil, it is not told.
	Sandbox func() (waiting, idle int)

	// KeysUnknown counts the idempotency keys whose outcome nobody knows. If nil, it is
	// not told.
	KeysUnknown func(context.Context) (int, error)

	// Refuses reports whether the store refused the last commit. If nil, it is not told.
	Refuses func() bool

	// Answers asks whether the store answers, and returns why not. If it does not, nothing is read of it, and it counts as
	// refusing. If nil, all is tried.
	Answers func(context.Context) error

	// NoProgram counts the workflows written in Go that no host which is there can execute.
	// If nil, it is not told.
	NoProgram func(context.Context) (int, error)

	// Logger receives what could not be read. If nil, slog.Default().
	Logger *slog.Logger
}

// A Host is the metrics of one host. It is safe for concurrent use.
type Host struct {
	cfg       Config
	log       *slog.Logger
	certainty prometheus.Histogram
	swept     prometheus.Counter
	took      *took
	handler   http.Handler
}

// The descriptions of what is read from the store.
var (
	runs        = describe("runs", "Runs by status: those that are not over, and of all those that committed or were aborted.", "status")
	mutations   = describe("mutations", "Records of the ledger by state.", "state")
	inputs      = describe("inputs", "Inputs by status.", "status")
	items       = describe("items", "Items by status.", "status")
	questions   = describe("open_questions", "Questions that wait for a person, by kind.", "kind")
	events      = describe("events_waiting", "Pending events of a topic; reserved ones are pinned by a run.", "workflow", "topic", "reserved")
	noProgram   = describe("workflows_without_program", "Workflows written in Go that no host which is there can execute.")
	doubtAge    = describe("oldest_unknown_outcome_seconds", "Age of the oldest call whose outcome is not known; 0: there is none.")
	commits     = describe("store_commits_total", "Commits that were written.")
	groups      = describe("store_transactions_total", "Transactions that the commits shared: their quotient is the size of a batch.")
	refuses     = describe("store_refuses", "1 if the store refused the last commit of this process, or does not answer: the disk is full, or the database is read-only or out of reach; else 0.")
	waiting     = describe("sandbox_waiting_phases", "Phases of scripts that wait for a processor.")
	idle        = describe("sandbox_idle_instances", "Instances of the sandbox that are kept for the next phase.")
	keysUnknown = describe("keys_unknown", "Idempotency keys whose outcome nobody knows, up to 10,000.")
	unreadables = describe("metrics_unreadable", "Figures of this answer that could not be read.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("keep_"+name, help, labels, nil)
}

// New returns the metrics of a host.
func New(cfg Config) *Host {
	h := &Host{cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default())}
	h.certainty = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "keep_time_to_certainty_seconds",
		Help: "From the record of a call whose outcome was unknown to its end, of doubts that ended in this process.",
		// From an answer at the first look to a person's next working day.
		Buckets: []float64{.1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600, 72 * 3600},
	})
	h.swept = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "keep_swept_chains_total",
		Help: "Runs, with all attempts at the same work, that retention deleted in this process.",
	})
	h.took = newTook()
	r := prometheus.NewRegistry()
	r.MustRegister(h, h.certainty, h.swept, collectors.NewGoCollector())
	r.MustRegister(h.took.collectors()...)
	h.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelWarn)})
	return h
}

// ServeHTTP answers in Prometheus' text format.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

// A Figure describes one figure of Keep's own.
type Figure struct {
	Name, Type, Help string // Type is gauge, counter or histogram
	Labels           []string
}

// described takes apart how a description prints itself: there is no other way to read one.
var described = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*)\}\}$`)
})

// Figures returns Keep's own figures, sorted by name, also those that have no value yet.
func (h *Host) Figures() []Figure {
	var out []Figure
	for _, c := range append(h.took.collectors(), h, h.certainty, h.swept) {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := described().FindStringSubmatch(d.String())
			if m == nil {
				panic("metrics: a description has another form: " + d.String())
			}
			f := Figure{Name: m[1], Type: "gauge", Labels: strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })}
			f.Help, _ = strconv.Unquote(m[2]) // it was quoted to be printed
			switch c.(type) {
			case prometheus.Histogram, *prometheus.HistogramVec:
				f.Type = "histogram"
			default:
				if strings.HasSuffix(f.Name, "_total") {
					f.Type = "counter"
				}
			}
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Figure) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Names returns what Keep's own figures are called, sorted.
func (h *Host) Names() []string {
	var names []string
	for _, f := range h.Figures() {
		names = append(names, f.Name)
	}
	return names
}

// Measure is notified of how long something took.
func (h *Host) Measure(m engine.Measure) { h.took.observe(m) }

// Observe is notified of each commit of the host. It costs nothing but for those that
// end a doubt or sweep.
func (h *Host) Observe(c keep.Commit) {
	for _, change := range c.Changes {
		if _, ok := change.(keep.Sweep); ok {
			h.swept.Inc()
		}
		put, ok := change.(keep.PutMutation)
		if !ok {
			continue
		}
		for _, m := range put.Moves {
			if slices.Contains(lifecycle.Doubts(), m.From) && !lifecycle.Unknown(m.To) {
				h.certainty.Observe(m.At.Sub(put.Mutation.CreatedAt).Seconds())
			}
		}
	}
}

// Describe names what Collect tells.
func (h *Host) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runs, mutations, inputs, items, questions, events, noProgram, doubtAge, commits, groups, refuses, waiting, idle, keysUnknown, unreadables} {
		ch <- d
	}
}

// patience is how long one answer may read the store.
const patience = 5 * time.Second

// Collect reads the figures. One that cannot be read is left out and counted.
//
// One answer reads the store for patience at most, half of what Prometheus waits for unless it is told otherwise: what this
// process knows by itself must arrive. A scraper asks again, and hosts use the store meanwhile.
func (h *Host) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	refused := h.cfg.Refuses != nil && h.cfg.Refuses()
	if h.cfg.Answers != nil {
		if err := h.cfg.Answers(ctx); err != nil {
			refused = true
			giveUp(err) // what is read now fails at once
		}
	}
	s := h.cfg.Store
	c := &collection{h: h, ctx: ctx, ch: ch}
	byState(c, runs, h.countRuns, keep.RunFilter{}, keep.RunStatuses())
	byState(c, mutations, s.CountMutations, keep.MutationFilter{}, keep.MutationStates())
	byState(c, inputs, s.CountInputs, keep.InputFilter{}, keep.InputStatuses())
	byState(c, items, s.CountItems, keep.ItemFilter{}, keep.ItemStatuses())
	byState(c, questions, s.CountEscalations, keep.EscalationFilter{Open: true}, keep.EscalationKinds())
	c.queues()
	c.doubts(time.Now())
	if h.cfg.Grouped != nil {
		written, shared := h.cfg.Grouped()
		ch <- prometheus.MustNewConstMetric(commits, prometheus.CounterValue, float64(written))
		ch <- prometheus.MustNewConstMetric(groups, prometheus.CounterValue, float64(shared))
	}
	if h.cfg.Sandbox != nil {
		busy, kept := h.cfg.Sandbox()
		c.gauge(waiting, float64(busy))
		c.gauge(idle, float64(kept))
	}
	if h.cfg.Refuses != nil {
		v := 0.0
		if refused {
			v = 1
		}
		c.gauge(refuses, v)
	}
	c.number(keysUnknown, h.cfg.KeysUnknown)
	c.number(noProgram, h.cfg.NoProgram)
	c.gauge(unreadables, float64(c.failed))
}

// countRuns counts runs by what they are now: an attempt that another one took over is none of them.
func (h *Host) countRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	by, err := h.cfg.Store.CountRuns(ctx, f)
	if err != nil {
		return nil, err
	}
	f.Open = true
	now, err := h.cfg.Store.CountRuns(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, over := range []keep.RunStatus{keep.StatusCommitted, keep.StatusAborted} {
		now[over] = by[over]
	}
	return now, nil
}

// A collection is one answer.
type collection struct {
	h      *Host
	ctx    context.Context
	ch     chan<- prometheus.Metric
	failed int
}

func (c *collection) gauge(d *prometheus.Desc, v float64, labels ...string) {
	c.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// unreadable counts a figure that is left out.
func (c *collection) unreadable(what string, err error) {
	c.failed++
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	c.h.log.WarnContext(c.ctx, "read a metric", "metric", what, "err", err)
}

// number tells what is counted, if anything is.
func (c *collection) number(d *prometheus.Desc, count func(context.Context) (int, error)) {
	if count == nil {
		return
	}
	n, err := count(c.ctx)
	if err != nil {
		c.unreadable(d.String(), err)
		return
	}
	c.gauge(d, float64(n))
}

// byState tells a count of every state, also of those that none has.
func byState[F any, S ~string](c *collection, d *prometheus.Desc, count func(context.Context, F) (map[S]int, error), f F, all []S) {
	n, err := count(c.ctx, f)
	if err != nil {
		c.unreadable(d.String(), err)
		return
	}
	for _, s := range all {
		c.gauge(d, float64(n[s]), string(s))
	}
}

// queues tells what waits in each topic, up to maxSeries; those after them are counted together.
func (c *collection) queues() {
	topics, err := c.h.cfg.Store.TopicCounts(c.ctx, "")
	if err != nil {
		c.unreadable("events_waiting", err)
		return
	}
	n := min(len(topics), maxSeries)
	told := slices.Clone(topics[:n])
	for _, t := range topics[n:] { // one may have the name of all others
		i := slices.IndexFunc(told, func(o keep.TopicCount) bool { return o.Workflow == Other && o.Topic == Other })
		if i < 0 {
			i, told = len(told), append(told, keep.TopicCount{Workflow: Other, Topic: Other})
		}
		told[i].Pending, told[i].Reserved = told[i].Pending+t.Pending, told[i].Reserved+t.Reserved
	}
	for _, t := range told {
		c.gauge(events, float64(t.Pending), string(t.Workflow), string(t.Topic), "false")
		c.gauge(events, float64(t.Reserved), string(t.Workflow), string(t.Topic), "true")
	}
}

// doubts tells the age of the oldest record whose outcome is unknown.
//
// Lists are newest first, so all of them are read; records in doubt are few where all is well.
func (c *collection) doubts(now time.Time) {
	oldest := now
	for _, state := range lifecycle.Doubts() {
		for m, err := range store.All(c.ctx, c.h.cfg.Store.Mutations, keep.MutationFilter{State: state}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
			if err != nil {
				c.unreadable("oldest_unknown_outcome_seconds", err)
				return
			}
			if m.CreatedAt.Before(oldest) {
				oldest = m.CreatedAt
			}
		}
	}
	c.gauge(doubtAge, now.Sub(oldest).Seconds())
}
