//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// leaseOfTakeOver is the ttl of the hosts of takeOver.
const leaseOfTakeOver = 5 * time.Second

// takeOver kills one of two hosts that have so many workflows each, publishes an event
// in all of them, and measures when the other one has them, and when all events are
// consumed.
func takeOver(ctx context.Context, server *pgtest.Server, dir string, workflows int, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	f, err := newFleet(ctx, server, dir, "takeover", 2*workflows)
	if err != nil {
		return err
	}
	defer f.close()
	c, err := startCrew(ctx, 2, memberSpec{URL: f.url, Dir: f.dir, TTL: leaseOfTakeOver})
	if err != nil {
		return err
	}
	if err := f.settled(ctx, c); err != nil {
		return errors.Join(err, c.stop())
	}
	killed := time.Now()
	c[0].kill()
	c = c[1:]
	held, worked, err := f.recovered(ctx)
	if err != nil {
		return errors.Join(err, c.stop())
	}
	fmt.Fprintf(out, "take-over: of %d workflows one host had %d and was killed; the other had them after %s, and all events of them done after %s, with a ttl of %s (load %.1f)\n",
		2*workflows, workflows, held.Sub(killed).Round(time.Millisecond), worked.Sub(killed).Round(time.Millisecond), leaseOfTakeOver, load())
	return c.stop()
}

// recovered publishes an event in every workflow, and waits until hosts that are
// alive have all of them, and until all events are consumed.
func (f *fleet) recovered(ctx context.Context) (held, worked time.Time, err error) {
	done := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		done <- f.each(func(w keep.WorkflowName) error {
			return f.db.Commit(ctx, seedCommit(w, "in", json.RawMessage(`{"text":"x"}`), 0, 1))
		})
	})
	var n int
	err = until(ctx, "take-over", func() (bool, error) {
		err := f.conn.QueryRow(ctx, `SELECT coalesce(max(held), 0) FROM host`).Scan(&n)
		return n == len(f.names), err
	})
	held = time.Now()
	if err = errors.Join(err, <-done); err != nil {
		return held, worked, err
	}
	err = until(ctx, "events", func() (bool, error) {
		err := f.conn.QueryRow(ctx, `SELECT coalesce(sum(consumed), 0) FROM topic WHERE name = 'in'`).Scan(&n)
		return n == len(f.names), err
	})
	return held, time.Now(), err
}

// A fleet is a database of workflows that share one script.
type fleet struct {
	url, dir string
	db       *postgres.DB // beside the hosts
	conn     *pgx.Conn
	names    []keep.WorkflowName
}

// newFleet makes a database and deploys that many workflows.
func newFleet(ctx context.Context, server *pgtest.Server, dir, name string, workflows int) (*fleet, error) {
	if err := server.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	f := &fleet{url: server.URL(name), dir: filepath.Join(dir, name)}
	b, err := openBenchOn(ctx, f.url, f.dir, 1)
	if err != nil {
		return nil, err
	}
	if err := b.close(); err != nil {
		return nil, err
	}
	f.db = postgres.New(f.url, postgres.Config{})
	if err := f.db.Open(ctx); err != nil {
		return nil, err
	}
	if f.conn, err = pgx.Connect(ctx, f.url); err != nil {
		return nil, errors.Join(err, f.db.Close())
	}
	if err := f.multiply(ctx, b.workflows[0], workflows); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) close() {
	_ = f.conn.Close(context.Background()) // the report is done
	_ = f.db.Close()
}

