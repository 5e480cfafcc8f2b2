package operator_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

var ann = operator.Giver{By: "ann", From: "cli"}

// script returns a version of workflow w.
func script(hash string) keep.Deployment {
	return keep.Deployment{Workflow: "w", Hash: hash, Entry: "w.js", Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{}}}
}

// calls returns a consent of ann for a script that calls these tools.
func calls(give bool, tools ...keep.ToolName) operator.Consent {
	return operator.Consent{Giver: ann, Calls: tools, Give: give}
}

// granted returns the names that the grant of w has; nil: it was never given one.
func granted(t *testing.T, s *memory.Store) []string {
	t.Helper()
	g, err := s.Grant(t.Context(), "w")
	if errors.Is(err, keep.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, tool := range g.Tools {
		names = append(names, tool.Tool)
	}
	return names
}

// lackOrGive returns what a deploy gave, nil if it waits.
func lackOrGive(d operator.Deployed) []keep.GrantedTool {
	if d.Waiting != nil {
		return nil
	}
	return append([]keep.GrantedTool{}, d.Given...)
}

// TestDeployOverAnotherVersion deploys over a version that was replaced: that is done if the script is current and
// nothing remains to be given, and refused otherwise.
func TestDeployOverAnotherVersion(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	first, second := keep.Version{}, keep.Version{Major: 1}
	repair := calls(true, "a.x")
	repair.Repair = true
	for _, step := range []struct {
		name, hash string
		over       keep.Version
		c          operator.Consent
		want       string // the current version; empty: another one is
	}{
		{"a new workflow", "1", first, calls(true, "a.x"), "1.0"},
		{"the same again", "1", first, calls(true, "a.x"), "1.0"},
		{"another script as new", "2", first, calls(true, "a.x"), ""},
		{"a second version", "2", second, calls(true, "a.x"), "2.0"},
		{"the second again", "2", second, calls(true, "a.x"), "2.0"},
		{"the second by who may not give", "2", second, calls(false, "a.x"), "2.0"},
		{"the first again", "1", first, calls(true, "a.x"), ""},
		{"the second, and more to give", "2", second, calls(true, "a.x", "a.y"), ""},
		{"the second, and more to agree to", "2", second, calls(false, "a.x", "a.y"), ""},
		{"a repair with the text of the second", "2", second, repair, ""},
	} {
		out, err := o.DeployGranted(ctx, script(step.hash), &step.over, step.c)
		stale, isStale := errors.AsType[*keep.VersionError](err)
		if step.want == "" {
			if !isStale || stale.Want != step.over {
				t.Errorf("%s: %+v, %v; want a VersionError", step.name, out, err)
			}
		} else if err != nil || out.Version.String() != step.want {
			t.Errorf("%s: %+v, %v; want %s", step.name, out, err, step.want)
		}
	}
	if diff := gocmp.Diff([]string{"a.x"}, granted(t, s)); diff != "" {
		t.Errorf("granted is other than before:\n%s", diff)
	}
	if all, err := s.Proposals(ctx, "w"); err != nil || len(all) > 0 {
		t.Errorf("proposals: %v, %v", all, err)
	}
}

// TestDeployGranted is who gives what, deploy by deploy.
func TestDeployGranted(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	for _, step := range []struct {
		name  string
		do    func() ([]keep.GrantedTool, error)
		given int // -1: what it calls waits for a person
		want  []string
	}{
		{"who may not give deploys nothing that is new and calls something",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("1"), nil, calls(false, "a.x"))
				return lackOrGive(out), err
			}, -1, nil},
		{"one's own script is given what it calls",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("1"), nil, calls(true, "a.x", "a.y"))
				return lackOrGive(out), err
			}, 2, []string{"a.x", "a.y"}},
		{"the same again gives nothing",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("1"), nil, calls(true, "a.x", "a.y"))
				return lackOrGive(out), err
			}, 0, []string{"a.x", "a.y"}},
		{"who may not give deploys what stays inside",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("2"), nil, calls(false, "a.y"))
				return lackOrGive(out), err
			}, 0, []string{"a.x", "a.y"}},
		{"what is taken",
			func() ([]keep.GrantedTool, error) {
				_, err := o.SetGrant(ctx, "w", []keep.GrantedTool{{Tool: "a.y"}}, ann, nil)
				return nil, err
			}, 0, []string{"a.y"}},
		{"is not given again by a deploy, and what is new is",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("3"), nil, calls(true, "a.x", "a.y", "a.z"))
				return lackOrGive(out), err
			}, 1, []string{"a.y", "a.z"}},
		{"all is taken",
			func() ([]keep.GrantedTool, error) { _, err := o.TakeGrant(ctx, "w", ann, nil); return nil, err }, 0, []string{}},
		{"and stays taken",
			func() ([]keep.GrantedTool, error) {
				out, err := o.DeployGranted(ctx, script("3"), nil, calls(true, "a.x", "a.y", "a.z"))
				return lackOrGive(out), err
			}, 0, []string{}},
		{"what keep.toml says is the whole, and comes back",
			func() ([]keep.GrantedTool, error) {
				c := calls(true, "a.x")
				c.Whole = []keep.GrantedTool{{Tool: "b.*"}}
				out, err := o.DeployGranted(ctx, script("3"), nil, c)
				return lackOrGive(out), err
			}, 1, []string{"b.*"}},
	} {
		given, err := step.do()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if waits := given == nil && step.given < 0; !waits && len(given) != step.given {
			t.Errorf("%s: gave %v", step.name, given)
		}
		if diff := gocmp.Diff(step.want, granted(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	for err := range s.Check(ctx) {
		t.Error(err)
	}
}

// A new workflow whose calls cannot be read is not unbounded if who deployed it may give
// nothing.
func TestUnreadCallsAreNotGranted(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	if _, err := o.DeployGranted(t.Context(), script("1"), nil, calls(false)); err != nil {
		t.Fatal(err)
	}
	if got := granted(t, s); got == nil || len(got) != 0 {
		t.Errorf("it was granted %v, want a grant of nothing (law: permitted)", got)
	}
}

// Of two who change a grant that both saw, one is refused; a condition that cannot be used
// is not stored; a deploy without consent gives nothing.
func TestSetGrant(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx, first := t.Context(), 0
	if _, err := o.Deploy(ctx, script("1")); err != nil || granted(t, s) != nil {
		t.Fatal(err, granted(t, s))
	}
	if _, err := o.SetGrant(ctx, "w", []keep.GrantedTool{{Tool: "a.x"}}, ann, &first); err != nil {
		t.Fatal(err)
	}
	if _, err := o.SetGrant(ctx, "w", []keep.GrantedTool{{Tool: "a.y"}}, ann, &first); !errors.Is(err, keep.ErrStale) {
		t.Errorf("the second of two is not refused: %v", err)
	}
	var wrong *operator.GrantError
	if _, err := o.SetGrant(ctx, "w", []keep.GrantedTool{{Tool: "a.x", When: "params.x"}}, ann, nil); !errors.As(err, &wrong) {
		t.Errorf("a condition that is no yes or no: %v", err)
	}
	if _, err := o.SetGrant(ctx, "nobody", nil, ann, nil); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("a workflow that is not there: %v", err)
	}
	if diff := gocmp.Diff([]string{"a.x"}, granted(t, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// state returns which versions of w there are: the current one first, then what was
// proposed, newest first.
func state(t *testing.T, s *memory.Store) string {
	t.Helper()
	w, err := s.Workflow(t.Context(), "w")
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		t.Fatal(err)
	}
	text := w.Version.String()
	all, err := s.Proposals(t.Context(), "w")
	for _, p := range all {
		text += fmt.Sprintf(", %s %s", p.Version, p.State)
	}
	if err != nil {
		t.Fatal(err)
	}
	for err := range s.Check(t.Context()) {
		t.Error(err)
	}
	return text
}

// A version that calls more than is granted waits; the one before continues, and a person
// decides once.
func TestProposals(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	deploy := func(hash string, give bool, tools ...keep.ToolName) operator.Deployed {
		t.Helper()
		out, err := o.DeployGranted(ctx, script(hash), nil, calls(give, tools...))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	is := func(want string) {
		t.Helper()
		if got := state(t, s); got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
	}
	answer := func(d operator.Deployed, a keep.Action) error {
		return o.Decide(ctx, d.Waiting.Question, keep.Decision{Action: a, By: "bob", From: "cli"})
	}
	first := deploy("1", false, "a.x")
	is("0.0, 1.0 waiting")
	if err := answer(first, keep.Reject); err != nil {
		t.Fatal(err)
	}
	is("0.0, 1.0 rejected")
	if err := answer(first, keep.Approve); !errors.Is(err, keep.ErrDecided) {
		t.Errorf("the second answer: %v, want %v", err, keep.ErrDecided)
	}
	deploy("1", true, "a.x")
	is("2.0, 1.0 rejected")
	second := deploy("2", false, "a.x", "a.y")
	is("2.0, 3.0 waiting, 1.0 rejected")
	if again := deploy("2", false, "a.x", "a.y"); again.Waiting == nil || again.Waiting.Question != second.Waiting.Question {
		t.Errorf("the same script again: %+v", again)
	}
	third := deploy("3", false, "a.x", "a.z") // in its place
	is("2.0, 4.0 waiting, 3.0 replaced, 1.0 rejected")
	if err := answer(second, keep.Approve); !errors.Is(err, keep.ErrDecided) {
		t.Errorf("an answer about the one that was replaced: %v, want %v", err, keep.ErrDecided)
	}
	if diff := gocmp.Diff([]string{"a.x"}, granted(t, s)); diff != "" {
		t.Errorf("before a person agreed (-want +got):\n%s", diff)
	}
	if _, err := o.SetGrant(ctx, "w", []keep.GrantedTool{{Tool: "a.x", When: "params.n > 1"}}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if err := answer(third, keep.Approve); err != nil {
		t.Fatal(err)
	}
	is("4.0, 4.0 approved, 3.0 replaced, 1.0 rejected")
	g, err := s.Grant(ctx, "w")
	want := []keep.GrantedTool{{Tool: "a.x", When: "params.n > 1"}, {Tool: "a.z"}}
	if diff := gocmp.Diff(want, g.Tools); diff != "" || err != nil || g.GivenBy != "bob" || g.Version.Major != 4 {
		t.Errorf("the person gave %+v, %v (-want +got):\n%s", g, err, diff)
	}
	deploy("4", false, "a.y")
	deploy("5", false, "a.x") // stays inside: it is current at once, and ends the wait
	is("6.0, 5.0 replaced, 4.0 approved, 3.0 replaced, 1.0 rejected")
	if _, err := o.Deploy(ctx, script("6")); err != nil {
		t.Fatal(err)
	}
	is("7.0, 5.0 replaced, 4.0 approved, 3.0 replaced, 1.0 rejected")
}

// A repair mends the version that is current: its number is the next minor one of that, whatever else
// was proposed, and no number is given twice.
func TestRepairVersions(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	deploy := deployer(t, o)
	repair := func(hash string, ask bool) operator.Deployed {
		t.Helper()
		return deploy(hash, operator.Consent{Giver: operator.Giver{By: "rep_" + hash, From: string(keep.OriginRepair)}, Repair: true, Ask: ask})
	}
	reject := func(d operator.Deployed) {
		t.Helper()
		if err := o.Decide(t.Context(), d.Waiting.Question, keep.Decision{Action: keep.Reject, By: "bob", From: "cli"}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		if got := state(t, s); got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
	}
	deploy("1", calls(true, "a.x"))
	reject(deploy("2", calls(false, "a.x", "a.y")))
	is("1.0, 2.0 rejected")
	reject(repair("3", true))
	is("1.0, 2.0 rejected, 1.1 rejected")
	repair("4", false)
	is("1.2, 2.0 rejected, 1.2 approved, 1.1 rejected")
	repair("5", true)
	deploy("6", calls(true, "a.x")) // ends the wait of 1.3
	is("3.0, 2.0 rejected, 1.3 replaced, 1.2 approved, 1.1 rejected")
	repair("7", false)
	is("3.1, 3.1 approved, 2.0 rejected, 1.3 replaced, 1.2 approved, 1.1 rejected")
}

// TestRepairIsProposedOnce has two hosts land the same repair: one asks a person, and the other one, which read before that was
// committed, would not. The repair waits for the person, and the second host is told so.
func TestRepairIsProposedOnce(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := memory.New()
	tries := &triesUntil{Store: s, end: func() { cancel(errors.New("it tries the same again and again")) }}
	o, err := operator.New(tries, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	repair := operator.Consent{Giver: operator.Giver{By: "rep_1", From: string(keep.OriginRepair)}, Repair: true, Ask: true}
	if _, err := o.DeployGranted(ctx, script("1"), nil, calls(true, "a.x")); err != nil {
		t.Fatal(err)
	}
	first, err := o.DeployGranted(ctx, script("2"), nil, repair)
	if err != nil || first.Waiting == nil {
		t.Fatalf("the first host: %+v, %v", first, err)
	}
	repair.Ask = false
	second, err := o.DeployGranted(ctx, script("2"), nil, repair)
	if err != nil || second.Waiting == nil || second.Waiting.Question != first.Waiting.Question {
		t.Errorf("the second host: %+v, %v; want what waits", second, err)
	}
	if got := state(t, s); got != "1.0, 1.1 waiting" {
		t.Errorf("there is %s", got)
	}
}

// triesUntil is a store that calls end at the tenth commit.
type triesUntil struct {
	*memory.Store
	commits int
	end     func()
}

// Commit implements store.Committer.
func (s *triesUntil) Commit(ctx context.Context, c keep.Commit) error {
	if s.commits++; s.commits == 10 {
		s.end()
	}
	return s.Store.Commit(ctx, c)
}

// readingHandlers is a store in which something happens after the states of handlers are read for the first time.
type readingHandlers struct {
	*memory.Store
	after func()
}

func (s *readingHandlers) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	list, err := s.Store.Handlers(ctx, w)
	if after := s.after; after != nil {
		s.after = nil
		after()
	}
	return list, err
}

// A run that commits while a deploy is decided, as on another host, keeps what it asked for: its alarm and when it ran last are not
// those of before. Both look at all events again, and a new schedule counts.
func TestDeployKeepsWhatARunCommittedMeanwhile(t *testing.T) {
	for _, change := range []string{"", "*/5 * * * *"} {
		s := &readingHandlers{Store: memory.New()}
		o := newOperator(t, s)
		version := func(hash, cron string) keep.Deployment {
			d := script(hash)
			d.Definition.Handlers = []keep.Handler{{Name: "c", Kind: keep.Consumer}, {Name: "p", Kind: keep.Producer, Schedule: keep.Schedule{Cron: cmp.Or(cron, "0 3 * * *")}}}
			return d
		}
		if _, err := o.Deploy(t.Context(), version("1", "")); err != nil {
			t.Fatal(err)
		}
		wake := noon.Add(24 * time.Hour)
		c := keep.HandlerState{Workflow: "w", Handler: "c", Kind: keep.Consumer, IdleSeq: 7, WakeAt: wake, LastRun: "run_2", LastAt: noon}
		p := keep.HandlerState{Workflow: "w", Handler: "p", Kind: keep.Producer, NextAt: wake, LastRun: "run_3", LastAt: noon}
		commit(t, s, keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "c", Kind: keep.Consumer, IdleSeq: 5, LastRun: "run_1", LastAt: noon.Add(-time.Hour)}})
		s.after = func() { commit(t, s, keep.PutHandler{State: c}, keep.PutHandler{State: p}) }
		if _, err := o.Deploy(t.Context(), version("2", change)); err != nil || s.after != nil {
			t.Fatal(err)
		}
		list, err := s.Handlers(t.Context(), "w")
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		if c.IdleSeq = 0; change != "" {
			p.NextAt = list[1].NextAt
		}
		if diff := gocmp.Diff([]keep.HandlerState{c, p}, list); diff != "" {
			t.Errorf("with the schedule %q (-want +got):\n%s", change, diff)
		}
		if change != "" && !list[1].NextAt.Before(time.Now().Add(6*time.Minute)) {
			t.Errorf("the new schedule does not count: next at %s", list[1].NextAt)
		}
	}
}

// Whether the version or the grant is committed: never one without the other, and the
// question stays open.
func TestProposalIsOneCommit(t *testing.T) {
	s := memory.New()
	fails := &failing{Store: s}
	o, err := operator.New(fails, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := o.DeployGranted(t.Context(), script("1"), nil, calls(false, "a.x"))
	if err != nil || fails.commits != 1 {
		t.Fatalf("%d commits, %v; want one", fails.commits, err)
	}
	fails.now = true
	if err := o.Decide(t.Context(), d.Waiting.Question, keep.Decision{Action: keep.Approve, By: "bob"}); err == nil {
		t.Fatal("the disk is full, and nobody says so")
	}
	if got := state(t, s); got != "0.0, 1.0 waiting" || granted(t, s) != nil {
		t.Errorf("after a commit that failed there is %s, granted %v", got, granted(t, s))
	}
	fails.now = false
	if err := o.Decide(t.Context(), d.Waiting.Question, keep.Decision{Action: keep.Approve, By: "bob"}); err != nil || fails.commits != 2 {
		t.Fatalf("%d commits, %v; want one more", fails.commits, err)
	}
	if got := state(t, s); got != "1.0, 1.0 approved" {
		t.Errorf("there is %s", got)
	}
}

// failing is a store that commits, or fails to.
type failing struct {
	*memory.Store
	commits int
	now     bool
}

// Commit implements store.Committer.
func (f *failing) Commit(ctx context.Context, c keep.Commit) error {
	if f.now {
		return errors.New("disk full")
	}
	f.commits++
	return f.Store.Commit(ctx, c)
}

// deployer returns what deploys a script by its hash.
func deployer(t *testing.T, o *operator.Operator) func(hash string, c operator.Consent) operator.Deployed {
	return func(hash string, c operator.Consent) operator.Deployed {
		t.Helper()
		out, err := o.DeployGranted(t.Context(), script(hash), nil, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}
