package api

import (
	"encoding/json"
	"time"

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

// UnmarshalText reads what MarshalText wrote.
func (t *Time) UnmarshalText(text []byte) error {
	v, err := time.Parse(time.RFC3339Nano, string(text))
	*t = Time(v)
	return err
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
