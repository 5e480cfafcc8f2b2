package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/internal/pgtest"
)

// A site is a directory, and a Postgres that this report starts in it.
type site struct {
	dir    string
	server *pgtest.Server
	turns  int
	each   time.Duration
}

func open(ctx context.Context, o options) (*site, error) {
	dir, err := os.MkdirTemp(o.dir, "keep-bench")
	if err != nil {
		return nil, err
	}
	server, err := pgtest.Start(o.dir, pgtest.Durable()...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &site{dir: dir, server: server, each: o.each}, nil
}

func (s *site) close() {
	s.server.Stop()
	os.RemoveAll(s.dir)
}

// turn measures a system on a database of its own.
func (s *site) turn(ctx context.Context, sys system, clients int) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.each+3*time.Minute)
	defer cancel()
	s.turns++
	name := fmt.Sprint("turn", s.turns)
	one := spec{System: sys.name, Clients: clients, Each: s.each}
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	one.File = file(dir)
	if sys.postgres {
		if err := s.server.CreateDatabase(ctx, name); err != nil {
			return r, err
		}
		one.URL = s.server.URL(name)
	}
	text, err := json.Marshal(one)
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, "-as", string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	r, err = s.ask(ctx, one.URL, in, bufio.NewReader(out))
	in.Close()
	return r, errors.Join(err, cmd.Wait())
}

// ask lets a process measure, and adds what the server did meanwhile.
func (s *site) ask(ctx context.Context, url string, in io.Writer, out *bufio.Reader) (r result, err error) {
	if _, err := out.ReadString('\n'); err != nil {
		return r, fmt.Errorf("the process does not begin: %w", err)
	}
	var before, after wal
	if url != "" {
		if before, err = readWAL(ctx, url); err != nil {
			return r, err
		}
	}
	cpu := s.server.CPU()
	if _, err := io.WriteString(in, "go\n"); err != nil {
		return r, err
	}
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		return r, fmt.Errorf("the process does not answer: %w", err)
	}
	if url == "" {
		return r, nil
	}
	r.CPU += s.server.CPU() - cpu
	after, err = readWAL(ctx, url)
	r.Syncs, r.Log = after.syncs-before.syncs, after.bytes-before.bytes
	return r, err
}

// wal is what a server has written.
type wal struct{ bytes, syncs int64 }

func readWAL(ctx context.Context, url string) (w wal, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return w, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, wal_sync FROM pg_stat_wal`).Scan(&w.bytes, &w.syncs)
	return w, err
}
