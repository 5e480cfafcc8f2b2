package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
)

var keyTime = time.UnixMilli(1_800_000_000_000).UTC()

// fill stores n answered keys whose answers have that many bytes. They are over
// an hour after keyTime.
func fill(t testing.TB, k *sqlite.Keys, from, n, size int) {
	t.Helper()
	body := []byte(strings.Repeat("x", size))
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := from + worker; i < from+n; i += 16 {
				name := fmt.Sprint("k", i)
				r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Lease: time.Minute, Claim: key.Claim{
					ID: key.NewID("", "", name), Key: name, Method: "POST", Path: "/", TTL: time.Hour}}, keyTime)
				if err == nil {
					r, err = key.Apply(r, key.Fact{Evidence: key.Answered, Fence: 1, By: "owner", Answer: key.Answer{Status: 200, Body: body}}, keyTime)
				}
				if err == nil {
					err = k.Write(t.Context(), r)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// sizes returns the length of the file and of its log.
func sizes(t testing.TB, path string) (file, log int64) {
	t.Helper()
	for _, f := range []struct {
		path string
		size *int64
	}{{path, &file}, {path + "-wal", &log}} {
		info, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		*f.size = info.Size()
	}
	return file, log
}

func sweepAll(t testing.TB, k *sqlite.Keys, now time.Time) {
	t.Helper()
	for {
		n, err := k.Sweep(t.Context(), now, 200)
		if err != nil {
			t.Fatal(err)
		}
		if n < 200 {
			return
		}
	}
}

func TestShrink(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"gives_back":      shrinkGivesBack,
		"beside_a_reader": shrinkBesideAReader,
		"reserve":         shrinkReserve,
	} {
		t.Run(name, test)
	}
}

// The space of what was swept comes back: from the file and from its log.
func shrinkGivesBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openKeys(t, path)
	k := db.Keys()
	fill(t, k, 0, 1000, 8<<10)
	if bytes, err := k.Shrink(t.Context()); bytes != 0 || err != nil {
		t.Errorf("Shrink of a full file = %d, %v", bytes, err)
	}
	if file, log := sizes(t, path); file+log < 8<<20 {
		t.Fatalf("the file has %d bytes and the log %d: too little to show anything", file, log)
	}
	sweepAll(t, k, keyTime.Add(2*time.Hour))
	bytes, err := k.Shrink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if file, log := sizes(t, path); file > 2<<20 || log != 0 || bytes < 6<<20 {
		t.Errorf("after Shrink, which gave back %d bytes, the file has %d and the log %d", bytes, file, log)
	}
	if bytes, err := k.Shrink(t.Context()); bytes != 0 || err != nil {
		t.Errorf("a second Shrink = %d, %v", bytes, err)
	}
	fill(t, k, 0, 100, 8<<10)
	for err := range db.Check(t.Context()) {
		t.Error(err)
	}
}

// A reader that stays does not hold a shrinking file up, and sees what it saw.
func shrinkBesideAReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openKeys(t, path)
	k := db.Keys()
	fill(t, k, 0, 1000, 8<<10)
	reader := openRaw(t, path)
	tx, err := reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := tx.QueryRow(`SELECT count(*) FROM idempotency_key WHERE length(body) = 8192`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	sweepAll(t, k, keyTime.Add(2*time.Hour))
	if _, err := k.Shrink(t.Context()); err != nil {
		t.Errorf("Shrink beside a reader: %v", err)
	}
	if after := count(); before != 1000 || after != 1000 {
		t.Errorf("the reader saw %d and then %d records", before, after)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func shrinkReserve(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	k := openKeys(t, path).Keys()
	fill(t, k, 0, 1000, 8<<10)
	sweepAll(t, k, keyTime.Add(2*time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if bytes, err := k.Shrink(ctx); bytes != 0 || err == nil {
		t.Errorf("Shrink with a context that is over = %d, %v", bytes, err)
	}
}

// A file of an older version reuses its pages, until somebody compacts it.
func TestCompactOlderFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	made := sqlite.New(path, sqlite.Config{})
	if err := errors.Join(made.Open(t.Context()), made.Close()); err != nil {
		t.Fatal(err)
	}
	raw := openRaw(t, path)
	raw.SetMaxOpenConns(1)
	for _, text := range []string{`PRAGMA journal_mode = DELETE`, `PRAGMA auto_vacuum = NONE`, `VACUUM`, `PRAGMA journal_mode = WAL`} {
		if _, err := raw.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	db := openKeys(t, path)
	k := db.Keys()
	fill(t, k, 0, 1000, 8<<10)
	sweepAll(t, k, keyTime.Add(2*time.Hour))
	if bytes, err := k.Shrink(t.Context()); bytes != 0 || err != nil {
		t.Errorf("Shrink of an older file = %d, %v", bytes, err)
	}
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if file, log := sizes(t, path); file > 1<<20 || log != 0 {
		t.Errorf("after Compact the file has %d bytes and its log %d", file, log)
	}
	fill(t, k, 0, 1000, 8<<10)
	sweepAll(t, k, keyTime.Add(2*time.Hour))
	if bytes, err := k.Shrink(t.Context()); bytes == 0 || err != nil {
		t.Errorf("Shrink of a compacted file = %d, %v", bytes, err)
	}
	for err := range db.Check(t.Context()) {
		t.Error(err)
	}
}
