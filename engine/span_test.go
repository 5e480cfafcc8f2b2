package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// Who traces sees a run with its phases, its call and what was asked about it.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seen := tracetest.NewInMemoryExporter()
		p := trace.NewTracerProvider(trace.WithSyncer(seen))
		w.tracer = p.Tracer("test")
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.deploy()
		w.publish("in", "a")
		w.run()
		names := make(map[string]string) // span id to name
		for _, s := range seen.GetSpans() {
			names[s.SpanContext.SpanID().String()] = s.Name
		}
		var got []string
		for _, s := range seen.GetSpans() {
			line := names[s.Parent.SpanID().String()] + " > " + s.Name
			if s.Status.Code == codes.Error {
				line += " failed"
			}
			for _, a := range s.Attributes {
				switch a.Key {
				case "keep.status", "keep.evidence", "error.type":
					line += fmt.Sprintf(" %s=%s", a.Key, a.Value.Emit())
				}
			}
			got = append(got, line)
		}
		slices.Sort(got)
		const want = ` > run keep.status=committed
run > call svc.create failed error.type=unknown
run > lookup svc.create keep.evidence=happened
run > mutate
run > next
run > prepare`
		if s := strings.Join(got, "\n"); s != want {
			t.Errorf("spans:\n%s\nwant:\n%s", s, want)
		}
	})
}

// What took how long is reported with the names and with what went wrong; without a tracer, too.
func TestMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var got []string
		w.measured = func(m engine.Measure) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s %s/%s %s %s %s %s", m.What, m.Workflow, m.Handler, m.Tool, m.Status, m.Class, m.Took))
		}
		w.service.onCall = func(int) (bool, error) {
			time.Sleep(20 * time.Millisecond)
			return true, errReset
		}
		w.deploy()
		w.publish("in", "a")
		time.Sleep(3 * time.Second)
		w.run()
		const want = `queue w/act    3s
call w/ svc.create  unknown 20ms
lookup w/ svc.create   0s
run w/act  committed  20ms`
		if s := strings.Join(got, "\n"); s != want {
			t.Errorf("measured:\n%s\nwant:\n%s", s, want)
		}
	})
}

// A run that waited for a lookup, and commits after one that found the effect, is counted when it does.
func TestMeasuredAfterLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var got []keep.RunStatus
		w.measured = func(m engine.Measure) {
			mu.Lock()
			defer mu.Unlock()
			if m.What == engine.MeasuredRun {
				got = append(got, m.Status)
			}
		}
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.service.onAsk = func(n int) (connector.Verdict, error) {
			if n == 1 {
				return "", errReset
			}
			return connector.Happened, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if len(got) == 0 || got[len(got)-1] != keep.StatusCommitted {
			t.Errorf("runs measured: %v, want the last to be committed", got)
		}
	})
}
