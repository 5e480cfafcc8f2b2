package main

import (
	"cmp"
	"context"
	"database/sql"
	endian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// pages says to which tables and indexes the pages belong that consumer runs of 64 workflows add to the log of SQLite.
func pages(ctx context.Context, dir string, s size, out io.Writer) (err error) {
	b, err := openBench(ctx, dir, 64)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	per := max(1, s.many/16/len(b.workflows))
	if err := b.seed(ctx, "in", per+8); err != nil { // the first runs load the scripts
		return err
	}
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	if err := b.seed(ctx, "in", per); err != nil {
		return err
	}
	path := filepath.Join(dir, "keep.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{`PRAGMA wal_checkpoint(TRUNCATE)`, `BEGIN`, `SELECT name FROM meta`} { // while it reads, the log does not begin again
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	logged, transactions, err := readLog(path + "-wal")
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `ROLLBACK`); err != nil {
		return err
	}
	owners, err := owners(ctx, db)
	if err != nil {
		return err
	}
	printPages(logged, owners, float64(per*len(b.workflows)), float64(transactions), out)
	return nil
}

// printPages prints how many pages of each owner were logged.
func printPages(logged []uint32, owners map[uint32]string, runs, transactions float64, out io.Writer) {
	counts := make(map[string]float64)
	for _, page := range logged {
		counts[cmp.Or(owners[page], "the file itself")]++
	}
	fmt.Fprintf(out, "what consumer runs of 64 workflows add to the log: %.0f bytes a run, %.2f pages; %.1f runs a transaction\n",
		float64(len(logged))*(4096+24)/runs, float64(len(logged))/runs, runs/transactions)
	fmt.Fprintf(out, "  %-40s %12s %16s\n", "pages of", "a run", "a transaction")
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
		fmt.Fprintf(out, "  %-40s %12.3f %16.2f\n", name, counts[name]/runs, counts[name]/transactions)
	}
}

// readLog returns the numbers of the pages in a log (https://sqlite.org/fileformat2.html, section 4.1), and how many
// transactions it has.
func readLog(path string) (logged []uint32, transactions int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	for at := int64(32); ; at += 24 + 4096 {
		var frame [8]byte
		switch _, err := f.ReadAt(frame[:], at); {
		case errors.Is(err, io.EOF):
			return logged, transactions, nil
		case err != nil:
			return nil, 0, err
		}
		logged = append(logged, endian.BigEndian.Uint32(frame[:]))
		if endian.BigEndian.Uint32(frame[4:]) != 0 { // the size of the file, in the last of a transaction
			transactions++
		}
	}
}

// owners returns the table or the index that has each page.
func owners(ctx context.Context, db *sql.DB) (map[uint32]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT pageno, name || ', ' || pagetype FROM dbstat`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names := make(map[uint32]string)
	for rows.Next() {
		var page uint32
		var name string
		if err := rows.Scan(&page, &name); err != nil {
			return nil, err
		}
		names[page] = name
	}
	return names, rows.Err()
}
