package operator_test

import (
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// What a workflow is for is kept with each version: as it was said with it, or else as it was
// said with the proposal of the same script, or with the version before.
func TestIntentIsKept(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	deploy := func(hash, intent string, c operator.Consent) operator.Deployed {
		t.Helper()
		d := script(hash)
		d.Definition.Intent = intent
		out, err := o.DeployGranted(ctx, d, nil, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	is := func(v keep.Version, want string) {
		t.Helper()
		d, err := s.Deployment(ctx, "w", v)
		if err != nil || d.Definition.Intent != want {
			t.Errorf("version %s is for %q, %v; want %q", v, d.Definition.Intent, err, want)
		}
	}
	ask := calls(false, "a.x")
	ask.Ask = true
	waits := deploy("1", "file invoices", ask).Waiting
	if waits == nil || waits.Definition.Intent != "file invoices" {
		t.Fatalf("the proposal is %+v", waits)
	}
	if err := o.Decide(ctx, waits.Question, keep.Decision{Action: keep.Approve, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	is(waits.Version, "file invoices")
	is(deploy("2", "", calls(true, "a.x")).Version, "file invoices")
	is(deploy("3", "file bills", calls(true, "a.x")).Version, "file bills")
	waits = deploy("4", "pay bills", ask).Waiting
	is(deploy("5", "", calls(true, "a.x")).Version, "file bills") // the other script was never agreed to
	waits = deploy("6", "pay bills", ask).Waiting
	is(deploy("6", "", calls(true, "a.x")).Version, "pay bills") // by hand, in the place of an answer
	if waits == nil {
		t.Error("nothing waits")
	}
}

// A script that waits for a person's answer is not deployed by a host that finds its file.
func TestAwaited(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	ask := calls(false, "a.x")
	ask.Ask = true
	if _, err := o.DeployGranted(ctx, script("1"), nil, ask); err != nil {
		t.Fatal(err)
	}
	found := calls(true, "a.x")
	found.Await = true
	for range 2 {
		out, err := o.DeployGranted(ctx, script("1"), nil, found)
		if err != nil || out.Waiting == nil || !out.Version.IsZero() || granted(t, s) != nil {
			t.Errorf("a file that waits: %+v, %v, granted %v", out, err, granted(t, s))
		}
	}
	if out, err := o.DeployGranted(ctx, script("2"), nil, found); err != nil || out.Waiting != nil || out.Version.IsZero() {
		t.Errorf("another script: %+v, %v", out, err)
	}
	if _, err := o.DeployGranted(ctx, script("3"), nil, ask); err != nil {
		t.Fatal(err)
	}
	if out, err := o.DeployGranted(ctx, script("3"), nil, calls(true, "a.x")); err != nil || out.Waiting != nil {
		t.Errorf("a person who deploys it: %+v, %v", out, err)
	}
	for err := range s.Check(ctx) {
		t.Error(err)
	}
}
