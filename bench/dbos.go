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

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
	"github.com/jackc/pgx/v5/pgxpool"
)

// three is a workflow of three steps.
func three(ctx dbos.Context, in string) (string, error) {
	for range steps {
		out, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { return in, nil })
		if err != nil {
			return "", err
		}
		in = out
	}
	return in, nil
}

// startDBOS runs workflows one after another for each client.
func startDBOS(ctx context.Context, s spec, m *meter) (stop func() error, err error) {
	cfg := dbos.Config{AppName: "bench", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4}))}
	closeDB := func() error { return nil }
	if s.URL != "" {
		pool, err := pgxpool.ParseConfig(s.URL)
		if err != nil {
			return nil, err
		}
		pool.MaxConns = int32(max(4, min(s.Clients, 32)))
		opened, err := pgxpool.NewWithConfig(ctx, pool)
		if err != nil {
			return nil, err
		}
		cfg.SystemDBPool, closeDB = opened, func() error { opened.Close(); return nil }
	} else {
		db, err := sql.Open("sqlite", "file:"+s.File+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
		if err != nil {
			return nil, err
		}
		cfg.SQLiteSystemDB, closeDB = db, db.Close
	}
	c, err := dbos.NewContext(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, errors.Join(err, closeDB())
	}
	dbos.RegisterWorkflow(c, three)
	if err := dbos.Launch(c); err != nil {
		return nil, errors.Join(err, closeDB())
	}
	var wg sync.WaitGroup
	errs := make([]error, s.Clients)
	for i := range s.Clients {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = oneOfDBOS(c, m, i)
			}
			if errs[i] != nil {
				fmt.Fprintln(os.Stderr, "dbos:", errs[i])
			}
		})
	}
	return func() error {
		wg.Wait()
		return errors.Join(errors.Join(errs...), dbos.Shutdown(c, time.Minute), closeDB())
	}, nil
}

func oneOfDBOS(c dbos.Context, m *meter, client int) error {
	h, err := dbos.RunWorkflow(c, three, text)
	if err != nil {
		return err
	}
	if _, err := h.GetResult(); err != nil {
		return err
	}
	m.done(client)
	return nil
}
