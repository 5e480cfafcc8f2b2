//go:build unix

package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
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
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != exitNotFound {
		t.Errorf("drain of nobody: %v, want exit code %d", err, exitNotFound)
	}
}
