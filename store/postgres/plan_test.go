package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
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
		if strings.HasPrefix(text, "-- of the open questions") {
			continue // costs as much as there are, or as many as are named
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
// handlers, tools, hosts, hooks, accounts, gates or versions.
var small = []string{"workflow", "topic", "handler", "deployment", "lease", "tally", "host", "hook", "account", "gate", "repair", "granted", "proposal", "meta"}

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

// passesOver says which steps go through the rows of all workflows, or of all names, for those
// of one.
func (n node) passesOver() (why []string) {
	named := regexp.MustCompile(`\b(workflow|handler|tool|topic|status|state|item|run) = `)
	if strings.HasSuffix(n.Index, "_by_n") && (named.MatchString(n.Cond) && !strings.Contains(n.Cond, "(n = ") || named.MatchString(n.Filter)) {
		why = append(why, fmt.Sprintf("it goes through %s for %s %s", n.Index, n.Cond, filter(n.Filter)))
	}
	for _, child := range n.Plans {
		why = append(why, child.passesOver()...)
	}
	return why
}

// A list of the rows of one workflow, one name or one state goes through those, and not through all by
// their numbers: Postgres would like that, since rows lie in the order of their numbers, and it does not
// know how rare each name is.
func TestPlansOfManyRows(t *testing.T) {
	t.Parallel()
	db := openDB(t, pgtest.SchemaURL(t), postgres.Config{Host: true, Conns: 4})
	exec(t, db.URL(), manyRows)
	for name, list := range listsOfFew(db) {
		for _, p := range []keep.Page{{}, {Limit: 1}} {
			next, err := list(t.Context(), p)
			if err == nil && next != "" {
				p.After = next
				_, err = list(t.Context(), p)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	plans, err := db.Plans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, text := range slices.Sorted(maps.Keys(plans)) {
		var list []struct{ Plan node }
		if err := json.Unmarshal([]byte(plans[text]), &list); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "LIMIT") {
			lists++
		}
		for _, why := range append(list[0].Plan.passesOver(), list[0].Plan.slow(false)...) {
			t.Errorf("%s\n%s\n%s", why, text, strings.Join(list[0].Plan.lines(""), "\n"))
		}
	}
	if lists < 30 {
		t.Errorf("%d lists were planned", lists)
	}
}

// listsOfFew are lists that a filter makes short, by their names.
func listsOfFew(db *postgres.DB) map[string]func(context.Context, keep.Page) (string, error) {
	lists := make(map[string]func(context.Context, keep.Page) (string, error))
	add(lists, "runs", db.Runs, keep.RunFilter{Workflow: "w1"}, keep.RunFilter{Handler: "seldom"}, keep.RunFilter{Workflow: "w1", Handler: "seldom"},
		keep.RunFilter{Status: keep.StatusLogic}, keep.RunFilter{Workflow: "w1", Status: keep.StatusLogic}, keep.RunFilter{Error: "logic"})
	add(lists, "mutations", db.Mutations, keep.MutationFilter{Workflow: "w1"}, keep.MutationFilter{Tool: "seldom"}, keep.MutationFilter{Workflow: "w1", Tool: "seldom"},
		keep.MutationFilter{State: keep.Failed}, keep.MutationFilter{Workflow: "w1", State: keep.Failed}, keep.MutationFilter{Workflow: "w1", Item: "i1"}, keep.MutationFilter{Error: "logic"})
	add(lists, "events", db.Events, keep.EventFilter{Workflow: "w1"}, keep.EventFilter{Topic: "seldom"}, keep.EventFilter{Workflow: "w1", Topic: "seldom"},
		keep.EventFilter{Status: keep.EventPending}, keep.EventFilter{Workflow: "w1", Status: keep.EventPending}, keep.EventFilter{Workflow: "w1", Status: keep.EventSkipped})
	add(lists, "inputs", db.Inputs, keep.InputFilter{Workflow: "w1"}, keep.InputFilter{Status: keep.InputPending}, keep.InputFilter{Workflow: "w1", Status: keep.InputPending})
	add(lists, "items", db.Items, keep.ItemFilter{Workflow: "w1"}, keep.ItemFilter{Status: keep.ItemFailed}, keep.ItemFilter{Workflow: "w1", Status: keep.ItemFailed})
	add(lists, "questions", db.Escalations, keep.EscalationFilter{Workflow: "w1"}, keep.EscalationFilter{Open: true})
	return lists
}

func add[T, F any](lists map[string]func(context.Context, keep.Page) (string, error), name string, read func(context.Context, F, keep.Page) ([]T, string, error), filters ...F) {
	for _, f := range filters {
		lists[fmt.Sprintf("%s %+v", name, f)] = func(ctx context.Context, p keep.Page) (string, error) {
			_, next, err := read(ctx, f, p)
			return next, err
		}
	}
}

// manyRows are 20,000 rows of each noun in 4 workflows, of which few have rare names and states.
const manyRows = `
	INSERT INTO lease (workflow, n) SELECT 'w' || i, 0 FROM generate_series(0, 3) i;
	INSERT INTO tally SELECT 'w' || i, noun, name, 10 FROM generate_series(0, 3) i, (VALUES ('run', 'often'), ('run', 'seldom'), ('mutation', 'often'), ('mutation', 'seldom'), ('input', ''), ('item', '')) v (noun, name);
	INSERT INTO topic (workflow, name) SELECT 'w' || i, t FROM generate_series(0, 3) i, unnest(ARRAY['often', 'seldom']) t;
	INSERT INTO input (workflow, source, type, external_id, id, n, title, status, unfinished, created_at)
		SELECT 'w' || (i % 4), 'mail', 'mail', i, 'in_' || i, i, 'title', CASE i % 4001 WHEN 0 THEN 'pending' ELSE 'done' END, CASE i % 4001 WHEN 0 THEN 1 ELSE 0 END, i FROM generate_series(1, 20000) i;
	INSERT INTO event (workflow, topic, n, message_id, status, reserved_by, created_by, created_at, updated_at, caused_by)
		SELECT 'w' || (i % 4), CASE i % 4001 WHEN 0 THEN 'seldom' ELSE 'often' END, i, 'm' || i, CASE i % 2003 WHEN 0 THEN 'pending' WHEN 1 THEN 'skipped' ELSE 'consumed' END,
		       CASE WHEN i % 2003 < 2 THEN '' ELSE 'run_' || i END, '', i, i, '[]' FROM generate_series(1, 20000) i;
	INSERT INTO run (n, id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev, trigger_topic, trigger_message,
			mutation, title, wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at)
		SELECT i, 'run_' || i, 'run_' || i, '', 'w' || (i % 4), 1, 0, CASE i % 4001 WHEN 0 THEN 'seldom' ELSE 'often' END, 'consumer', CASE i % 3001 WHEN 0 THEN 'prepared' ELSE 'committed' END,
		       CASE i % 3001 WHEN 0 THEN 'failed:logic' ELSE 'committed' END, true, 1, '', '', '', '', 0, 0, 0, 0, 0, i, i FROM generate_series(1, 20000) i;
	INSERT INTO mutation (workflow, tool, n, key, run, item, attempt, connector, level, target, subkey, payload_hash, token, title, state, warning, attempts, reconcile_attempts,
			next_reconcile_at, call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at)
		SELECT 'w' || (i % 4), CASE i % 4001 WHEN 0 THEN 'seldom' ELSE 'often' END, i, 'mut_' || i, 'run_' || i, CASE i % 2003 WHEN 0 THEN 'i' || i ELSE '' END, CASE i % 2003 WHEN 0 THEN 1 ELSE 0 END,
		       'c', 'A', '', '', '', 't', '', CASE i % 3001 WHEN 0 THEN 'failed' ELSE 'applied' END, '', 1, 0, 0, 1, 0, true, 'call', 1, i, i FROM generate_series(1, 20000) i;
	INSERT INTO item (workflow, id, n, title, status, attempt, rev, created_at, updated_at)
		SELECT 'w' || (i % 4), 'i' || i, i, '', CASE i % 3001 WHEN 0 THEN 'failed' ELSE 'done' END, 1, 1, i, i FROM generate_series(1, 20000) i;
	INSERT INTO escalation (workflow, id, n, kind, run, mutation, item, title, question, attempted, why, can_verify, verify_by_hand, payload_hash, created_at, closed_at)
		SELECT 'w' || (i % 4), 'esc_' || i, i, 'logic', 'run_' || i, '', '', '', '', '', '', false, '', '', i, CASE i % 3001 WHEN 0 THEN 0 ELSE i END FROM generate_series(1, 20000) i;
	ANALYZE input, event, run, mutation, item, escalation, topic, tally, lease`

// Check lists what runs reserved before it looks for the events, also while the server has counted no rows: it went through all
// events of a workflow for each run then.
func TestCheckListsRunsFirst(t *testing.T) {
	db := openDB(t, pgtest.URL(t), postgres.Config{})
	plans, err := db.CheckPlans(t.Context())
	if err != nil || len(plans) != 2 {
		t.Fatalf("%d statements, %v", len(plans), err)
	}
	for text, plan := range plans {
		if strings.Index(plan, " on json_array_elements_text m") > strings.Index(plan, " on event e") {
			t.Errorf("%s\nis executed so:\n%s", text, plan)
		}
	}
}
