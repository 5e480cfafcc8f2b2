// Package stored is what both SQL stores have in common: the forms in which columns keep
// values, and the law where a query repeats it.
package stored

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// A failure is keep.Failure as it is stored: with the wait that JSON for people leaves
// out.
type failure struct {
	keep.Failure
	RetryAfter time.Duration `json:"retry_after,omitempty"` // nanoseconds
}

// Failure returns f as JSON, and nil for nil.
func Failure(f *keep.Failure) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	return json.Marshal(failure{*f, f.RetryAfter})
}

// ParseFailure reads what Failure wrote.
func ParseFailure(text []byte) (*keep.Failure, error) {
	if text == nil {
		return nil, nil
	}
	var f failure
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	f.Failure.RetryAfter = f.RetryAfter
	return &f.Failure, nil
}

// List returns names as SQL has them between the parentheses of IN. They are constants,
// so that a query finds the partial index whose condition has the same ones.
func List[S ~string](names ...S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = "'" + strings.ReplaceAll(string(name), "'", "''") + "'"
	}
	return strings.Join(quoted, ", ")
}

// Allowed returns the moves that the law allows a mutation, as rows of VALUES.
func Allowed() string {
	var rows []string
	for _, m := range ledger.Moves() {
		rows = append(rows, fmt.Sprintf("(%s, %s)", List(m.From), List(m.To)))
	}
	return strings.Join(rows, ", ")
}

// Known returns the states in which the outcome of a mutation is known, so that nothing
// waits for it.
func Known() string { return List(keep.Applied, keep.Skipped, keep.Failed) }
