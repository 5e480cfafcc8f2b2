package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// beside measures runs of 64 workflows on SQLite and then on Postgres, in one
// report. The server is the caller's, with the durability that it has.
func beside(ctx context.Context, url string, quick bool, out io.Writer) error {
	runs := 20_000
	if quick {
		runs = 512
	}
	dir, err := os.MkdirTemp(".", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	syncs, err := floor(filepath.Join(dir, "floor"), 2*time.Second)
	if err != nil {
		return err
	}
	for _, at := range []string{"", url} {
		b, err := openBenchOn(ctx, at, filepath.Join(dir, "w"), 64)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, map[bool]string{true: "SQLite:", false: "Postgres:"}[at == ""])
		before, err := readWAL(ctx, at)
		if err == nil {
			err = b.consume(ctx, runs, syncs, out)
		}
		if err != nil {
			return err
		}
		after, err := readWAL(ctx, at)
		if err != nil {
			return err
		}
		if at != "" {
			n := float64(b.seeded * len(b.workflows))
			fmt.Fprintf(out, "  per run: %.0f bytes of WAL, %.2f transactions, %.2f fsyncs; publishing the events is in it\n\n",
				float64(after.bytes-before.bytes)/n, float64(after.transactions-before.transactions)/n, float64(after.syncs-before.syncs)/n)
		}
		if err := b.close(); err != nil {
			return err
		}
	}
	return nil
}

// wal is what a server has written.
type wal struct{ bytes, syncs, transactions int64 }

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
	err = conn.QueryRow(ctx, `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, wal_sync,
			(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) FROM pg_stat_wal`).
		Scan(&w.bytes, &w.syncs, &w.transactions)
	return w, err
}
