package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/store"
)

// notPlanned says why a version that is written in Go is not planned, and what to do.
func notPlanned(ctx context.Context, s store.Workflows, w keep.WorkflowName, v keep.Version) (string, error) {
	d, err := s.Deployment(ctx, w, v) // with its code
	if err != nil {
		return "", err
	}
	program, err := d.Program()
	return fmt.Sprintf("workflow %s, version %s, is not planned: its handlers are Go functions of the program %s; there, plan.Make of package rehearsal/plan plans it (keep docs go)", w, v, program), err
}

// inGo returns what there is to say of the workflows of a database that are written in Go, by
// their names.
func inGo(ctx context.Context, cfg *config.Config) (list map[keep.WorkflowName]string, err error) {
	db, err := database.Open(ctx, cfg, database.ToRead)
	if errors.Is(err, keep.ErrNoDatabase) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	current, err := db.Current(ctx)
	list = make(map[keep.WorkflowName]string)
	for _, d := range current {
		if err == nil && d.Definition.Go {
			list[d.Workflow], err = notPlanned(ctx, db, d.Workflow, d.Version)
		}
	}
	return list, err
}

// tellOfGo says of the workflows that are written in Go that they are not in the plan of a whole
// project. The plan stands without that.
func (p *planner) tellOfGo(ctx context.Context, cfg *config.Config) {
	if info, err := os.Stat(p.path); err != nil || !info.IsDir() {
		return
	}
	list, err := inGo(ctx, cfg)
	if err != nil {
		p.log.WarnContext(ctx, "look for workflows that are written in Go", "err", err)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintln(p.Err, terminal.Clean(list[name]))
	}
}

// orGo says more of a path that could not be planned, if there is more to say: it is the name of a
// workflow that is written in Go, or all workflows of the project are.
func (p *planner) orGo(ctx context.Context, err error) error {
	cfg, _ := p.LoadConfig(".") // what is wrong with it is in err
	if cfg == nil {
		return err
	}
	if info, statErr := os.Stat(p.path); statErr == nil && info.IsDir() {
		p.tellOfGo(ctx, cfg)
		return err
	}
	if list, _ := inGo(ctx, cfg); list[keep.WorkflowName(p.path)] != "" {
		return exit.Misusef("%s", list[keep.WorkflowName(p.path)])
	}
	return err
}
