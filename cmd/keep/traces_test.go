package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Spans reach the collector that the environment names, before the command ends.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	var got strings.Builder
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got.Write(b)
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	if code, talk := runTick(t); code != 0 {
		t.Fatalf("keep run: exit %d: %s", code, talk)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{`"name":"run"`, `"name":"handler"`, `{"key":"keep.workflow","value":{"stringValue":"tick"}}`, `{"key":"service.name","value":{"stringValue":"keep"}}`} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("the collector did not get %s, but %s", want, got.String())
		}
	}
}

// A collector that cannot be is said before anything runs.
func TestTracesMisconfigured(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
	if code, talk := runTick(t); code == 0 || !strings.Contains(talk, "OTEL_EXPORTER_OTLP_ENDPOINT is not an http or https URL") {
		t.Errorf("exit %d: %s", code, talk)
	}
}

// runTick runs a workflow of one producer.
func runTick(t *testing.T) (code int, talk string) {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "tick.js")
	if err := os.WriteFile(script, []byte(`export default Keep.workflow({ name: "tick", topics: { t: {} },
  producers: { async poll(ctx) { await ctx.publish("t", { messageId: "a" }); } } });`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, err bytes.Buffer
	code = run(t.Context(), []string{"run", script, "--db", filepath.Join(dir, "keep.db")}, &out, &err)
	return code, err.String()
}
