package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/store/postgres"
)

// A planner collects how Postgres executes every statement that tests made a
// database use. At a million rows a scan or a sort would show in the time; it
// shows in the plan at any size, since plans do not depend on it: see
// sessionSettings.
type planner struct {
	mu    sync.Mutex
	plans map[string]string // by statement
}

// watch adds the statements of db when the test ends.
func (p *planner) watch(tb testing.TB, db *postgres.DB) {
	tb.Cleanup(func() {
		used, err := db.Plans(context.Background())
		if err != nil {
			tb.Errorf("Plans: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.Copy(p.plans, used)
	})
}

// judge fails the test for every statement whose cost grows with a table.
func (p *planner) judge(t *testing.T) {
	if len(p.plans) < 60 {
		t.Errorf("%d statements, the whole suite uses more", len(p.plans))
	}
	for _, text := range slices.Sorted(maps.Keys(p.plans)) {
		var plans []struct{ Plan node }
		if err := json.Unmarshal([]byte(p.plans[text]), &plans); err != nil {
			t.Fatalf("%v: %s", err, p.plans[text])
		}
		if strings.Contains(text, "@@") {
			continue // a search finds its rows by an index of words, and sorts them
		}
		if strings.HasPrefix(text, "-- by a part of an id") {
			continue // a person who typed a few characters may wait
		}
		for _, why := range plans[0].Plan.slow(false) {
			t.Errorf("%s\n%s", why, text)
		}
		if testing.Verbose() {
			t.Logf("%s\n%s", strings.TrimSpace(text), strings.Join(plans[0].Plan.lines(""), "\n"))
		}
	}
}

// A node is a step of a plan.
type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Cond     string `json:"Index Cond"`
	Filter   string
	Plans    []node
}

// small are the tables that have as many rows as there are workflows, topics,
// handlers, hosts, hooks, accounts, gates or versions.
var small = []string{"workflow", "topic", "handler", "deployment", "lease", "host", "hook", "account", "gate", "repair", "granted", "proposal", "meta"}

// few are indexes that have few rows: one of each workflow by law, as many as stop
// something, or those that are not in the usual state and are counted.
var few = []string{"run_open", "escalation_open", "lease_touched", "idempotency_key_open", "run_by_status", "mutation_by_state"}

// slow says which steps cost more with more rows. Under a limit, an index may be
// read from its end without a condition.
func (n node) slow(limited bool) (why []string) {
	limited = limited || n.Type == "Limit"
	switch {
	case n.Relation == "" || slices.Contains(small, n.Relation) || slices.Contains(few, n.Index):
	case n.Type == "Seq Scan":
		why = append(why, "it reads the whole table "+n.Relation)
	case strings.HasPrefix(n.Type, "Bitmap"):
		why = append(why, "it sorts what it finds in "+cmpOr(n.Index, n.Relation))
	case strings.HasSuffix(n.Type, "Scan") && n.Cond == "" && !limited:
		why = append(why, fmt.Sprintf("it reads the whole index %s (%s)", n.Index, n.Type))
	}
	// What has to be sorted is all there is, limit or not.
	below := limited && n.Type != "Sort" && n.Type != "Incremental Sort"
	for _, child := range n.Plans {
		why = append(why, child.slow(below)...)
	}
	return why
}

func (n node) lines(indent string) []string {
	out := []string{strings.TrimRight(fmt.Sprintf("%s%s %s %s %s", indent, n.Type, cmpOr(n.Index, n.Relation), n.Cond, filter(n.Filter)), " ")}
	for _, child := range n.Plans {
		out = append(out, child.lines(indent+"  ")...)
	}
	return out
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func filter(f string) string {
	if f == "" {
		return ""
	}
	return "filter " + f
}
