package engine_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
)

// backstops counts the commits in which only a unique index of the store kept
// something from being there twice. The law decides before: it must stay 0.
var backstops atomic.Int64

// countBackstops looks at what became of a commit. A person's "run now" may be
// refused while a run is open.
func countBackstops(err error, c keep.Commit) {
	if !errors.Is(err, keep.ErrMutationExists) && !errors.Is(err, keep.ErrRunOpen) {
		return
	}
	for _, change := range c.Changes {
		if _, ok := change.(keep.RequestRun); ok {
			return
		}
	}
	backstops.Add(1)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if n := backstops.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: a unique index prevented %d duplicates; the law must decide before\n", n)
		code = 1
	}
	if leaked := leakedGoroutines(); leaked != "" {
		fmt.Fprintf(os.Stderr, "FAIL: goroutines are left:\n\n%s\n", leaked)
		code = 1
	}
	os.Exit(code)
}

// leakedGoroutines returns the stacks of goroutines that run code of this module
// although every test is over. It waits a little for those that are ending.
func leakedGoroutines() string {
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		buf := make([]byte, 1<<20)
		var left []string
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "keep-run/keep") && !strings.Contains(stack, "leakedGoroutines") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}
