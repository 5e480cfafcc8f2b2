package operator_test

import (
	"errors"
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

// What somebody sends is recorded as it was sent: another intent or another comment is another version, waiting or not.
// What a host finds in a file has no say in that, nor has a repair.
func TestTextIsKept(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	send := func(text, intent string, over *keep.Version, c operator.Consent) (operator.Deployed, error) {
		d := script("1")
		d.Definition.Intent = intent
		d.Map = []byte(`{"sources":["w.js"],"sourcesContent":["` + text + `"]}`)
		return o.DeployGranted(ctx, d, over, c)
	}
	is := func(v keep.Version, text, intent string) {
		t.Helper()
		d, err := s.Deployment(ctx, "w", v)
		if err != nil || d.Definition.Intent != intent || d.Sources()["w.js"] != text {
			t.Errorf("version %s is %v for %q, %v; want %q for %q", v, d.Sources(), d.Definition.Intent, err, text, intent)
		}
	}
	give, ask := calls(true, "a.x"), calls(true, "a.x")
	ask.Ask = true
	found, repair := give, give
	found.Await, repair.Repair = true, true
	for _, step := range []struct {
		text, intent string
		c            operator.Consent
		want         string
		is           [2]string
	}{
		{"x", "a", give, "1.0", [2]string{"x", "a"}},
		{"x", "a", give, "1.0", [2]string{"x", "a"}},
		{"x", "", give, "1.0", [2]string{"x", "a"}},
		{"x", "b", give, "2.0", [2]string{"x", "b"}},
		{"x // y", "", give, "3.0", [2]string{"x // y", "b"}},
		{"x", "", found, "3.0", [2]string{"x // y", "b"}},
		{"x", "", repair, "3.0", [2]string{"x // y", "b"}},
	} {
		out, err := send(step.text, step.intent, nil, step.c)
		if err != nil || out.Version.String() != step.want || out.Waiting != nil {
			t.Fatalf("%q for %q: %+v, %v; want %s", step.text, step.intent, out, err, step.want)
		}
		is(out.Version, step.is[0], step.is[1])
	}
	var stale *keep.VersionError
	if _, err := send("x", "", &keep.Version{Major: 1}, give); !errors.As(err, &stale) {
		t.Errorf("another comment over another version: %v", err)
	}
	if out, err := send("x // y", "b", &keep.Version{Major: 1}, give); err != nil || out.Version.String() != "3.0" {
		t.Errorf("the same again, as after a lost answer: %+v, %v", out, err)
	}

	questions := map[keep.EscalationID]bool{}
	for i, step := range [][2]string{{"x", "c"}, {"x", "c"}, {"x", ""}, {"x", "d"}, {"x // z", "d"}} {
		out, err := send(step[0], step[1], nil, ask)
		if err != nil || out.Waiting == nil {
			t.Fatalf("%v: %+v, %v", step, out, err)
		}
		questions[out.Waiting.Question] = true
		if want := max(1, i-1); len(questions) != want {
			t.Errorf("%v: %d questions, want %d", step, len(questions), want)
		}
		if i < 4 {
			continue
		}
		if err := o.Decide(ctx, out.Waiting.Question, keep.Decision{Action: keep.Approve, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		is(out.Waiting.Version, "x // z", "d")
	}
}
