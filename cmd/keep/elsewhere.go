package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// An elsewhere is a workflow that a command is to run and another host has.
type elsewhere struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Host     keep.HostID       `json:"host"`
	Name     string            `json:"name"` // of the host
	Since    api.Time          `json:"since"`
}

// elsewhere returns those workflows of the session that another host has, which is
// alive, in the order of the session.
func (s *session) elsewhere(ctx context.Context) (list []elsewhere, err error) {
	l, ok := s.db.(api.Leases)
	if !ok {
		return nil, nil // a file has one host
	}
	hosts, err := api.ListHosts(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if h.ID == s.host.HostID() || !h.Alive {
			continue
		}
		for _, l := range h.Workflows {
			if slices.Contains(s.names(), l.Workflow) {
				list = append(list, elsewhere{l.Workflow, h.ID, h.Name, l.Since})
			}
		}
	}
	return list, nil
}

// tellElsewhere says after a second, if there is something to wait for, who has the
// workflows that this command is to run, and again when somebody else has them. It
// ends when nobody has, or when the returned function is called.
func (a *app) tellElsewhere(ctx context.Context, s *session) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(quiet)
		defer tick.Stop()
		var told []elsewhere
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			list, err := s.elsewhere(ctx)
			if err != nil {
				continue // the host says what is wrong with the database
			}
			if !slices.EqualFunc(list, told, func(x, y elsewhere) bool { return x.Workflow == y.Workflow && x.Host == y.Host }) {
				a.sayElsewhere(list)
			}
			if told = list; len(list) == 0 {
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// sayElsewhere says who has what, and what to do about it.
func (a *app) sayElsewhere(list []elsewhere) {
	for len(list) > 0 {
		first := list[0]
		n := slices.IndexFunc(list, func(e elsewhere) bool { return e.Host != first.Host })
		if n < 0 {
			n = len(list)
		}
		what := fmt.Sprintf("workflow %s is", first.Workflow)
		if n > 1 {
			what = fmt.Sprintf("workflow %s and %s more are", first.Workflow, number(n-1))
		}
		name := clean(first.Name)
		fmt.Fprintf(a.err, "%s %s on host %s (%s), since %s. This command waits for it.\n", a.ink.yellow("keep:"), what, name, first.Host, a.when(time.Time(first.Since)))
		fmt.Fprintf(a.err, "  keep trigger %s HANDLER     asks that host for a run\n", first.Workflow)
		fmt.Fprintf(a.err, "  keep hosts drain %s     lets it give its workflows to others, such as this command\n", first.Host)
		list = list[n:]
	}
}
