package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
)

// Spans. A run is one span; each phase of its script, each call of a tool and
// each lookup is one inside of it. Without Config.Tracer nothing is made. What is a span is
// measured, too, but for phases.

// span begins a span for the run. The function ends it.
func (x *execution) span(ctx context.Context) (context.Context, func()) {
	if x.e.cfg.Tracer == nil && x.e.cfg.Measured == nil {
		return ctx, func() {}
	}
	began, end := time.Now(), func() {}
	if x.e.cfg.Tracer != nil {
		ctx, end = x.runSpan(ctx)
	}
	return ctx, func() {
		end()
		m := Measure{What: MeasuredRun, Workflow: x.run.Workflow, Handler: x.run.Handler, Status: x.run.Status}
		if x.run.Status != keep.StatusCommitted {
			m.Class = classOf(x.run.Error)
		}
		x.e.measure(m, began)
	}
}

func (x *execution) runSpan(ctx context.Context) (context.Context, func()) {
	r := &x.run
	ctx, s := x.e.cfg.Tracer.Start(ctx, "run", trace.WithAttributes(
		attribute.String("keep.workflow", string(r.Workflow)),
		attribute.String("keep.version", r.Version.String()),
		attribute.String("keep.handler", string(r.Handler)),
		attribute.String("keep.kind", string(r.Kind)),
		attribute.String("keep.run", string(r.ID)),
		attribute.String("keep.chain", string(r.Chain)),
	))
	x.spanCtx = trace.SpanContextFromContext(ctx)
	return ctx, func() {
		s.SetAttributes(attribute.String("keep.phase", string(r.Phase)), attribute.String("keep.status", string(r.Status)))
		if r.Error != nil && r.Status != keep.StatusCommitted {
			fault(s, r.Error)
		}
		s.End()
	}
}

// within returns ctx as part of the run's span: what must continue while the host
// stops has a context of its own.
func (x *execution) within(ctx context.Context) context.Context {
	if !x.spanCtx.IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, x.spanCtx)
}

// phaseSpan begins a span for a phase of the script.
func (x *execution) phaseSpan(ctx context.Context, phase string) (context.Context, func(error)) {
	if x.e.cfg.Tracer == nil {
		return ctx, func(error) {}
	}
	ctx, s := x.e.cfg.Tracer.Start(x.within(ctx), cmp.Or(phase, "handler"))
	return ctx, func(err error) {
		if err != nil && !errors.Is(err, errTaken) { // its mutate call ended it: a success
			fault(s, asFailure(err))
		}
		s.End()
	}
}

// toolSpan begins a span for one use of a tool by a workflow: op is a call, a read or a lookup. key
// is that of the mutation, empty for a read.
func (e *Engine) toolSpan(ctx context.Context, op Measured, w keep.WorkflowName, t *tool, key keep.MutationKey) (context.Context, func(*keep.Failure)) {
	if e.cfg.Tracer == nil && e.cfg.Measured == nil {
		return ctx, func(*keep.Failure) {}
	}
	began, end := time.Now(), func(*keep.Failure) {}
	if e.cfg.Tracer != nil {
		ctx, end = e.clientSpan(ctx, op, t, key)
	}
	return ctx, func(f *keep.Failure) {
		end(f)
		e.measure(Measure{What: op, Workflow: w, Tool: t.name, Class: classOf(f)}, began)
	}
}

func (e *Engine) clientSpan(ctx context.Context, op Measured, t *tool, key keep.MutationKey) (context.Context, func(*keep.Failure)) {
	attrs := []attribute.KeyValue{
		attribute.String("keep.tool", string(t.name)),
		attribute.String("keep.connector", t.connector),
	}
	if key != "" {
		attrs = append(attrs, attribute.String("keep.mutation", string(key)))
	}
	ctx, s := e.cfg.Tracer.Start(ctx, string(op)+" "+string(t.name), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, func(f *keep.Failure) {
		if f != nil {
			fault(s, f)
		}
		s.End()
	}
}

// fault says on a span what went wrong.
func fault(s trace.Span, f *keep.Failure) {
	s.SetAttributes(attribute.String("error.type", string(f.Class)), attribute.String("keep.code", f.Code))
	s.SetStatus(codes.Error, f.Message)
}
