package daemon

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep/cmd/keep/internal/otlp"

	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
)

// flushTime is how long a command waits for its last spans to be sent.
const flushTime = 5 * time.Second

// openTraces returns what makes spans, nil if the environment names no
// collector (OTEL_EXPORTER_OTLP_ENDPOINT), and what sends the last of them. A
// collector that is away costs spans and a line in the log, and nothing else.
func (e Env) openTraces(ctx context.Context) (trace.Tracer, func() error, error) {
	exporter, err := otlp.FromEnv(os.Getenv)
	if err != nil || exporter == nil {
		return nil, func() error { return nil }, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "keep"), attribute.String("service.version", buildinfo.Read().Version)),
		resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv()) // the last wins
	if err != nil {
		return nil, nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { e.Log.Warn("traces", "err", err) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	flush := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			e.Log.Warn("traces", "err", err)
		}
		return nil
	}
	return p.Tracer("github.com/keep-run/keep"), flush, nil
}
