package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// The table of calls, written a second time.
const law = `
                   producer  prepare  mutate  next  job, outside an item  job, in an item
list tool          yes       yes      -       -     yes                   yes
get tool           yes       yes      yes     -     yes                   yes
mutate tool        -         -        yes     -     -                     yes
peek, getByIds     -         yes      -       -     -                     -
publish            yes       -        -       yes   -                     -
registerInput, kv  yes       -        -       -     -                     -
withItem           -         -        -       -     yes                   -
`

func TestCalls(t *testing.T) {
	var got strings.Builder
	w := tabwriter.NewWriter(&got, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for _, p := range policy.Places() {
		fmt.Fprintf(w, "\t%s", p)
	}
	fmt.Fprintln(w)
	for _, c := range policy.Calls() {
		fmt.Fprint(w, c)
		for _, p := range policy.Places() {
			word := "-"
			if policy.Allowed(p, c) {
				word = "yes"
			}
			fmt.Fprintf(w, "\t%s", word)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	if got.String() != law {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), law)
	}
}

func TestForbiddenCallSaysWhatIsAllowed(t *testing.T) {
	f := policy.Check(policy.InNext, policy.CallMutate, "crm.create")
	if f == nil || f.Class != keep.ClassLogic {
		t.Fatalf("Check(next, mutate) = %v, want a logic failure", f)
	}
	const want = "ctx.crm.create (mutate tool) is not allowed in next; allowed there: publish"
	if f.Message != want {
		t.Errorf("message %q, want %q", f.Message, want)
	}
	if f := policy.Check(policy.InMutate, policy.CallGet, "crm.get"); f != nil {
		t.Errorf("Check(mutate, get) = %v, want nil", f)
	}
}

func TestDelay(t *testing.T) {
	b := policy.Backoff{First: 10 * time.Second, Max: 10 * time.Minute, Attempts: 5}
	for _, tt := range []struct {
		done   int
		floor  time.Duration
		jitter float64
		want   time.Duration
	}{
		{0, 0, 0, 10 * time.Second},
		{1, 0, 0, 20 * time.Second},
		{5, 0, 0, 320 * time.Second},
		{6, 0, 0, 10 * time.Minute},
		{100, 0, 0, 10 * time.Minute},
		{0, time.Minute, 0, time.Minute},
		{0, 0, 0.5, 9 * time.Second},
	} {
		if got := b.Delay(tt.done, tt.floor, tt.jitter); got != tt.want {
			t.Errorf("Delay(%d, %s, %g) = %s, want %s", tt.done, tt.floor, tt.jitter, got, tt.want)
		}
	}
	if b.Exhausted(4) || !b.Exhausted(5) {
		t.Error("Spent: want five repeats")
	}
}

func TestClamp(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	w := policy.Default().Wake
	for _, tt := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{now.Add(-time.Hour), now.Add(30 * time.Second)},
		{now.Add(time.Hour), now.Add(time.Hour)},
		{now.Add(1000 * time.Hour), now.Add(24 * time.Hour)},
	} {
		if got := w.Clamp(tt.in, now); !got.Equal(tt.want) {
			t.Errorf("Clamp(%s) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := policy.Default().Validate(); err != nil {
		t.Errorf("the default policy is not valid: %v", err)
	}
	for name, broken := range map[string]func(*policy.Policy){
		"policy.retry":            func(p *policy.Policy) { p.Retry.First = 0 },
		"policy.reconcile":        func(p *policy.Policy) { p.Reconcile.Attempts = 0 },
		"policy.wake":             func(p *policy.Policy) { p.Wake.Max = 0 },
		"policy.default_interval": func(p *policy.Policy) { p.DefaultInterval = -1 },
		"policy.on_item_blocked":  func(p *policy.Policy) { p.OnItemBlocked = "maybe" },
	} {
		p := policy.Default()
		broken(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("Validate = %v, want an error about %s", err, name)
		}
	}
}

func TestBalance(t *testing.T) {
	lease := policy.Default().Lease
	tests := []struct {
		name        string
		p           keep.LeaseStatus
		s           policy.Standing
		claim, give int
	}{
		{"alone it takes everything", keep.LeaseStatus{Free: 7, Total: 7, Hosts: 1}, policy.Standing{Polls: 1}, 7, 0},
		{"it takes its share", keep.LeaseStatus{Free: 7, Total: 7, Hosts: 2}, policy.Standing{Polls: 1}, 4, 0},
		{"with its share it takes nothing", keep.LeaseStatus{Held: 4, Free: 3, Total: 7, Hosts: 2}, policy.Standing{Polls: 9, Waiting: 3}, 0, 0},
		{"it takes what others leave to lie", keep.LeaseStatus{Held: 4, Free: 3, Total: 7, Hosts: 2}, policy.Standing{Polls: 9, Waiting: 4}, 3, 0},
		{"what is free is not given back for", keep.LeaseStatus{Held: 7, Free: 3, Total: 10, Hosts: 2}, policy.Standing{Polls: 9, Waiting: 1}, 0, 0},
		{"it gives back what is beyond its share", keep.LeaseStatus{Held: 7, Total: 7, Hosts: 2}, policy.Standing{Polls: 9}, 0, 3},
		{"a share is rounded up, so nothing goes to and fro", keep.LeaseStatus{Held: 4, Total: 7, Hosts: 2}, policy.Standing{Polls: 9}, 0, 0},
		{"a newcomer lets those come back that are gone", keep.LeaseStatus{Free: 7, Gone: 7, Total: 7, Hosts: 1}, policy.Standing{Polls: 3}, 0, 0},
		{"not for long", keep.LeaseStatus{Free: 7, Gone: 7, Total: 7, Hosts: 1}, policy.Standing{Polls: 4, Waiting: 4}, 7, 0},
		{"one that is there takes over at once", keep.LeaseStatus{Held: 4, Free: 3, Gone: 3, Total: 7, Hosts: 1}, policy.Standing{Polls: 9, Waiting: 1}, 3, 0},
		{"one that drains gives everything back", keep.LeaseStatus{Held: 4, Free: 3, Total: 7, Hosts: 1, Draining: true}, policy.Standing{Polls: 9}, 0, 4},
		{"a partial one takes what it can get", keep.LeaseStatus{Held: 1, Free: 3, Total: 7, Hosts: 3}, policy.Standing{Partial: true, Polls: 9}, 3, 0},
		{"and has no share to keep to", keep.LeaseStatus{Held: 5, Total: 7, Hosts: 3}, policy.Standing{Partial: true, Polls: 9}, 0, 0},
		{"one that the store does not count does nothing", keep.LeaseStatus{}, policy.Standing{}, 0, 0},
	}
	for _, tt := range tests {
		if claim, give := lease.Balance(tt.p, tt.s); claim != tt.claim || give != tt.give {
			t.Errorf("%s: Balance(%+v, %+v) = %d, %d, want %d, %d", tt.name, tt.p, tt.s, claim, give, tt.claim, tt.give)
		}
	}
}
