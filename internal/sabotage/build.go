package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A build has the switches of many breaks. One break is on at a time.
type build struct {
	root     string
	dir      string                   // of its own
	overlay  string                   // for the go command
	on       string                   // the file that names the break
	switched map[string]bool          // breaks that it has, by their names
	binaries map[string]string        // test binaries by their packages; empty: it does not build
	sound    map[string]time.Duration // how long tests took with no break on; negative: they were red
}

// newBuild prepares a build of breaks. Those that need one of their own are not in it. close
// removes it.
func newBuild(root string, breaks []Break) (*build, error) {
	dir, err := os.MkdirTemp("", "sabotage")
	if err != nil {
		return nil, err
	}
	// Tests run some processes as another user, who reads what is on, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &build{root: root, dir: dir, overlay: filepath.Join(dir, "overlay.json"), on: filepath.Join(dir, "on"),
		switched: make(map[string]bool), binaries: make(map[string]string), sound: make(map[string]time.Duration)}
	if err := s.write(breaks); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *build) close() error { return os.RemoveAll(s.dir) }

// write writes the files with switches, and the overlay.
func (s *build) write(breaks []Break) error {
	byFile := make(map[string][]Break)
	for _, b := range breaks {
		byFile[b.File] = append(byFile[b.File], b)
	}
	replace := make(map[string]string)
	type pkg struct {
		name string
		has  []Break
	}
	pkgs := make(map[string]*pkg) // by their directories
	put := func(file string, text []byte) error {
		to := filepath.Join(s.dir, fmt.Sprintf("%d-%s", len(replace), path.Base(file)))
		replace[filepath.Join(s.root, filepath.FromSlash(file))] = to
		return os.WriteFile(to, text, 0o600)
	}
	for file, of := range byFile {
		f, err := switchAll(s.root, file, of)
		if err != nil {
			return err
		}
		if len(f.on) == 0 {
			continue
		}
		if err := put(file, f.text); err != nil {
			return err
		}
		p := pkgs[path.Dir(file)]
		if p == nil {
			p = &pkg{name: f.of}
			pkgs[path.Dir(file)] = p
		}
		p.has = append(p.has, f.on...)
		for _, b := range f.on {
			s.switched[b.Name] = true
		}
	}
	for dir, p := range pkgs {
		if err := put(path.Join(dir, switchFile), declared(p.name, s.on, p.has)); err != nil {
			return err
		}
	}
	return errors.Join(writeOverlay(s.overlay, replace), s.turn(""))
}

// turn turns the break of this name on, and all others off.
func (s *build) turn(name string) error { return os.WriteFile(s.on, []byte(name), 0o644) }

// try runs the test of b with b on, or in a build of its own. A test that is red with no
// break on proves nothing.
func (s *build) try(ctx context.Context, b Break) (outcome, string, error) {
	if !s.switched[b.Name] {
		return b.try(ctx, s.root)
	}
	pkg, _, _ := strings.Cut(b.Test, " ")
	binary, known := s.binaries[pkg]
	if !known {
		var said string
		if binary, said = s.compile(ctx, pkg); binary == "" {
			fmt.Fprintf(os.Stderr, "sabotage: %s with switches: %s", pkg, said)
		}
		s.binaries[pkg] = binary
	}
	if binary == "" {
		return b.try(ctx, s.root)
	}
	took, known := s.sound[b.Test]
	if !known {
		start := time.Now()
		passed, said, err := s.run(ctx, "", binary, b.Test, 5*time.Minute)
		if err != nil {
			return "", said, err
		}
		if took = time.Since(start); !passed {
			took = -1
		}
		if s.sound[b.Test] = took; !passed {
			return unsound, said, nil
		}
	}
	if took < 0 {
		return unsound, "", nil
	}
	// Where a break makes a test hang, that is how it is noticed.
	passed, said, err := s.run(ctx, b.Name, binary, b.Test, min(30*time.Second+10*took, 5*time.Minute))
	switch {
	case err != nil:
		return "", said, err
	case ctx.Err() != nil:
		return untried, said, nil
	case passed:
		return survived, said, nil
	}
	return killed, said, nil
}

// compile returns the test binary of a package, or what the compiler said.
func (s *build) compile(ctx context.Context, pkg string) (file, said string) {
	file = filepath.Join(s.dir, fmt.Sprintf("%d.test", len(s.binaries)))
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", file, pkg)
	cmd.Dir, cmd.Env = s.root, withOverlay(s.overlay)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", string(out)
	}
	return file, ""
}

// run runs a test with a break on, and reports whether it passed. A test that does not end is
// red, as in go test.
func (s *build) run(ctx context.Context, on, binary, test string, atMost time.Duration) (passed bool, said string, err error) {
	if err := s.turn(on); err != nil {
		return false, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	fields := strings.Fields(test)
	args := []string{"-test.count=1", "-test.timeout=" + atMost.String()}
	for _, a := range fields[1:] {
		if a == "-run" || a == "-timeout" { // as the test itself calls them
			a = "-test." + a[1:]
		}
		args = append(args, a)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(fields[0]))
	cmd.Env = withOverlay(s.overlay) // what a test builds itself has the switches, too
	cmd.WaitDelay = time.Minute      // a test that was killed may leave processes that hold its output
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && ctx.Err() == nil && !errors.Is(err, exec.ErrWaitDelay) {
		return false, string(out), err
	}
	return err == nil, string(out), nil
}

// withOverlay returns the environment in which the go command uses an overlay.
func withOverlay(file string) []string {
	return append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+file))
}

// inOrder returns breaks with those of one test after each other, so that what one needs is
// there for the next.
func inOrder(breaks []Break) []Break {
	breaks = slices.Clone(breaks)
	slices.SortStableFunc(breaks, func(a, b Break) int { return strings.Compare(a.Test, b.Test) })
	return breaks
}
