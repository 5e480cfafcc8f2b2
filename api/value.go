package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep"
)

// A Time is a time as the objects show it.
type Time time.Time

// layout is RFC 3339 with milliseconds, always three digits.
const layout = "2006-01-02T15:04:05.000Z07:00"

// String is the time in UTC.
func (t Time) String() string { return time.Time(t).UTC().Format(layout) }

// MarshalText writes the time in UTC.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote. The error does not repeat the text.
func (t *Time) UnmarshalText(text []byte) error {
	v, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return errors.New("want a time of RFC 3339, such as 2026-11-20T09:30:00Z")
	}
	*t = Time(v)
	return nil
}

// TransformSchema says in the document how a time is written, so that a wrong one is refused by its name.
func (*Time) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Format = "date-time"
	return s
}

// timeOf returns t, or null if it is not set.
func timeOf(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	v := Time(t)
	return &v
}

// orNull returns s, or null if it is empty.
func orNull[S ~string](s S) *S {
	if s == "" {
		return nil
	}
	return &s
}

// list returns s, or an empty list if it is nil.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// A Failure is why a call or a run stopped.
type Failure struct {
	Class   keep.Class     `json:"class"`
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Tool    *keep.ToolName `json:"tool"`
	At      *string        `json:"at"` // file:line:column in the script
	Account *string        `json:"account,omitempty" doc:"the account that the call had no credential of, or a refused one; a run that waits for it continues when it is connected"`
}

// FailureOf returns the object of f, or null.
func FailureOf(f *keep.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{Class: f.Class, Code: f.Code, Message: f.Message, Tool: orNull(f.Tool), At: orNull(f.At), Account: orNull(f.Account)}
}

// raw returns JSON as it came, or null.
func raw(m json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return nil // marshals as null
	}
	return m
}
