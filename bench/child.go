package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/wallog"
)

// A spec says what a process is that measures one system.
type spec struct {
	System  string
	URL     string // of Postgres; empty: SQLite
	File    string // of SQLite
	Clients int
	Each    time.Duration
}

// A result is what a turn had.
type result struct {
	Works    int
	Wall     time.Duration
	P50, P99 time.Duration
	CPU      time.Duration // of the process; with a server, of both
	Syncs    int64         // transactions of SQLite, each of which is synced; fsyncs of Postgres
	Log      int64         // bytes
	RSS      int64         // of the process, at the end
}

// serve is a process that measures one system. It says ready on out when works are under
// way, measures when something comes on in, and writes the result. It ends with in.
func serve(ctx context.Context, as string, in io.Reader, out io.Writer) error {
	var s spec
	if err := json.Unmarshal([]byte(as), &s); err != nil {
		return fmt.Errorf("-as: %w", err)
	}
	i := slices.IndexFunc(systems, func(x system) bool { return x.name == s.System })
	if i < 0 {
		return fmt.Errorf("-as: there is no system %q", s.System)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newMeter(s.Clients)
	stop, err := systems[i].start(ctx, s, m)
	if err != nil {
		return err
	}
	if err := m.underWay(ctx); err != nil {
		return errors.Join(err, stop())
	}
	index := ""
	if s.URL == "" {
		index = s.File + "-shm"
	}
	log := wallog.Watch(index)
	defer log.Close()
	lines := bufio.NewScanner(in)
	fmt.Fprintln(out, "ready")
	if lines.Scan() {
		r := measure(ctx, m, log, s.Each)
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return errors.Join(err, stop())
		}
	}
	for lines.Scan() {
	}
	cancel()
	return stop()
}

// underWay waits until each client has done two works.
func (m *meter) underWay(ctx context.Context) error {
	m.begin()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		m.mu.Lock()
		done := m.works >= 2*len(m.last)
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// measure measures for a time.
func measure(ctx context.Context, m *meter, log *wallog.Log, each time.Duration) (r result) {
	cpu, bytes, transactions := cputime.Used(), log.Bytes(), log.Transactions()
	m.begin()
	select {
	case <-ctx.Done():
	case <-time.After(each):
	}
	r.Works, r.Wall, r.P50, r.P99 = m.end()
	r.CPU, r.Log, r.Syncs = cputime.Used()-cpu, log.Bytes()-bytes, int64(log.Transactions()-transactions)
	r.RSS = resident()
	return r
}

// resident returns the resident memory of this process, as Linux reports it; 0 elsewhere.
func resident() (kb int64) {
	status, _ := os.ReadFile("/proc/self/status") // nothing where there is none
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(v, &kb)
		}
	}
	return kb << 10
}

// file returns where a system keeps its database of SQLite.
func file(dir string) string { return filepath.Join(dir, "bench.db") }
