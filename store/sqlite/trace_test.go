package sqlite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// Traces of a file from before keep their parts and the order of these; those of more than one run do not mix.
func TestTracesOfAnOlderFile(t *testing.T) {
	db := openOlder(t, 35, `
		INSERT INTO run (n, id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
			mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at) VALUES
			(4, 'run_1', 'run_1', '', 'w', 1, 0, 'h', 'producer', 'committed', 'committed', 1, 1, '', '', '', '', 0, 0, 0, 0, 0, 1000, 3000),
			(7, 'run_2', 'run_2', '', 'w', 1, 0, 'h', 'producer', 'committed', 'committed', 1, 1, '', '', '', '', 0, 0, 0, 0, 0, 2000, 3000);
		INSERT INTO run_trace VALUES (1, 'run_1', 1000, x'01'), (2, 'run_2', 2000, x'02'), (3, 'run_1', 2500, x'03'), (5, 'run_1', 3000, x'04')`)
	parts := func(run keep.RunID) (got []string) {
		t.Helper()
		list, err := db.Trace(t.Context(), run)
		must(t, err)
		for _, p := range list {
			got = append(got, fmt.Sprintf("%d %x", p.At.UnixMilli(), p.Data))
		}
		return got
	}
	if got, want := parts("run_1"), []string{"1000 01", "2500 03", "3000 04"}; !slices.Equal(got, want) {
		t.Errorf("parts are %q, want %q", got, want)
	}
	if got, want := parts("run_2"), []string{"2000 02"}; !slices.Equal(got, want) {
		t.Errorf("parts are %q, want %q", got, want)
	}
	clean(t, db)
	before := time.UnixMilli(2001)
	n, err := db.OldTraces(t.Context(), before)
	must(t, err)
	if n != 2 {
		t.Errorf("%d parts are old, want 2", n)
	}
	n, err = db.ForgetTraces(t.Context(), before, 10)
	must(t, err)
	if got, want := parts("run_1"), []string{"2500 03", "3000 04"}; n != 2 || !slices.Equal(got, want) || parts("run_2") != nil {
		t.Errorf("%d parts are forgotten, there are %q, want 2 and %q", n, got, want)
	}
	clean(t, db)
}

// A part whose run is not there is found.
func TestPartWithoutRun(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	must(t, db.Do(t.Context(), `INSERT INTO run_trace VALUES (1, 7, 1, x'01')`))
	if got := storetest.Violations(t, db); len(got) != 1 || !strings.Contains(got[0], "missing run") {
		t.Errorf("Check finds %q, want the part without its run", got)
	}
}
