//go:build unix

package main

import (
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

var (
	budgetKills     = flag.Int("budget-kills", 2, "how often TestBudgetOverKills kills a host")
	budgetWorkflows = flag.Int("budget-workflows", 64, "how many workflows spend one budget in TestBudgetOverKills")
)

// budgetLimit is less than half of what the workflows want to spend.
func budgetLimit() int { return *budgetWorkflows * 150 / 64 }

// budgetConfig has one budget for all of them. The window is longer than the test.
const budgetConfig = failoverConfig + `
[budgets.all]
tools = ["crm.*"]
sum   = "params.amount"
limit = %d
per   = "24h"
`

// TestBudgetOverKills has workflows on two real hosts, on one Postgres, spend one budget,
// while the hosts are killed at random. What the service did never passes the limit, and in the end
// is what the ledger says. Laws: within-budget, once.
func TestBudgetOverKills(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.hosts = f.hosts[:2]
	f.crm.fill(2)
	f.workflows = *budgetWorkflows
	f.write("keep.toml", strings.Replace(budgetConfig, "%d", strconv.Itoa(budgetLimit()), 1))
	script := strings.NewReplacer(`interval: "1s"`, `interval: "1h"`, `name: "x" }`, `name: "x", amount: 1 + AMOUNT }`).Replace(failoverScript)
	for i := range *budgetWorkflows {
		name := fmt.Sprint("w", i)
		f.write(name+".js", strings.NewReplacer("NAME", name, "AMOUNT", strconv.Itoa(i%5)).Replace(script))
	}
	if out, err := f.hosts[0].command("deploy", ".").CombinedOutput(); err != nil {
		t.Fatalf("deploy: %v\n%s", err, out)
	}
	limitHeld := func(next http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			if sum := f.effectsSum(); sum > budgetLimit() {
				t.Errorf("the service did %d, the limit is %d (law: within-budget)", sum, budgetLimit())
			}
		}
	}
	f.between(limitHeld)
	for _, h := range f.hosts {
		h.start()
	}
	for n := range *budgetKills {
		before := f.effectsSum()
		f.until("work to disturb", time.Minute, func() string {
			if f.effectsSum() > before+f.rng.IntN(budgetLimit()/3) || f.budgetIsAtRest() == "" {
				return ""
			}
			return "nothing was done"
		})
		h := f.hosts[n%2]
		h.signal(syscall.SIGKILL)
		h.wait()
		h.start()
	}
	f.until("all of it waits for the budget", 2*time.Minute, f.budgetIsAtRest)
	for _, h := range f.hosts {
		h.signal(syscall.SIGTERM)
		h.wait()
	}
	for err := range f.db.Check(t.Context()) {
		t.Errorf("Check: %v", err)
	}
	spent := f.ledgerSum()
	if did := f.effectsSum(); did != spent || did > budgetLimit() || did < budgetLimit()-4 {
		t.Errorf("the service did %d, the ledger says %d of %d (law: within-budget)", did, spent, budgetLimit())
	}
	f.crm.mu.Lock()
	defer f.crm.mu.Unlock()
	for id, n := range f.crm.created {
		if n != 1 {
			t.Errorf("%s was made %d times (law: once)", id, n)
		}
	}
	qs, _, err := f.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{Limit: 100})
	if err != nil || len(qs) != 1 || qs[0].Kind != keep.AskBudget {
		t.Errorf("%d questions are open (%v), want one about the budget: %+v", len(qs), err, qs)
	}
}

// effectsSum returns what the service did, by its own log: each workflow pays an amount of its own.
func (f *failover) effectsSum() (sum int) {
	f.crm.mu.Lock()
	defer f.crm.mu.Unlock()
	for id, n := range f.crm.created {
		w, _ := strconv.Atoi(strings.TrimPrefix(strings.SplitN(id, "-", 2)[0], "w"))
		sum += n * (1 + w%5)
	}
	return sum
}

// ledgerSum returns what the ledger says was spent.
func (f *failover) ledgerSum() int {
	records, err := f.db.Spending(f.Context(), time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	var sum keep.Amount
	for _, m := range records {
		sum += m.Counts([]string{"all"}, time.Time{})
	}
	return int(sum / keep.AmountUnit)
}

// budgetIsAtRest says what is still to be done before every workflow waits for the budget.
func (f *failover) budgetIsAtRest() string {
	waiting := 0
	runs, _, err := f.db.Runs(f.Context(), keep.RunFilter{Open: true}, keep.Page{Limit: 500, Bare: true})
	if err != nil {
		return err.Error()
	}
	for _, r := range runs {
		if !lifecycle.OverBudget(r) || !r.RetryAt.IsZero() && time.Until(r.RetryAt) < time.Minute {
			return fmt.Sprintf("run %s of %s is %s", r.ID, r.Workflow, r.Status)
		}
		waiting++
	}
	if waiting < *budgetWorkflows/3 {
		return fmt.Sprintf("%d runs wait", waiting)
	}
	for _, state := range []keep.MutationState{keep.InFlight, keep.NeedsReconcile, keep.Indeterminate} {
		list, _, err := f.db.Mutations(f.Context(), keep.MutationFilter{State: state}, keep.Page{Limit: 1})
		if err != nil || len(list) > 0 {
			return fmt.Sprintf("%d records %s, %v", len(list), state, err)
		}
	}
	return f.unpublished()
}

// unpublished says which workflow has not read its contacts yet.
func (f *failover) unpublished() string {
	for i := range *budgetWorkflows {
		counts, err := f.db.TopicCounts(f.Context(), keep.WorkflowName(fmt.Sprint("w", i)))
		if err != nil {
			return err.Error()
		}
		for _, c := range counts {
			if c.Topic == "found" && c.Pending+c.Reserved+c.Consumed == 0 {
				return fmt.Sprintf("w%d has read nothing", i)
			}
		}
	}
	return ""
}
