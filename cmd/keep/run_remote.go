package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/terminal"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
)

// reportRemote says after a second, if there is something to wait for, who has the
// workflows that this command is to run, and again when somebody else has them. It
// ends when nobody has, or when the returned function is called.
func (a *app) reportRemote(ctx context.Context, s *daemon.Session) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(terminal.ProgressDelay)
		defer tick.Stop()
		var told []daemon.RemoteWorkflow
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// A host that is alive may keep its workflows for days; without a word this command would
			// seem to hang.
			list, err := s.Remote(ctx)
			if err != nil {
				continue // the host says what is wrong with the database
			}
			if !slices.EqualFunc(list, told, func(x, y daemon.RemoteWorkflow) bool { return x.Workflow == y.Workflow && x.Host == y.Host }) {
				a.printRemote(list)
			}
			if told = list; len(list) == 0 {
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// printRemote says who has what, and what to do about it: one message for each host, not for each
// workflow.
func (a *app) printRemote(list []daemon.RemoteWorkflow) {
	for len(list) > 0 {
		first := list[0]
		n := slices.IndexFunc(list, func(e daemon.RemoteWorkflow) bool { return e.Host != first.Host })
		if n < 0 {
			n = len(list)
		}
		what := fmt.Sprintf("workflow %s is", first.Workflow)
		if n > 1 {
			what = fmt.Sprintf("workflow %s and %s more are", first.Workflow, terminal.Number(n-1))
		}
		name := terminal.Clean(first.Name)
		fmt.Fprintf(a.Err, "%s %s on host %s (%s), since %s. This command waits for it.\n", a.Ink.Yellow("keep:"), what, name, first.Host, a.When(time.Time(first.Since)))
		fmt.Fprintf(a.Err, "  keep trigger %s HANDLER     asks that host for a run\n", first.Workflow)
		fmt.Fprintf(a.Err, "  keep hosts drain %s     makes it give its workflows to other hosts, such as this command\n", first.Host)
		list = list[n:]
	}
}
