package otlp_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep/cmd/keep/internal/otlp"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// What a collector receives is what the protocol asks for, also if it is busy at
// first.
func TestExport(t *testing.T) {
	var bodies []string
	var header http.Header
	busy := 1
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if busy--; busy >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		header = r.Header
		bodies = append(bodies, r.URL.Path+" "+string(b))
	}))
	defer srv.Close()
	e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL, "OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"))
	if err != nil {
		t.Fatal(err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(e))
	tr := p.Tracer("keep", api.WithInstrumentationVersion("1"))
	ctx, outer := tr.Start(t.Context(), "run", api.WithAttributes(attribute.String("s", "ü"), attribute.Int("n", 1<<40),
		attribute.Bool("b", false), attribute.Float64("f", 0.5), attribute.StringSlice("l", []string{"x", "y"})))
	_, inner := tr.Start(ctx, "call", api.WithSpanKind(api.SpanKindClient))
	inner.SetStatus(codes.Error, "reset")
	inner.End()
	outer.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 1 || header.Get("X-Key") != "a b" || header.Get("Content-Type") != "application/json" {
		t.Fatalf("received %q with %v, want one body of JSON with x-key", bodies, header)
	}
	path, body, _ := strings.Cut(bodies[0], " ")
	var got struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []map[string]any }
			ScopeSpans []struct {
				Scope map[string]string
				Spans []map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if path != "/v1/traces" || len(got.ResourceSpans) != 1 || len(got.ResourceSpans[0].ScopeSpans) != 1 ||
		len(got.ResourceSpans[0].Resource.Attributes) == 0 || got.ResourceSpans[0].ScopeSpans[0].Scope["name"] != "keep" {
		t.Fatalf("%s received %s", path, body)
	}
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 2 {
		t.Fatalf("%d spans, want 2", len(spans))
	}
	call, run := spans[0], spans[1]
	if call["name"] != "call" || call["kind"] != 3.0 || call["traceId"] != run["traceId"] || call["parentSpanId"] != run["spanId"] ||
		len(run["traceId"].(string)) != 32 || len(run["spanId"].(string)) != 16 || run["parentSpanId"] != nil {
		t.Errorf("spans are %v and %v", call, run)
	}
	if status := call["status"].(map[string]any); status["code"] != 2.0 || status["message"] != "reset" {
		t.Errorf("status = %v, want the protocol's code for an error, 2", status)
	}
	if start, end := run["startTimeUnixNano"].(string), run["endTimeUnixNano"].(string); len(start) != 19 || start > end {
		t.Errorf("run lasted from %q to %q", start, end)
	}
	attrs, err := json.Marshal(run["attributes"])
	const want = `[{"key":"s","value":{"stringValue":"ü"}},{"key":"n","value":{"intValue":"1099511627776"}},` +
		`{"key":"b","value":{"boolValue":false}},{"key":"f","value":{"doubleValue":0.5}},{"key":"l","value":{"stringValue":"[\"x\",\"y\"]"}}]`
	if err != nil || string(attrs) != want {
		t.Errorf("attributes = %s, want %s", attrs, want)
	}
}

// A collector that refuses, or is not there, gets no endless attempts, and the
// error does not show what is secret in its address.
func TestExportFails(t *testing.T) {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.WriteHeader(http.StatusBadRequest)
	}))
	addr := strings.TrimPrefix(srv.URL, "http://")
	for _, up := range []bool{true, false} {
		if !up {
			srv.Close()
		}
		e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://me:hush@"+addr+"/traces"))
		if err != nil {
			t.Fatal(err)
		}
		err = e.ExportSpans(t.Context(), nil)
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("up %t: error = %v, want one without the password", up, err)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("the collector was asked %d times, want once: 400 does not get better", calls)
	}
}

// A collector that is busy is asked again, whatever it says for how long it is.
func TestBusyCollector(t *testing.T) {
	for _, after := range []string{"", "-1", "soon"} {
		calls := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				w.Header().Set("Retry-After", after)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.ExportSpans(t.Context(), nil); err != nil || calls != 2 {
			t.Errorf("Retry-After %q: %v after %d requests, want none after two", after, err, calls)
		}
		srv.Close()
	}
}

// A collector that wants to be left alone for longer than can be counted is asked again after the longest wait.
func TestLongRetryAfter(t *testing.T) {
	for _, after := range []string{"10000000000", "99999999999999999999"} {
		if got := otlp.WaitOf(after); got != 3*time.Second {
			t.Errorf("Retry-After %s: %s, want 3s", after, got)
		}
	}
}

func TestFromEnv(t *testing.T) {
	if e, err := otlp.FromEnv(env()); e != nil || err != nil {
		t.Errorf("without variables: %v, %v; want none", e, err)
	}
	for _, c := range [][]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "secret"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "k=%zz"},
	} {
		_, err := otlp.FromEnv(env(c...))
		if err == nil || !strings.Contains(errors.Join(err).Error(), "OTEL_EXPORTER_OTLP_") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error = %v, want one that names the variable and no value of a header", c, err)
		}
	}
}

// What goes with the spans is for the collector alone, also if that names another place.
func TestNoRedirect(t *testing.T) {
	var elsewhere http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere = r.Header }))
	defer other.Close()
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL, "OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ExportSpans(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("export: %v, want the status that the collector answered", err)
	}
	if elsewhere != nil {
		t.Errorf("another server got %v", elsewhere)
	}
}

// What a collector does not take of a batch that it accepts is said, and not sent again.
func TestPartialSuccess(t *testing.T) {
	for body, want := range map[string]string{
		`{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old\n\u001b[31m"}}`: "the collector rejected 2 spans: too old",
		`{"partialSuccess":{"rejectedSpans":3}}`:                                        "the collector rejected 3 spans",
		`{"partialSuccess":{"rejectedSpans":0,"errorMessage":"use another port"}}`:      "use another port",
		`{"partialSuccess":{"rejectedSpans":"0"}}`:                                      "",
		`{"partialSuccess":{}}`:                                                         "", `{}`: "", ``: "", `null`: "", `ok`: "",
	} {
		calls := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls++
			_, _ = io.WriteString(w, body)
		}))
		e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL))
		if err != nil {
			t.Fatal(err)
		}
		err = e.ExportSpans(t.Context(), nil)
		if calls != 1 || (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("%s: %v after %d requests, want %q", body, err, calls, want)
		}
		srv.Close()
	}
}

// A number that JSON does not have is written as the protocol has it, and loses no batch.
func TestNumbersThatJSONHasNot(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = string(b)
	}))
	defer srv.Close()
	e, err := otlp.FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL))
	if err != nil {
		t.Fatal(err)
	}
	p := trace.NewTracerProvider(trace.WithSyncer(e))
	_, span := p.Tracer("keep").Start(t.Context(), "run", api.WithAttributes(attribute.Float64("a", math.NaN()), attribute.Float64("b", math.Inf(1)), attribute.Float64("c", math.Inf(-1))))
	span.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"doubleValue":"NaN"}`, `{"doubleValue":"Infinity"}`, `{"doubleValue":"-Infinity"}`} {
		if !strings.Contains(got, want) {
			t.Errorf("the collector got %q, want %s", got, want)
		}
	}
}
