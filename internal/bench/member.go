package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/wallog"
	"github.com/keep-run/keep/law/policy"
)

// A memberSpec says which host a process of -hosts is.
type memberSpec struct {
	URL     string        // of Postgres; empty: the file keep.db in Dir
	Dir     string        // an absolute path
	TTL     time.Duration // of its leases; zero: the default
	Profile string        // file for a CPU profile; empty: none
}

// A standing is what a member has done since it was last told to begin, or what a turn of a side cost.
type standing struct {
	Runs    int64           // events that its runs consumed
	Commits int64           // calls of the store's Commit
	Last    time.Time       // when the last of them returned
	Took    []time.Duration // from one run of a workflow to the next
	CPU     time.Duration   // of its process
	Wall    time.Duration   // of a turn of a side
	Log     int64           // bytes that were added to SQLite's log
	RSS     int64           // bytes
	Error   string          // what went wrong; empty: nothing
}

// member is a host of -hosts: a process that takes commands on in, one word on a
// line, and answers each with a standing on out. It ends with in.
//
//	ready  answers when it has loaded all that it holds, and rests
//	begin  begins to count
//	go     resumes every workflow
//	count  answers without Took and RSS
//	report answers
func member(ctx context.Context, as string, in io.Reader, out io.Writer) error {
	var spec memberSpec
	if err := json.Unmarshal([]byte(as), &spec); err != nil {
		return fmt.Errorf("-member: %w", err)
	}
	stopProfile, err := startProfile(spec.Profile)
	if err != nil {
		return err
	}
	defer stopProfile()
	b := &bench{dir: spec.Dir, url: spec.URL, last: make(map[keep.WorkflowName]time.Time)}
	if spec.TTL > 0 {
		p := policy.Default()
		p.Lease.TTL = spec.TTL
		b.policy = &p
	}
	if err := b.open(ctx); err != nil {
		return err
	}
	index := filepath.Join(spec.Dir, "keep.db-shm")
	if spec.URL != "" {
		index = ""
	}
	log := wallog.Watch(index)
	defer log.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { err = b.host.Run(ctx) })
	answer := json.NewEncoder(out)
	startCPU, startLog := cputime.Used(), log.Bytes()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var fault error
		switch lines.Text() {
		case "ready":
			fault = b.host.WaitIdle(ctx)
		case "begin":
			b.restart()
			startCPU, startLog = cputime.Used(), log.Bytes()
		case "go":
			fault = b.resume(ctx)
		}
		s := standing{Runs: b.counted.consumed.Load(), Commits: b.counted.commits.Load(), Last: time.Unix(0, b.counted.last.Load()),
			CPU: cputime.Used() - startCPU, Log: log.Bytes() - startLog}
		if lines.Text() == "report" {
			b.mu.Lock()
			s.Took, s.RSS = b.took, rssBytes()
			b.mu.Unlock()
		}
		if fault != nil {
			s.Error = fault.Error()
		}
		if err := answer.Encode(s); err != nil {
			break
		}
	}
	cancel()
	wg.Wait()
	return errors.Join(err, b.close())
}

// restart forgets what was counted.
func (b *bench) restart() {
	b.mu.Lock()
	b.took, b.last = nil, make(map[keep.WorkflowName]time.Time)
	b.mu.Unlock()
	b.counted.commits.Store(0)
	b.counted.consumed.Store(0)
}

// resume resumes every workflow of the database that is paused, also those of
// other hosts.
func (b *bench) resume(ctx context.Context) error {
	ws, err := b.db.Workflows(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(ws))
	var wg sync.WaitGroup
	for i, w := range ws {
		if w.Paused {
			wg.Go(func() { errs[i] = b.host.Resume(ctx, w.Name, keep.Decision{By: "bench"}) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return nil
}
