package sqlite_test

import (
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/store/sqlite"
)

// A planner collects how SQLite executes every statement that tests made a
// database use. At a million rows a scan or a sort would show in the time; it
// shows in the plan at any size.
type planner struct {
	mu    sync.Mutex
	plans map[string]string // by statement
}

// watch adds the statements of db when the test ends.
func (p *planner) watch(tb testing.TB, db *sqlite.DB) {
	tb.Cleanup(func() {
		used, err := db.Plans(context.Background())
		if err != nil {
			tb.Errorf("Plans: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for text, plan := range used {
			p.plans[text] = plan
		}
	})
}

// judge fails the test for every statement whose cost grows with a table.
func (p *planner) judge(t *testing.T) {
	if len(p.plans) < 80 && testing.Verbose() {
		t.Logf("%d statements; the whole suite uses more", len(p.plans))
	}
	for _, text := range slices.Sorted(maps.Keys(p.plans)) {
		plan := p.plans[text]
		if strings.HasPrefix(text, "-- of what ended in a few minutes") || // costs as much as a host ran in them
			strings.HasPrefix(text, "-- of a deploy") || // costs as much as a topic has events that change
			strings.HasPrefix(text, "-- of the open questions") || // costs as much as there are, or as many as are named
			strings.HasPrefix(text, "-- of the open runs") || // the same
			strings.HasPrefix(text, "-- by a part of an id") { // a person who typed a few characters may wait
			continue
		}
		if testing.Verbose() {
			t.Logf("%s\n%s", strings.TrimSpace(text), plan)
		}
		for line := range strings.Lines(plan) {
			if line = strings.TrimSpace(line); !fast(line) {
				t.Errorf("%s\n%s", line, text)
			}
		}
	}
}

// small are the tables that have as many rows as there are workflows, topics,
// handlers, hooks, accounts, gates or versions, and those that a statement makes.
var small = []string{"workflow", "topic", "handler", "deployment", "json_each", "hook", "account", "gate", "repair", "granted", "proposal", "next", "bucket", "member", "level", "taken", "CONSTANT"}

var scan = regexp.MustCompile(`^SCAN (\w+)`)

// fast reports whether a step of a plan costs no more with more rows.
func fast(step string) bool {
	switch {
	case strings.Contains(step, "TEMP B-TREE"):
		return false
	case step == "SCAN run USING INDEX run_open": // one row of each workflow, by law
		return true
	}
	if strings.HasSuffix(step, "_words VIRTUAL TABLE INDEX 1537:") { // the first word of a range
		return true
	}
	if strings.Contains(step, " VIRTUAL TABLE INDEX ") && strings.HasPrefix(step, "SCAN ") && strings.Contains(step, "_search") {
		return !strings.HasSuffix(step, "INDEX 0:") // by words or by rowid
	}
	m := scan.FindStringSubmatch(step)
	return m == nil || slices.Contains(small, m[1])
}

// Counting does not look at runs that committed: a busy host counts each of them ten times, and a row of a run is large.
func TestCountedWithoutTheRuns(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	_, err := db.Ended(t.Context(), time.UnixMilli(0), time.UnixMilli(60_000))
	must(t, err)
	plans, err := db.Plans(t.Context())
	must(t, err)
	for text, plan := range plans {
		if strings.HasPrefix(text, "-- of what ended in a few minutes") && strings.Contains(plan, "SEARCH run USING COVERING INDEX run_by_end (updated_at>? AND updated_at<?)") {
			return
		}
	}
	t.Errorf("no statement counts by the index alone: %v", plans)
}

// Check reads the file once: an event that a run lists is looked up by its name, and not among all of its workflow, for which
// Check of 500,000 runs had not ended after ten minutes.
func TestCheckFindsEventsByName(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	plans, err := db.CheckPlans(t.Context())
	must(t, err)
	for text, plan := range plans {
		for line := range strings.Lines(plan) {
			if strings.HasPrefix(line, "SEARCH e USING INDEX sqlite_autoindex_event_1 ") && !strings.Contains(line, "message_id=?") {
				t.Errorf("%s\nlooks at events so: %s", text, line)
			}
		}
	}
}
