package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A stepJob is one step of a work of a client.
type stepJob struct {
	Client int    `json:"client"`
	Step   int    `json:"step"`
	Text   string `json:"text"`
}

// Kind implements river.JobArgs.
func (stepJob) Kind() string { return "step" }

// A stepper works on jobs: it completes one and inserts the next one in one transaction.
type stepper struct {
	river.WorkerDefaults[stepJob]
	pool *pgxpool.Pool
	m    *meter
}

// Work implements river.Worker.
func (w *stepper) Work(ctx context.Context, job *river.Job[stepJob]) error {
	next := job.Args
	next.Step = (next.Step + 1) % steps
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := river.ClientFromContext[pgx.Tx](ctx).InsertTx(ctx, tx, next, nil); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil && next.Step == 0 {
		w.m.done(job.Args.Client)
	}
	return err
}

// startRiver runs a client of River with a chain of jobs for each client of the bench.
func startRiver(ctx context.Context, s spec, m *meter) (stop func() error, err error) {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(max(8, min(s.Clients, 32)))
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &stepper{pool: pool, m: m})
	var client *river.Client[pgx.Tx]
	if err == nil {
		client, err = river.NewClient(driver, &river.Config{
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 64}},
			Workers:           workers,
			FetchCooldown:     2 * time.Millisecond,
			FetchPollInterval: 2 * time.Millisecond,
			Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4})),
		})
	}
	if err == nil {
		err = client.Start(context.WithoutCancel(ctx))
	}
	for i := range s.Clients {
		if err == nil {
			_, err = client.Insert(ctx, stepJob{Client: i, Text: text}, nil)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err := client.StopAndCancel(last)
		pool.Close()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	}, nil
}