// multiply deploys a workflow under more names, until there are n.
func (f *fleet) multiply(ctx context.Context, first keep.WorkflowName, n int) error {
	w, err := f.db.Workflow(ctx, first)
	if err != nil {
		return err
	}
	d, err := f.db.Deployment(ctx, first, w.Version)
	if err != nil {
		return err
	}
	states, err := f.db.Handlers(ctx, first)
	if err != nil {
		return err
	}
	for i := range n - 1 {
		f.names = append(f.names, keep.WorkflowName(fmt.Sprintf("x%06d", i)))
	}
	err = f.each(func(name keep.WorkflowName) error {
		d := d
		d.Workflow, d.Definition.Name = name, name
		changes := []keep.Change{keep.Deploy{Deployment: d}}
		for _, s := range states {
			s.Workflow = name
			changes = append(changes, keep.PutHandler{State: s})
		}
		return f.db.Commit(ctx, keep.Commit{Workflow: name, At: d.CreatedAt, Changes: changes})
	})
	f.names = append(f.names, first)
	return err
}

// each does something for every workflow, many at a time.
func (f *fleet) each(do func(keep.WorkflowName) error) error {
	next := make(chan keep.WorkflowName)
	errs := make([]error, 128)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for w := range next {
				errs[i] = errors.Join(errs[i], do(w))
			}
		})
	}
	for _, w := range f.names {
		next <- w
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// settled waits until the hosts have their shares and rest.
func (f *fleet) settled(ctx context.Context, c crew) error {
	if err := shared(ctx, f.url, len(c), len(f.names)); err != nil {
		return err
	}
	_, err := c.ask("ready")
	return err
}

// idleHosts measures what two hosts ask of the server while nothing happens.
func idleHosts(ctx context.Context, server *pgtest.Server, dir string, workflows int, d time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	name := fmt.Sprint("idle_", workflows)
	f, err := newFleet(ctx, server, dir, name, workflows)
	if err != nil {
		return err
	}
	defer f.close()
	for _, sql := range []string{`CREATE EXTENSION pg_stat_statements`, `ALTER DATABASE ` + name + ` SET pg_stat_statements.track = 'all'`} {
		if _, err := f.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	c, err := startCrew(ctx, 2, memberSpec{URL: f.url, Dir: f.dir})
	if err != nil {
		return err
	}
	err = f.settled(ctx, c)
	if err == nil {
		err = f.measureIdle(ctx, c, d, out)
	}
	return errors.Join(err, c.stop())
}

// measureIdle counts the statements of a while by what they are for.
func (f *fleet) measureIdle(ctx context.Context, c crew, d time.Duration, out io.Writer) error {
	if _, err := f.conn.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return err
	}
	if _, err := c.ask("begin"); err != nil {
		return err
	}
	start := time.Now()
	if err := pause.For(ctx, d); err != nil {
		return err
	}
	s, err := c.ask("report")
	if err != nil {
		return err
	}
	rows, err := f.conn.Query(ctx, `SELECT query, calls FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`)
	if err != nil {
		return err
	}
	took := time.Since(start)
	var polls, heartbeats, other int64
	var query string
	var calls int64
	var others []string
	_, err = pgx.ForEachRow(rows, []any{&query, &calls}, func() error {
		switch {
		case strings.Contains(query, "WITH told AS"): // a poll, and the last statement of a heartbeat
			polls += calls
		case strings.HasPrefix(query, "INSERT INTO host"):
			heartbeats += calls
		case strings.HasPrefix(query, "DELETE FROM host"):
		default:
			other += calls
			others = append(others, query)
		}
		return nil
	})
	if err != nil {
		return err
	}
	per := func(n int64) float64 { return float64(n) / took.Seconds() / float64(len(c)) }
	fmt.Fprintf(out, "idle: %6d workflows, %d hosts: %.2f looks, %.2f heartbeats and %.2f other statements per host and second; %.2f %% of one core for each host, RSS %d MiB (load %.1f)\n",
		len(f.names), len(c), per(polls-heartbeats), per(heartbeats), per(other), 100*s.CPU.Seconds()/took.Seconds()/float64(len(c)), s.RSS>>20/int64(len(c)), load())
	for _, q := range others {
		fmt.Fprintf(out, "  other: %s\n", strings.Join(strings.Fields(q), " "))
	}
	return nil
}
