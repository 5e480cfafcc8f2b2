package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A service that wants to be left alone for a time is, though no plan waits for it, whatever else would read from it.
func TestMake_leaves_a_service_alone(t *testing.T) {
	t.Parallel()
	reads := 0
	conns := []connector.Connection{{Name: "svc", Tools: []connector.Tool{
		connector.NewReader(connector.Spec{Name: "list", Effect: connector.List}, func(context.Context, struct{}) ([]string, error) {
			reads++
			return nil, &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "slow down", RetryAfter: time.Hour}
		}),
	}}}
	poll := func(ctx context.Context, in *handler.Ingress) (err error) {
		for range 3 {
			err = in.Read(ctx, "svc.list", nil, nil)
		}
		return err
	}
	w, err := host.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{
		handler.Producer{Name: "a", Schedule: keep.Schedule{Interval: time.Hour}, Run: poll}, handler.Producer{Name: "b", Schedule: keep.Schedule{Interval: time.Hour}, Run: poll},
	}}, "build")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(t.Context(), plan.Config{Scripts: []*host.Workflow{w}, Connections: conns})
	if err != nil || reads != 1 || len(p.Errors) == 0 || !strings.Contains(p.Errors[0].Message, "slow down") {
		t.Errorf("%d reads, %+v, %v; want one read, and what the service said", reads, p, err)
	}
}

// A plan says what it does not know because a run of it stopped and holds up its workflow: other handlers that are due, and more events.
func TestMake_says_what_a_run_holds_up(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, *handler.Ingress) error { return errors.New("no") }
	finds := func(ctx context.Context, in *handler.Ingress) error {
		return errors.Join(in.Publish(ctx, "in", handler.Message{ID: "1"}), in.Publish(ctx, "in", handler.Message{ID: "2"}))
	}
	hourly := keep.Schedule{Interval: time.Hour}
	consumer := handler.Consumer[struct{}, handler.NoResult]{Name: "send", Subscribe: []keep.TopicName{"in"},
		Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[struct{}], err error) {
			return p, errors.New("no")
		},
		Mutate: func(context.Context, *handler.Getter, handler.Prepared[struct{}]) (handler.Call, error) {
			return handler.Call{}, nil
		},
	}
	for want, handlers := range map[string][]handler.Handler{
		"w: the run of a stopped, and holds up the workflow (keep docs order); what b would do after it is not planned.": {
			handler.Producer{Name: "a", Schedule: hourly, Run: fails}, handler.Producer{Name: "b", Schedule: hourly, Run: finds}, consumer},
		"w: the run of send stopped, and holds up the workflow (keep docs order); what send would do after it is not planned.": {
			handler.Producer{Name: "b", Schedule: hourly, Run: finds}, consumer},
		"": {handler.Producer{Name: "a", Schedule: hourly, Run: fails}},
	} {
		w, err := host.LoadGo(&handler.Workflow{Name: "w", Topics: []keep.TopicName{"in"}, Handlers: handlers}, "build")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(t.Context(), plan.Config{Scripts: []*host.Workflow{w}})
		if err != nil || strings.Join(p.Unknown, "") != want {
			t.Errorf("unknown %q, %v; want %q", p.Unknown, err, want)
		}
	}
}
