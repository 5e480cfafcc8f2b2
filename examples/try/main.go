// Command try runs an example in a copy of its directory, tried/NAME, so that the example stays
// as it is. Examples of services run against twins of them on this machine.
//
//	go run ./examples/try NAME [DIRECTORY]
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // makes the databases of examples
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		stop()
		os.Exit(1)
	}
}

// A trial is one example as it is tried.
type trial struct {
	dir  string   // the copy
	bin  string   // the command keep
	env  []string // addresses and secrets of twins
	stop []func()
}

// scenarios are the examples of services, with what happens around them. The others are
// only run.
var scenarios = map[string]func(ctx context.Context, t *trial) error{
	"gateway":       gateway,
	"mail-to-sheet": mailToSheet,
	"paid-events":   paidEvents,
	"triage":        triage,
}

// run tries one example.
func run(ctx context.Context, args []string) (err error) {
	if len(args) < 1 || len(args) > 2 || strings.ContainsAny(args[0], `/\.`) {
		return errors.New("usage: go run ./examples/try NAME [DIRECTORY], from the root of the repository")
	}
	from, scenario := filepath.Join("examples", args[0]), scenarios[args[0]]
	if _, err := os.Stat(filepath.Join(from, "keep.toml")); err != nil {
		return fmt.Errorf("there is no example %s here; run it from the root of the repository", args[0])
	}
	to := filepath.Join("tried", args[0])
	if len(args) == 2 {
		to = args[1]
	}
	if err := checkCopy(to); err != nil {
		return err
	}
	if scenario != nil { // the twins begin anew, and so does the copy
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	t := &trial{bin: os.Getenv("TRY_KEEP")}
	if t.dir, err = filepath.Abs(to); err != nil {
		return err
	}
	defer func() {
		for _, stop := range slices.Backward(t.stop) {
			stop()
		}
	}()
	if err := copyOnce(from, t.dir); err != nil {
		return err
	}
	if err := t.build(ctx); err != nil {
		return err
	}
	if scenario != nil {
		return scenario(ctx, t)
	}
	return t.keep(ctx, "run", t.dir)
}

// copyMark is a file that says of a directory that it is a copy of this command.
const copyMark = ".keep-try"

// checkCopy refuses a directory with files that is no copy of this command: it would be removed, or run as if it was one.
func checkCopy(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(list) > 0 && !slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Name() == copyMark }) {
		return fmt.Errorf("%s is there, and no copy that this command made: name another directory, or remove it yourself", dir)
	}
	return err
}

// copyOnce copies an example, unless it was copied before, and makes its database.
func copyOnce(from, to string) error {
	if list, err := os.ReadDir(to); err == nil && len(list) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := to + ".next" // a copy that was broken off is no copy
	if err := checkCopy(next); err != nil {
		return err
	}
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	err := os.MkdirAll(next, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(next, copyMark), nil, 0o644)
	}
	if err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		at := filepath.Join(next, rel)
		if d.IsDir() {
			return os.MkdirAll(at, 0o755)
		}
		if strings.Contains(d.Name(), ".db") || strings.HasSuffix(d.Name(), ".go") {
			return nil // of a run in the example itself; and a package is compiled where it is
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, text, 0o644)
	})
	if err == nil {
		err = makeDatabase(next)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return err
	}
	return os.Rename(next, to)
}

// makeDatabase makes invoices.db by schema.sql, if the example has one.
func makeDatabase(dir string) error {
	schema, err := os.ReadFile(filepath.Join(dir, "schema.sql"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "invoices.db"))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), string(schema))
	return errors.Join(err, db.Close())
}

// build builds the command, unless the environment has one.
func (t *trial) build(ctx context.Context) error {
	if t.bin != "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "keep-try-")
	if err != nil {
		return err
	}
	t.stop = append(t.stop, func() { os.RemoveAll(dir) })
	t.bin = filepath.Join(dir, "keep.exe")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", t.bin, "./cmd/keep")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// command returns a command of keep in the copy.
func (t *trial) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.bin, args...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), t.env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// keep runs a command of keep and shows what it prints.
func (t *trial) keep(ctx context.Context, args ...string) error {
	cmd := t.command(ctx, args...)
	cmd.Stdout = os.Stdout
	return cmd.Run()
}
