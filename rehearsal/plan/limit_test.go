package plan_test

import (
	"context"
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
