// Package operator does what people decide: it answers questions, pauses, triggers
// and deploys workflows, skips events, inputs and items, and sweeps what is finished
// and old.
//
// It reads, decides by the law and commits, if nothing changed meanwhile; what the
// decision then causes is the engine's work. So it needs no running engine, and may
// be used in another process than the one that executes the workflow: that one finds
// the commit in the store, or is woken if it is in this process.
package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/commitlog"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
)

// Config configures an Operator. The zero value is usable.
type Config struct {
	// Policy holds the numbers. If nil, policy.Default().
	Policy *policy.Policy

	// Now is the time that decisions carry: that of the database, if several hosts
	// share one. If nil, time.Now.
	Now func() time.Time

	// Executor executes the workflows in this process. If nil, nothing does.
	Executor Executor

	// Results knows what calls bring. If nil, nobody does: what a person says that a
	// call brought is taken if it is JSON.
	Results Results

	// Budgets returns the budgets that are configured now. If nil, there are none.
	Budgets func() []budget.Rule

	// Secrets returns the mark of the secrets that the connection of a tool has here now; see
	// connector.Connection. If nil, no run is tried again because one was replaced.
	Secrets func(tool keep.ToolName) (mark string, known bool)

	// Logger receives what a person should know. If nil, slog.Default().
	Logger *slog.Logger
}

// Results knows what calls of tools bring; engine.Results is one.
type Results interface {
	// ResultSchema returns the JSON Schema of what a tool brings; nil: anything.
	ResultSchema(tool keep.ToolName) json.RawMessage

	// CheckResult returns why a result of a tool is refused.
	CheckResult(tool keep.ToolName, result json.RawMessage) error

	// ReadResult reads from the service what m brought. Known is false if the service
	// cannot be read for it.
	ReadResult(ctx context.Context, m keep.Mutation) (result json.RawMessage, known bool, err error)
}

// An Executor executes workflows; *engine.Engine is one.
type Executor interface {
	// Wake makes a workflow look again, after a commit to it.
	Wake(w keep.WorkflowName)

	// Executing reports whether a run of w is under way, which the store may not
	// show before its first commit.
	Executing(w keep.WorkflowName) bool

	// Epoch returns the epoch under which this host commits to a workflow, and
	// false if another host has the workflow.
	Epoch(w keep.WorkflowName) (epoch int64, ours bool)

	// ReloadLimits reads again what is stored of the limits of connections.
	ReloadLimits(ctx context.Context)
}

// An Operator records decisions in one store. It is safe for concurrent use.
type Operator struct {
	store  Store
	policy policy.Policy
	cfg    Config
	log    *slog.Logger
}

// New returns an operator. The error is that of an invalid policy.
func New(store Store, cfg Config) (*Operator, error) {
	p := policy.Default()
	if cfg.Policy != nil {
		p = *cfg.Policy
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Executor == nil {
		cfg.Executor = nobody{}
	}
	if cfg.Budgets == nil {
		cfg.Budgets = func() []budget.Rule { return nil }
	}
	if cfg.Results == nil {
		cfg.Results = anything{}
	}
	return &Operator{store: store, policy: p, cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default())}, nil
}

// now returns the time as stores keep it.
func (o *Operator) now() time.Time { return o.cfg.Now().UTC().Truncate(time.Millisecond) }

// decided makes a decision durable and wakes its workflow. It does so whatever
// becomes of ctx, so that who decided learns what became of the decision.
func (o *Operator) decided(ctx context.Context, w keep.WorkflowName, now time.Time, changes ...keep.Change) error {
	if err := o.commit(ctx, w, 0, now, changes...); err != nil {
		return err
	}
	o.cfg.Executor.Wake(w)
	return nil
}

func (o *Operator) commit(ctx context.Context, w keep.WorkflowName, epoch int64, now time.Time, changes ...keep.Change) error {
	ctx = context.WithoutCancel(ctx)
	c := keep.Commit{Workflow: w, Epoch: epoch, At: now, Changes: changes}
	err := o.store.Commit(ctx, c)
	if err == nil {
		commitlog.Write(ctx, o.log, c)
	}
	return err
}

// nobody is the executor of a process that executes nothing. Its epoch is that of
// what people decide.
type nobody struct{}

func (nobody) Wake(keep.WorkflowName)                {}
func (nobody) Executing(keep.WorkflowName) bool      { return false }
func (nobody) Epoch(keep.WorkflowName) (int64, bool) { return 0, true }
func (nobody) ReloadLimits(context.Context)          {}

func isNotFound(err error) bool { return errors.Is(err, keep.ErrNotFound) }
