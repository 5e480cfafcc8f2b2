package compare

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal/replay"
	"github.com/keep-run/keep/store"
)

// A Store has the runs and what is recorded of them. It is read only, and wide because a replay
// reads every noun.
type Store interface {
	replay.Store
	store.Inputs
	store.Lineage
}

// Config says what is compared.
type Config struct {
	// Store has the runs. Required.
	Store Store

	// Workflow and From name the version whose runs are gone through. Required.
	Workflow keep.WorkflowName
	From     keep.Version

	// Script and Definition are those of the other version; To names it. The script is loaded
	// in the place of From, so that its top level finds the same clock and chance
	// (host.LoadScript). Required.
	Script     engine.Script
	Definition keep.Definition
	To         string

	// Connections describe the tools that there are. Nothing of them is called.
	Connections []connector.Connection

	// Policy has the limits of a script. If nil, policy.Default().
	Policy *policy.Policy

	// Since is when the oldest run began that is gone through. If zero, a week before now.
	Since time.Time

	// MaxRuns is how many runs are gone through at most, the newest. If zero, 1000.
	MaxRuns int

	// MaxTime is how long it may take. If zero, 30 seconds. If it is over, what is left is
	// not known.
	MaxTime time.Duration
}

// The bounds that a Config has if it names none.
const (
	DefaultDays = 7
	DefaultRuns = 1000
	DefaultTime = 30 * time.Second
)

// A Report says what the other version would have done otherwise.
type Report struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	Impact    Impact            `json:"impact"`
	Declared  []string          `json:"declared"`  // what it declares differently, in sentences
	Runs      []Run             `json:"runs"`      // those that differ first
	Inputs    []Input           `json:"inputs"`    // that the runs which differ came from
	Mutations []Mutation        `json:"mutations"` // that would have been otherwise
	Counts    map[Change]int    `json:"counts"`    // of runs
	Whole     bool              `json:"whole"`     // false: the time was over before all were gone through
	Older     bool              `json:"older"`     // there are more runs since then than were asked for
}

// A Run is one run of the older version with what would have become of it.
type Run struct {
	Run     keep.RunID       `json:"run"`
	Input   *keep.InputID    `json:"input"` // null: it came from none
	Handler keep.HandlerName `json:"handler"`
	At      time.Time        `json:"at"`   // when it began
	Done    bool             `json:"done"` // its work is done, or may be: it counts in the impact
	Change  Change           `json:"change"`
	Why     string           `json:"why"` // where nobody knows more, and why; empty: it is known
	Before  []Effect         `json:"before"`
	After   []Effect         `json:"after"`

	inputs    []Input
	mutations []Mutation
	whats     []replay.What // in which it differs, also what is not shown
	phases    []string      // in which it does
}

// Inputs returns the inputs that the run came from, if it differs.
func (r Run) Inputs() []Input { return r.inputs }

// Mutations returns the calls of the run that would have been otherwise.
func (r Run) Mutations() []Mutation { return r.mutations }

// An Effect is one thing that a run did, or would have done.
type Effect struct {
	Phase string          `json:"phase"`
	What  replay.What     `json:"what"`
	Value json.RawMessage `json:"value"` // null: nothing, or it is not kept
}

// An Input is what a run that differs came from.
type Input struct {
	ID     keep.InputID `json:"id"`
	Source string       `json:"source"`
	Type   string       `json:"type"`
	Name   string       `json:"external_id"`
	Title  string       `json:"title"`
}

// A Mutation is a call that would have been otherwise.
type Mutation struct {
	Key    keep.MutationKey `json:"key"` // empty: none was made, or it is not kept
	Run    keep.RunID       `json:"run"`
	Tool   keep.ToolName    `json:"tool"`
	Title  string           `json:"title"`
	Change Change           `json:"change"`
	Remedy Remedy           `json:"remedy"`
	How    string           `json:"how"` // the command that does it; empty: there is none
}

