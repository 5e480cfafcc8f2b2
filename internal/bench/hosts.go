//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
)

// hosts measures two hosts on a Postgres of this report's own beside one host on a
// file of SQLite, in turns: what a run costs. Then it measures a take-over, and
// what hosts cost that have nothing to do. Every host is a process.
func hosts(ctx context.Context, dir string, s size, profile string, out io.Writer) error {
	server, err := pgtest.Start("", append(pgtest.Durable(), "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=none")...)
	if errors.Is(err, pgtest.ErrMissing) {
		return fmt.Errorf("%w: %w", errNoPostgres, err)
	}
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.CreateDatabase(ctx, "runs"); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	places := []*site{
		{name: "Postgres", members: 2, server: server, url: server.URL("runs"), dir: filepath.Join(dir, "postgres")},
		{name: "SQLite", members: 1, dir: filepath.Join(dir, "sqlite")},
	}
	settings, err := describe(ctx, places[0].url)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "two hosts on Postgres beside one on SQLite, %d workflows, consumer runs, 1 KB payload, instant tool\n%s; SQLite synchronous=FULL\n", hostWorkflows, settings)
	fmt.Fprintf(out, "  %-10s %7s %7s | %9s %9s %9s | %8s %7s %7s %7s %8s | %8s %8s %8s\n", "", "runs", "runs/s",
		"CPU/run", "of hosts", "of server", "commits", "tx", "fsyncs", "images", "log/run", "p50", "p99", "load")
	sums := make([]measure, len(places))
	for range s.turns {
		for i, p := range places {
			m, err := p.turn(ctx, s.turn, profile)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			m.print(out, p.name)
			sums[i].add(m)
		}
	}
	for i, p := range places {
		sums[i].print(out, p.name+", all")
	}
	pg, lite := sums[0], sums[1]
	fmt.Fprintf(out, "  Postgres / SQLite: %.2fx runs/s, %.2fx CPU/run, %.2fx log/run\n",
		pg.rate()/lite.rate(), float64(pg.perRun(pg.hosts+pg.server))/float64(lite.perRun(lite.hosts)), pg.log/float64(pg.runs)/(lite.log/float64(lite.runs)))
	most := func(m measure) float64 {
		return float64(runtime.NumCPU()) * float64(time.Second) / float64(max(1, m.perRun(m.hosts+m.server)))
	}
	fmt.Fprintf(out, "  %d processors that do nothing else would do at most %.0f runs/s on Postgres, %.0f on SQLite\n\n", runtime.NumCPU(), most(pg), most(lite))
	if profile != "" {
		return nil
	}
	if err := takeOver(ctx, server, dir, s.takeOver, out); err != nil {
		return fmt.Errorf("take-over: %w", err)
	}
	for _, workflows := range s.idlers {
		if err := idleHosts(ctx, server, dir, workflows, s.idle/2, out); err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	return nil
}

// hostWorkflows is how many workflows the hosts share.
const hostWorkflows = 64

// describe says which server this is, and how durable.
func describe(ctx context.Context, url string) (text string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT 'Postgres ' || current_setting('server_version') || ' ' || string_agg(name || '=' || setting, ' ' ORDER BY name)
		FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method')`).Scan(&text)
	return text, err
}

// A site is a database and the hosts that work on it.
type site struct {
	name    string
	members int
	server  *pgtest.Server // nil: SQLite
	url     string         // of Postgres
	dir     string
	bench   *bench // made by the first turn; closed between
}

// A measure is what one turn, or several, cost.
type measure struct {
	runs          int
	wall          time.Duration
	hosts, server time.Duration // processor time
	commits       int64
	log           float64 // bytes
	wal           wal     // of Postgres
	took          []time.Duration
	load          float64 // of the machine, at the end; the most of several
}

func (m measure) rate() float64 { return float64(m.runs) / m.wall.Seconds() }

func (m measure) perRun(d time.Duration) time.Duration {
	return (d / time.Duration(m.runs)).Round(time.Microsecond)
}

// add adds another turn.
func (m *measure) add(o measure) {
	m.runs, m.wall = m.runs+o.runs, m.wall+o.wall
	m.hosts, m.server, m.commits, m.log = m.hosts+o.hosts, m.server+o.server, m.commits+o.commits, m.log+o.log
	m.wal.transactions, m.wal.syncs, m.wal.images = m.wal.transactions+o.wal.transactions, m.wal.syncs+o.wal.syncs, m.wal.images+o.wal.images
	m.took, m.load = append(m.took, o.took...), max(m.load, o.load)
}

