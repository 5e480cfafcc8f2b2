// Command sabotage breaks Keep's guarantees one by one, and checks that a test
// notices. A break that no test notices is a test that is missing.
//
//	go run ./internal/sabotage              every break; takes about an hour
//	go run ./internal/sabotage -only early  those with "early" in their name
//	go run ./internal/sabotage -from early  continue with the break "early" where a run was ended
//	go run ./internal/sabotage -list        what there is, in the order in which it is tried
//	go run ./internal/sabotage -fit         whether each finds the line that it changes
//
// A break is one change of one file, and the test that must go red; see breaks.
// The tree itself is never touched: the compiler is given changed files by an
// overlay. What changes one function is built into one binary with all others of its
// kind, and switched on; what changes anything else has a build of its own. A test must be
// green before a break of that binary is switched on. A break that does not compile proves
// nothing, and is reported as such.
//
// The exit code is 1 if a break survived or could not be tried.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Break is one way to break a guarantee.
type Break struct {
	Name string
	Law  string // law or promise that it breaks, as docs/ARCHITECTURE.md names it
	File string // from the root of the module
	Old  string // occurs in File exactly once
	New  string
	Test string // arguments of go test; it must fail
}

// patched returns the file of b with the break in it.
func (b Break) patched(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.File)))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(b.Old)); n != 1 {
		return nil, fmt.Errorf("%s: %q occurs %d times in %s, want once", b.Name, b.Old, n, b.File)
	}
	return bytes.Replace(text, []byte(b.Old), []byte(b.New), 1), nil
}

// overlay writes what makes the go command see the break, and returns the path of
// the overlay.
func (b Break) overlay(root, dir string) (string, error) {
	text, err := b.patched(root)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, filepath.Base(b.File))
	if err := os.WriteFile(replacement, text, 0o600); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, writeOverlay(path, map[string]string{filepath.Join(root, filepath.FromSlash(b.File)): replacement})
}

// writeOverlay writes the file by which the go command reads some files in the place of others.
func writeOverlay(path string, replace map[string]string) error {
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(path, list, 0o600)
}

// An outcome is what became of a break.
type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	useless  outcome = "DOES NOT COMPILE"
	untried  outcome = "TIMED OUT"
	unsound  outcome = "RED WITHOUT IT"
)

// try runs the test of b with the break in place.
func (b Break) try(ctx context.Context, root string) (outcome, string, error) {
	dir, err := os.MkdirTemp("", "sabotage")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	path, err := b.overlay(root, dir)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	args := append([]string{"test", "-count=1", "-timeout=2m"}, strings.Fields(b.Test)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = withOverlay(path) // what a test builds itself has the break, too
	out, err := cmd.CombinedOutput()
	_, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil: // a machine that is too busy notices nothing
		return untried, string(out), nil
	case err != nil && !failed:
		return "", string(out), err
	case err == nil:
		return survived, string(out), nil
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return useless, string(out), nil
	}
	return killed, string(out), nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sabotage:", err)
		os.Exit(1)
	}
}

// run tries the breaks that the arguments ask for.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sabotage", flag.ContinueOnError)
	only := flags.String("only", "", "try only breaks with this `text` in their name or file")
	from := flags.String("from", "", "begin with the break of this `name`")
	list := flags.Bool("list", false, "list the breaks and try none")
	fit := flags.Bool("fit", false, "only look whether each break finds the line that it changes, and has a name of its own")
	with := flags.String("with", "", "run these `arguments` of go test instead of the named ones: what does one test notice?")
	verbose := flags.Bool("v", false, "print what the tests said")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if *fit {
		return fitting(root)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var chosen []Break
	for _, b := range breaks {
		if strings.Contains(b.Name+" "+b.File, *only) {
			b.Test = cmp.Or(*with, b.Test)
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no break has %q in its name or file; -list prints all", *only)
	}
	chosen = inOrder(chosen)
	if *from != "" {
		at := slices.IndexFunc(chosen, func(b Break) bool { return b.Name == *from })
		if at < 0 {
			return fmt.Errorf("there is no break %s to begin with; -list prints all", *from)
		}
		chosen = chosen[at:]
	}
	if *list {
		for _, b := range chosen {
			fmt.Fprintf(out, "%-28s %-22s %s\n", b.Name, b.Law, b.Test)
		}
		return nil
	}
	count, err := tryAll(ctx, root, chosen, *verbose, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d killed, %d survived, %d do not compile, %d timed out, %d have a test that is red without them\n",
		count[killed], count[survived], count[useless], count[untried], count[unsound])
	if count[killed] < len(chosen) {
		return errors.New("a guarantee can be broken without a test noticing")
	}
	return nil
}

// tryAll tries breaks in their order and prints what became of each.
func tryAll(ctx context.Context, root string, breaks []Break, verbose bool, out io.Writer) (count map[outcome]int, err error) {
	all, err := newBuild(root, breaks)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	count = make(map[outcome]int)
	for _, b := range breaks {
		start := time.Now()
		o, said, err := all.try(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		count[o]++
		fmt.Fprintf(out, "%-16s %-28s %-22s %5.1fs  go test %s\n", o, b.Name, b.Law, time.Since(start).Seconds(), b.Test)
		if verbose || o == useless || o == unsound {
			fmt.Fprintln(out, said)
		}
	}
	return count, nil
}

// fitting returns an error for each break that does not find its line, or has the name of another one.
func fitting(root string) error {
	var errs []error
	names := make(map[string]bool)
	for _, b := range breaks {
		if names[b.Name] {
			errs = append(errs, fmt.Errorf("%s: two breaks have that name", b.Name))
		}
		names[b.Name] = true
		_, err := b.patched(root)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// moduleRoot returns the directory with the go.mod of the module.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
