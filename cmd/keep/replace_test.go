package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/operator"
)

// Of two hosts that replace the same version at once, through a connection each, one
// does and the other hears what is current now.
func TestReplaceOnce(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]func(testing.TB) string{
		"sqlite":   func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "keep.db") },
		"postgres": pgtest.SchemaURL,
	} {
		t.Run(name, func(t *testing.T) {
			url := where(t)
			var operators []*operator.Operator
			for range 2 {
				db, err := database.OpenName(t.Context(), url, database.ToDeploy)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				e, err := operator.New(db, operator.Config{})
				if err != nil {
					t.Fatal(err)
				}
				operators = append(operators, e)
			}
			current := keep.Version{} // at first the workflow is new
			for round := range 20 {
				current = replaceOnce(t, operators, round, current)
			}
		})
	}
}

// replaceOnce has every operator replace the current version, and returns the one that
// did.
func replaceOnce(t *testing.T, operators []*operator.Operator, round int, current keep.Version) keep.Version {
	t.Helper()
	type result struct {
		v   keep.Version
		err error
	}
	results := make([]result, len(operators))
	var wg sync.WaitGroup
	for i, e := range operators {
		d := keep.Deployment{Workflow: "w", Hash: fmt.Sprintf("%d of %d", i, round), Entry: "w.js",
			Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}}}
		wg.Go(func() {
			results[i].v, results[i].err = e.Replace(context.WithoutCancel(t.Context()), d, current)
		})
	}
	wg.Wait()
	var won []keep.Version
	for _, r := range results {
		e, lost := errors.AsType[*keep.VersionError](r.err)
		switch {
		case r.err == nil:
			won = append(won, r.v)
		case !lost || e.Want != current || e.Current.Major != current.Major+1:
			t.Errorf("round %d: %v", round, r.err)
		}
	}
	if len(won) != 1 || won[0].Major != current.Major+1 {
		t.Fatalf("round %d: %v replaced %s, want one", round, won, current)
	}
	return won[0]
}
