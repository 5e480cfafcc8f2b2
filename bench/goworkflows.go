package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	gopostgres "github.com/cschleiden/go-workflows/backend/postgres"
	gosqlite "github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// act is an activity: a step.
func act(_ context.Context, in string) (string, error) { return in, nil }

// sequence is a workflow of three activities.
func sequence(ctx workflow.Context, in string) (string, error) {
	for range steps {
		out, err := workflow.ExecuteActivity[string](ctx, workflow.DefaultActivityOptions, act, in).Get(ctx)
		if err != nil {
			return "", err
		}
		in = out
	}
	return in, nil
}

// startGoWorkflows runs a worker, and workflows one after another for each client.
func startGoWorkflows(ctx context.Context, s spec, m *meter) (stop func() error, err error) {
	quiet := backend.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4})))
	var b backend.Backend
	if s.URL != "" {
		db, err := sql.Open("pgx", s.URL)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(max(8, min(s.Clients, 32)))
		db.SetMaxIdleConns(max(8, min(s.Clients, 32)))
		b = gopostgres.NewPostgresBackendWithDB(db, gopostgres.WithApplyMigrations(true), gopostgres.WithBackendOptions(quiet))
	} else {
		b = gosqlite.NewSqliteBackend(s.File, gosqlite.WithBackendOptions(quiet))
	}
	o := worker.DefaultOptions
	o.SingleWorkerMode = true
	o.WorkflowPollers, o.ActivityPollers = 4, 4
	o.WorkflowPollingInterval, o.ActivityPollingInterval = 2*time.Millisecond, 2*time.Millisecond
	w := worker.New(b, &o)
	if err := errors.Join(w.RegisterWorkflow(sequence), w.RegisterActivity(act)); err != nil {
		return nil, err
	}
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	if err := w.Start(working); err != nil {
		stopWorking()
		return nil, err
	}
	c := client.New(b)
	var wg sync.WaitGroup
	errs := make([]error, s.Clients)
	for i := range s.Clients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && errs[i] == nil; n++ {
				errs[i] = oneOfGoWorkflows(working, c, fmt.Sprintf("c%d-%d", i, n))
				if errs[i] == nil {
					m.done(i)
				}
			}
		})
	}
	return func() error {
		wg.Wait()
		stopWorking()
		return errors.Join(errors.Join(errs...), w.WaitForCompletion(), b.Close())
	}, nil
}

func oneOfGoWorkflows(ctx context.Context, c *client.Client, id string) error {
	i, err := c.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, sequence, text)
	if err != nil {
		return err
	}
	_, err = client.GetWorkflowResult[string](ctx, c, i, time.Minute)
	return err
}