func (m measure) print(out io.Writer, name string) {
	n := float64(m.runs)
	p50, p99 := percentiles(m.took)
	of := func(v int64) string {
		if m.server == 0 {
			return ""
		}
		return fmt.Sprintf("%.3f", float64(v)/n)
	}
	fmt.Fprintf(out, "  %-13s %6d %7.0f | %9s %9s %9s | %8.3f %7s %7s %7s %7.0fB | %8s %8s %8.1f\n", name, m.runs, m.rate(),
		m.perRun(m.hosts+m.server), m.perRun(m.hosts), m.perRun(m.server), float64(m.commits)/n,
		of(m.wal.transactions), of(m.wal.syncs), of(m.wal.images), m.log/n, p50, p99, m.load)
}

// turn seeds runs while no host is there, starts the hosts, lets them work, and
// stops them. Reading the workflows at the start is not in what it measures, but
// for the transactions, which Postgres counts late.
func (p *site) turn(ctx context.Context, runs int, profile string) (m measure, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	per := max(1, runs/hostWorkflows)
	m.runs = per * hostWorkflows
	if err := p.seed(ctx, per); err != nil {
		return m, err
	}
	if profile != "" {
		profile += "." + p.name
	}
	c, err := startCrew(ctx, p.members, memberSpec{URL: p.url, Dir: p.dir, Profile: profile})
	if err != nil {
		return m, err
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = c.stop() // err says what went wrong
		}
	}()
	if err := p.ready(ctx, c, hostWorkflows); err != nil {
		return m, err
	}
	before, err := readWAL(ctx, p.url)
	if err != nil {
		return m, err
	}
	if _, err := c.ask("begin"); err != nil {
		return m, err
	}
	cpu, start := p.cpu(), time.Now()
	if _, err := c[0].ask("go"); err != nil {
		return m, err
	}
	err = until(ctx, "runs", func() (bool, error) {
		s, err := c.ask("count")
		return s.Runs >= int64(m.runs), err
	})
	if err != nil {
		return m, err
	}
	sum, err := c.ask("report")
	if err != nil {
		return m, err
	}
	m.server = p.cpu() - cpu
	m.wall, m.hosts, m.commits, m.took, m.load = sum.Last.Sub(start), sum.CPU, sum.Commits, sum.Took, load()
	m.log = float64(sum.Log)
	mid, err := readWAL(ctx, p.url)
	if err != nil {
		return m, err
	}
	stopped = true
	if err := c.stop(); err != nil { // their connections end, and are counted
		return m, err
	}
	after, err := readWAL(ctx, p.url)
	m.wal = wal{bytes: mid.bytes - before.bytes, syncs: after.syncs - before.syncs, transactions: after.transactions - before.transactions, images: after.images - before.images}
	if p.server != nil {
		m.log = float64(m.wal.bytes)
	}
	return m, err
}

// cpu returns the processor time of the server.
func (p *site) cpu() time.Duration {
	if p.server == nil {
		return 0
	}
	return p.server.CPU()
}

// seed pauses all workflows, which it makes the first time, and publishes events.
func (p *site) seed(ctx context.Context, per int) (err error) {
	if p.bench == nil {
		p.bench, err = openBenchOn(ctx, p.url, p.dir, hostWorkflows)
	} else {
		err = p.bench.open(ctx)
	}
	if err != nil {
		return err
	}
	for _, w := range p.bench.workflows {
		if err := p.bench.host.Pause(ctx, w, keep.Decision{By: "bench"}); err != nil {
			return err
		}
	}
	if err := p.bench.seed(ctx, "in", per); err != nil {
		return err
	}
	return p.bench.close()
}

// ready waits until the hosts have shared the workflows out and loaded them.
func (p *site) ready(ctx context.Context, c crew, workflows int) error {
	if p.server != nil {
		if err := shared(ctx, p.url, len(c), workflows); err != nil {
			return err
		}
	}
	_, err := c.ask("ready")
	return err
}

// shared waits until each of some hosts has its share of the workflows.
func shared(ctx context.Context, url string, members, workflows int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return until(ctx, "shares", func() (bool, error) {
		var hosts, least, most int
		err := conn.QueryRow(ctx, `SELECT count(*), coalesce(min(held), 0), coalesce(max(held), 0) FROM host`).Scan(&hosts, &least, &most)
		return hosts == members && least == workflows/members && most == (workflows+members-1)/members, err
	})
}

// load returns the machine's load average of the last minute; 0 where it is not
// known.
func load() (l float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		fmt.Sscan(string(text), &l)
	}
	return l
}

// wal is what a server has written.
type wal struct {
	bytes, syncs, transactions int64
	images                     int64 // of whole pages, after a checkpoint
}

// readWAL asks the server at a URL; for an empty one there is nothing.
func readWAL(ctx context.Context, url string) (w wal, err error) {
	if url == "" {
		return w, nil
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return w, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, wal_sync, wal_fpi,
			(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) FROM pg_stat_wal`).
		Scan(&w.bytes, &w.syncs, &w.images, &w.transactions)
	return w, err
}
