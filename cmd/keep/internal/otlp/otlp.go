// Package otlp sends spans to a collector as OTLP/HTTP JSON. The official
// exporter brings gRPC and the generated code of its protocol, which would make
// the command a fifth larger and slower to start; what it does beyond this
// package is not needed. Batching, sampling and limits are those of the SDK.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pause"
)

// Bounds of one export.
const (
	timeout  = 10 * time.Second
	attempts = 3
	maxWait  = 3 * time.Second // between attempts, whatever the collector asks for
)

// An Exporter sends spans. It is used by one goroutine at a time, as the SDK does.
type Exporter struct {
	url     string
	headers http.Header
	client  http.Client
}

// FromEnv returns the exporter that the standard variables ask for
// (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT and
// OTEL_EXPORTER_OTLP_HEADERS), or nil if they name no endpoint.
func FromEnv(getenv func(string) string) (*Exporter, error) {
	const general, own = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	name, raw, path := own, getenv(own), ""
	if raw == "" {
		name, raw, path = general, getenv(general), "v1/traces"
	}
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s is not an http or https URL", name) // it may hold a password
	}
	for _, v := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := getenv(v); p != "" && !strings.HasPrefix(p, "http/") {
			return nil, fmt.Errorf("%s is %q: traces are sent as http/json only", v, p)
		}
	}
	headers, err := parseHeaders(cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), getenv("OTEL_EXPORTER_OTLP_HEADERS")))
	if err != nil {
		return nil, err
	}
	if path != "" {
		u = u.JoinPath(path)
	}
	return &Exporter{url: u.String(), headers: headers, client: http.Client{Timeout: timeout, CheckRedirect: stay}}, nil
}

// stay follows no redirect: the headers may be a key of the collector, and the place that it names another's.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseHeaders reads "name=value,name=value"; values are percent-encoded.
func parseHeaders(list string) (http.Header, error) {
	h := make(http.Header)
	for i, pair := range strings.Split(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: entry %d is not name=value", i+1)
		}
		h.Set(strings.TrimSpace(name), value)
	}
	return h, nil
}

// ExportSpans sends one batch. It tries again where the protocol says that this
// helps; a batch that the collector took twice has the same ids.
func (e *Exporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	body, err := json.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	for n := 1; ; n++ {
		wait, err := e.send(ctx, body)
		if err == nil || wait < 0 || n == attempts {
			return err
		}
		if ended := pause.For(ctx, min(max(wait, time.Duration(n)*200*time.Millisecond), maxWait)); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// send posts a body. After an error wait says when to try again; below zero,
// that it does not help.
func (e *Exporter) send(ctx context.Context, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("send spans: the endpoint is not a URL")
	}
	req.Header = e.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may hold a password
		}
		return 0, fmt.Errorf("send spans: %w", err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		wait = waitOf(resp.Header.Get("Retry-After"))
	default:
		if resp.StatusCode/100 == 2 {
			return -1, partly(text) // what was rejected would be again
		}
		wait = -1
	}
	return wait, fmt.Errorf("send spans: the collector answered %s", resp.Status)
}

// partly returns what a collector that took a batch says against a part of it; nil: nothing.
func partly(answer []byte) error {
	var a struct {
		Partial struct {
			Rejected json.RawMessage `json:"rejectedSpans"` // a number, or a text with one: it has 64 bits
			Message  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return nil // many collectors answer something else, or nothing
	}
	rejected, why := strings.Trim(string(a.Partial.Rejected), `"`), inLine(a.Partial.Message)
	none := rejected == "" || rejected == "0" || rejected == "null"
	switch {
	case none && why == "":
		return nil
	case none:
		return fmt.Errorf("send spans: the collector says: %s", why)
	}
	return fmt.Errorf("send spans: the collector rejected %s spans: %s", inLine(rejected), cmp.Or(why, "it does not say why"))
}

// inLine returns what a collector says as a part of a line that is not long.
func inLine(text string) string { return keep.OneLine(text[:min(len(text), 500)]) }

// waitOf returns how long a collector asks to be left alone, at most maxWait.
func waitOf(after string) time.Duration {
	seconds, _ := strconv.Atoi(after) // of too large a number the largest, and else zero
	return time.Duration(min(max(seconds, 0), int(maxWait/time.Second))) * time.Second
}

// Shutdown closes idle connections.
func (e *Exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
