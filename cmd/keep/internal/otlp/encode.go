package otlp

import (
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/trace"
)

// The JSON form of ExportTraceServiceRequest (OTLP 1, "JSON Protobuf Encoding"):
// ids are hex, enumerations numbers, 64-bit numbers strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		Name         string     `json:"name"`
		Kind         int        `json:"kind"`
		Start        string     `json:"startTimeUnixNano"`
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       *status    `json:"status,omitempty"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Bool   *bool   `json:"boolValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
		Double any     `json:"doubleValue,omitempty"` // a number, or NaN, Infinity and -Infinity as texts
	}
)

// encode groups spans by what made them. All spans of one process have the same
// resource.
func encode(spans []trace.ReadOnlySpan) request {
	byScope := make(map[instrumentation.Scope]int)
	var out resourceSpans
	for _, s := range spans {
		if out.Resource.Attributes == nil && s.Resource() != nil {
			out.Resource.Attributes = keyValues(s.Resource().Attributes())
		}
		sc := s.InstrumentationScope()
		i, ok := byScope[sc]
		if !ok {
			i = len(out.ScopeSpans)
			byScope[sc] = i
			out.ScopeSpans = append(out.ScopeSpans, scopeSpans{Scope: scope{sc.Name, sc.Version}})
		}
		out.ScopeSpans[i].Spans = append(out.ScopeSpans[i].Spans, encodeSpan(s))
	}
	return request{[]resourceSpans{out}}
}

// encodeSpan is one span in the form of the protocol. Events and links of spans are left out.
func encodeSpan(s trace.ReadOnlySpan) span {
	v := span{
		TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
		Name: s.Name(), Kind: int(s.SpanKind()), Start: nanos(s.StartTime()), End: nanos(s.EndTime()),
		Attributes: keyValues(s.Attributes()),
	}
	if s.Parent().SpanID().IsValid() {
		v.ParentSpanID = s.Parent().SpanID().String()
	}
	// The protocol's numbers are not the SDK's.
	switch s.Status().Code {
	case codes.Ok:
		v.Status = &status{Code: 1}
	case codes.Error:
		v.Status = &status{Code: 2, Message: s.Status().Description}
	}
	return v
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// double returns a number as JSON has it, and else as the protocol does.
func double(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return f
}

// keyValues leaves out nothing: what is no scalar becomes its text.
func keyValues(kvs []attribute.KeyValue) []keyValue {
	out := make([]keyValue, 0, len(kvs))
	for _, kv := range kvs {
		var v value
		switch kv.Value.Type() {
		case attribute.BOOL:
			b := kv.Value.AsBool()
			v.Bool = &b
		case attribute.INT64:
			n := strconv.FormatInt(kv.Value.AsInt64(), 10)
			v.Int = &n
		case attribute.FLOAT64:
			v.Double = double(kv.Value.AsFloat64())
		default:
			s := kv.Value.Emit()
			v.String = &s
		}
		out = append(out, keyValue{string(kv.Key), v})
	}
	return out
}