// Do compares and returns the whole report. What it holds is bounded: by MaxRuns, and by
// the sizes of what each run shows.
func Do(ctx context.Context, cfg Config) (*Report, error) {
	own, err := cfg.Store.Deployment(ctx, cfg.Workflow, cfg.From)
	if err != nil {
		return nil, err
	}
	r := &Report{Workflow: cfg.Workflow, From: cfg.From.String(), To: cfg.To, Declared: Declared(own.Definition, cfg.Definition),
		Runs: []Run{}, Inputs: []Input{}, Mutations: []Mutation{}, Counts: map[Change]int{}, Whole: true}
	for _, c := range Changes() {
		r.Counts[c] = 0
	}
	judged := []Judged{}
	room := maxShown
	for run, err := range Runs(ctx, cfg) {
		switch {
		case errors.Is(err, errTime):
			r.Whole = false
			continue
		case errors.Is(err, errOlder):
			r.Older = true
			continue
		case err != nil:
			return nil, err
		}
		judged = append(judged, Judged{run.Change, run.Done})
		r.Counts[run.Change]++
		r.Inputs = appendNew(r.Inputs, run.inputs)
		r.Mutations = append(r.Mutations, run.mutations...)
		run.inputs, run.mutations = nil, nil
		room -= run.cut(room)
		r.Runs = append(r.Runs, run)
	}
	order := Changes()
	slices.SortStableFunc(r.Runs, func(a, b Run) int { return slices.Index(order, a.Change) - slices.Index(order, b.Change) })
	r.Impact = ImpactOf(judged, r.Declared, r.Whole)
	return r, nil
}

// errTime and errOlder end a sequence of runs.
var (
	errTime  = errors.New("the time for comparing is over")
	errOlder = errors.New("there are more runs")
)

// Runs goes through the runs one after another, the newest first. The last element may be
// an error, also that the time was over or that there are more runs.
func Runs(ctx context.Context, cfg Config) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		if err := each(ctx, cfg, func(r Run) bool { return yield(r, nil) }); err != nil && !errors.Is(err, errEnough) {
			yield(Run{}, err)
		}
	}
}

// errEnough says that who reads wants no more.
var errEnough = errors.New("enough")

// each goes through the runs until yield returns false.
func each(ctx context.Context, cfg Config, yield func(Run) bool) error {
	rp, err := replay.New(replay.Config{Store: cfg.Store, Script: cfg.Script, Definition: cfg.Definition,
		Connections: cfg.Connections, Policy: cfg.Policy}, cfg.Workflow)
	if err != nil {
		return err
	}
	left, limit, since := cfg.MaxRuns, cfg.MaxTime, cfg.Since
	if left <= 0 {
		left = DefaultRuns
	}
	if limit <= 0 {
		limit = DefaultTime
	}
	if since.IsZero() {
		since = time.Now().AddDate(0, 0, -DefaultDays)
	}
	ctx, stop := context.WithTimeoutCause(ctx, limit, errTime)
	defer stop()
	c := &comparer{cfg: cfg, replays: rp}
	filter := keep.RunFilter{Workflow: cfg.Workflow, Made: keep.Period{Since: since}}
	for run, err := range store.All(ctx, cfg.Store.Runs, filter, keep.Page{Limit: pageSize, Bare: true}) {
		if err != nil {
			return orCause(ctx, err)
		}
		if takes, err := c.takes(ctx, run); err != nil {
			return orCause(ctx, err)
		} else if !takes {
			continue
		}
		if left--; left < 0 {
			return errOlder
		}
		r, err := c.compare(ctx, run)
		if isNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return orCause(ctx, err)
		}
		if !yield(r) {
			return errEnough
		}
	}
	return nil
}

// pageSize is how many runs are read at once.
const pageSize = 100

// orCause returns why ctx ended, or else err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// appendNew appends what is not in list yet.
func appendNew(list, more []Input) []Input {
	for _, in := range more {
		if !slices.ContainsFunc(list, func(x Input) bool { return x.ID == in.ID }) {
			list = append(list, in)
		}
	}
	return list
}

func isNotFound(err error) bool { return errors.Is(err, keep.ErrNotFound) }
