//go:build unix

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/sqlite"
)

// A deployStep is something that a person does about versions, and how things stand then:
// the current version, what is granted, each proposal, and the open questions.
type deployStep struct {
	name string
	do   func(context.Context, *operator.Operator) error
	then string
}

// deploys deploys a script that calls tools, and gives them if give is set.
func deploys(hash string, give bool, tools ...keep.ToolName) func(context.Context, *operator.Operator) error {
	return func(ctx context.Context, o *operator.Operator) error {
		_, err := o.DeployGranted(ctx, script(hash), nil, calls(give, tools...))
		return err
	}
}

// decides answers the question about a version. That it was answered before is no error.
func decides(q keep.EscalationID, a keep.Action) func(context.Context, *operator.Operator) error {
	return func(ctx context.Context, o *operator.Operator) error {
		err := o.Decide(ctx, q, keep.Decision{Action: a, By: "ann"})
		if errors.Is(err, keep.ErrDecided) {
			return nil
		}
		return err
	}
}

var deploySteps = []deployStep{
	{"the first version, which gives", deploys("1", true, "a.x"), "1.0 [a.x]"},
	{"a version that calls more waits", deploys("2", false, "a.x", "a.y"), "1.0 [a.x], 2.0 waiting, asks esc_grant_w_2_0"},
	{"another one takes its place", deploys("3", false, "a.x", "a.z"), "1.0 [a.x], 2.0 replaced, 3.0 waiting, asks esc_grant_w_3_0"},
	{"it is approved", decides("esc_grant_w_3_0", keep.Approve), "3.0 [a.x a.z], 2.0 replaced, 3.0 approved"},
	{"another one waits", deploys("4", false, "a.b"), "3.0 [a.x a.z], 2.0 replaced, 3.0 approved, 4.0 waiting, asks esc_grant_w_4_0"},
	{"it is rejected", decides("esc_grant_w_4_0", keep.Reject), "3.0 [a.x a.z], 2.0 replaced, 3.0 approved, 4.0 rejected"},
	{"a version of one's own", deploys("5", true, "a.b"), "5.0 [a.x a.z a.b], 2.0 replaced, 3.0 approved, 4.0 rejected"},
}

// A mortal store kills its process at its first commit.
type mortal struct {
	*sqlite.DB
	after bool
}

// Commit implements store.Committer.
func (m mortal) Commit(ctx context.Context, c keep.Commit) error {
	if m.after {
		if err := m.DB.Commit(ctx, c); err != nil {
			return err
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {}
}

const deployVariable = "KEEP_TEST_DEPLOY" // PATH STEP AFTER

// TestDeployLife is one process of TestDeployKilled; it is no test by itself.
func TestDeployLife(t *testing.T) {
	words := strings.Fields(os.Getenv(deployVariable))
	if len(words) != 3 {
		t.Skip("a process of TestDeployKilled")
	}
	db := openFile(t, words[0])
	step, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	err = deploySteps[step].do(t.Context(), newOperator(t, mortal{db, words[2] == "true"}))
	t.Fatalf("it was not killed: %v", err)
}

// TestDeployKilled kills processes that deploy and decide about versions, by SIGKILL, before and
// after their commit: all of it holds, or nothing does, and the same again makes it whole, with
// one question.
func TestDeployKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	if err := openFile(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	before := "nothing"
	for i, step := range deploySteps {
		for _, after := range []bool{false, true} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeployLife$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %t", deployVariable, path, i, after))
			out, err := cmd.CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: %v\n%s", step.name, err, out)
			}
			db := openFile(t, path)
			for err := range db.Check(t.Context()) {
				t.Errorf("%s, after %t: %v", step.name, after, err)
			}
			want := map[bool]string{false: before, true: step.then}[after]
			if got := versionsOf(t, db); got != want {
				t.Fatalf("%s, after %t: %s\nwant %s", step.name, after, got, want)
			}
			if after { // a person who does not know does it again
				if err := step.do(t.Context(), newOperator(t, db)); err != nil {
					t.Errorf("%s again: %v", step.name, err)
				}
				if got := versionsOf(t, db); got != step.then {
					t.Errorf("%s again: %s\nwant %s", step.name, got, step.then)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		before = step.then
	}
}

// versionsOf says how the versions of w stand.
func versionsOf(t *testing.T, db *sqlite.DB) string {
	t.Helper()
	ctx := t.Context()
	w, err := db.Workflow(ctx, "w")
	if errors.Is(err, keep.ErrNotFound) {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	if d, err := db.Deployment(ctx, "w", w.Version); err != nil || d.Hash == "" {
		t.Errorf("the current version %s is not whole: %v", w.Version, err)
	}
	g, err := db.Grant(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	var tools []string
	for _, tool := range g.Tools {
		tools = append(tools, tool.Tool)
	}
	out := fmt.Sprintf("%s %v", w.Version, tools)
	list, err := db.Proposals(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Backward(list) { // they are newest first
		out += fmt.Sprintf(", %s %s", p.Version, p.State)
	}
	open, _, err := db.Escalations(ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range open {
		out += ", asks " + string(q.ID)
	}
	return out
}

func openFile(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db := sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}
