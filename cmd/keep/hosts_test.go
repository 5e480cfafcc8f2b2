//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// Keep hosts shows who has what; a drained host gives it to the other one.
func TestHosts(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	a, b := f.hosts[0], f.hosts[1]
	a.start()
	b.start()
	list := func() (hosts []api.Host) {
		t.Helper()
		out, err := a.command("hosts", "--json").Output()
		if err == nil {
			err = json.Unmarshal(out, &hosts)
		}
		if err != nil {
			t.Fatalf("keep hosts --json: %v\n%s", err, out)
		}
		return hosts
	}
	f.until("both have workflows", failoverPatience, func() string {
		if hosts := list(); len(hosts) != 2 || len(hosts[0].Workflows) != 3 || len(hosts[1].Workflows) != 3 {
			return "they have not"
		}
		return ""
	})
	for _, h := range list() {
		if !h.Alive || h.Draining || h.Workflows[0].Epoch < 1 {
			t.Errorf("host %+v", h)
		}
	}
	of := list()[0]
	if out, err := a.command("hosts", "drain", of.Name).CombinedOutput(); err != nil {
		t.Fatalf("drain: %v\n%s", err, out)
	}
	f.until("the drained one has none", failoverPatience, func() string {
		hosts := list()
		if len(hosts) != 2 || len(hosts[0].Workflows) != 0 || len(hosts[1].Workflows) != failoverWorkflows {
			return "it has"
		}
		return ""
	})
	out, err := a.command("hosts").Output()
	if err != nil || !strings.Contains(string(out), "draining") {
		t.Errorf("keep hosts: %v\n%s", err, out)
	}
	if out, err := a.command("hosts", "show", of.Name).Output(); err != nil || !strings.Contains(string(out), "draining") {
		t.Errorf("keep hosts show: %v\n%s", err, out)
	}
	err = a.command("hosts", "drain", "nobody").Run()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != exit.NotFound {
		t.Errorf("drain of nobody: %v, want exit code %d", err, exit.NotFound)
	}
}

// Keep run says who has the workflow that it waits for, and gets it when that host
// is drained, as it says.
func TestRun_says_who_has_a_workflow(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	a, b := f.hosts[0], f.hosts[1]
	a.start()
	f.until("it has all workflows", failoverPatience, func() string {
		if n := a.holds(); n != failoverWorkflows {
			return fmt.Sprintf("it has %d", n)
		}
		return ""
	})

	// It is stopped when it has said so, and the JSON says it, too.
	cmd := b.command("run", "w0.js", "--json", "--stop-on-eof")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.until("it says who has the workflow", failoverPatience, func() string {
		if text := stderr.String(); !strings.Contains(text, "keep hosts drain") {
			return "it says: " + text
		}
		return ""
	})
	input.Close()
	err = cmd.Wait()
	var sum runSummary
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != exit.Failed || json.Unmarshal([]byte(stdout.String()), &sum) != nil {
		t.Fatalf("keep run: %v, want exit code %d and JSON\n%s\n%s", err, exit.Failed, &stdout, &stderr)
	}
	if len(sum.Elsewhere) != 1 || sum.Elsewhere[0].Workflow != "w0" || sum.Elsewhere[0].Since == (api.Time{}) {
		t.Fatalf("elsewhere is %+v, want w0 alone", sum.Elsewhere)
	}
	holder := string(sum.Elsewhere[0].Host)
	for _, want := range []string{"workflow w0 is on host", holder, "since", "keep hosts drain " + holder, "interrupted before everything was done"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("keep run did not say %q:\n%s", want, &stderr)
		}
	}

	cmd = b.command("run", "w0.js")
	var said lockedBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.until("it says so again", failoverPatience, func() string {
		if text := said.String(); !strings.Contains(text, holder) {
			return "it says: " + text
		}
		return ""
	})
	if out, err := a.command("hosts", "drain", holder).CombinedOutput(); err != nil {
		t.Errorf("drain: %v\n%s", err, out)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("keep run after the drain: %v\n%s", err, &said)
	}
}
