package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/script/sandbox"
)

// LoadGo checks a workflow whose handlers are Go functions, ready to be deployed. Each start of a program
// deploys its workflows: a host runs those versions alone that were deployed from the same
// build (Config.Build).
func (h *Host) LoadGo(w *handler.Workflow) (*Workflow, error) { return LoadGo(w, h.cfg.Build) }

// LoadGo is Host.LoadGo without a host. Build names the build of the program; if empty, it is the
// hash of the executable.
func LoadGo(w *handler.Workflow, build string) (*Workflow, error) {
	if w == nil {
		return nil, errors.New("load a workflow: it is nil")
	}
	if build == "" {
		sum, err := executable()
		if err != nil {
			return nil, fmt.Errorf("workflow %s: hash of this program: %w", w.Name, err)
		}
		build = sum
	}
	decl, def, err := w.Declare()
	if err != nil {
		return nil, err
	}
	program := keep.Program{Build: build, Declaration: decl}
	if info, known := debug.ReadBuildInfo(); known {
		program.Path = info.Path
	}
	code, err := json.MarshalIndent(program, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("workflow %s: %w", w.Name, err)
	}
	return &Workflow{
		Definition: def, Declaration: decl, native: w,
		Bundle: &sandbox.Bundle{Entry: string(w.Name) + nativeEntry, Code: code},
	}, nil
}

// nativeEntry is how the entry of a version that is written in Go ends. Its code is a keep.Program.
const nativeEntry = ".go.json"

// InGo reports whether a version is written in Go, by its entry.
func InGo(entry string) bool { return strings.HasSuffix(entry, nativeEntry) }

// HasScript reports whether a version is a script that can be loaded, and not written in Go or that of the calls of agents.
func HasScript(d keep.Deployment) bool { return !InGo(d.Entry) && d.Workflow != keep.DirectWorkflow }

// build is the hash of the program, once it was read.
var build struct {
	sync.Mutex // protects sum
	sum        string
}

// executable returns the hash of what this process runs. What could not be read is tried again.
func executable() (string, error) {
	build.Lock()
	defer build.Unlock()
	if build.sum != "" {
		return build.sum, nil
	}
	f, err := program()
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	build.sum = hex.EncodeToString(h.Sum(nil))
	return build.sum, nil
}

// program opens what this process runs. Linux names that itself, where another file may have its path by now, or none;
// elsewhere it is the file that has the path.
func program() (*os.File, error) {
	if runtime.GOOS == "linux" {
		if f, err := os.Open("/proc/self/exe"); err == nil {
			return f, nil
		}
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// addNative makes the handlers of w known to the host, by the hash of the version. It reports whether they are new.
func (s *scripts) addNative(w *Workflow, l sandbox.Limits) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := w.Bundle.Hash()
	if _, known := s.native[hash]; known {
		return false
	}
	s.native[hash] = native{w.Name, w.native.Script(handler.Limits{Wall: l.Wall, Calls: l.HostCalls, Result: l.Result, LogLine: l.LogLine, Items: l.Items})}
	return true
}

// inProgram returns the workflows written in Go that this program deployed, by their first names.
func (s *scripts) inProgram() (names []keep.WorkflowName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.native {
		names = append(names, n.workflow)
	}
	return names
}

// claim takes the names of a workflow that is written in Go: the one that it has, and the one that it had before. No two
// of a program have one in common, since each would be deployed in the place of the other.
func (s *scripts) claim(name, was keep.WorkflowName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range []keep.WorkflowName{name, was} {
		if by := s.claims[n]; n != "" && by != "" && by != name {
			return fmt.Errorf("this program has the workflow %s as %s already, and %s would be it, too: give one of them another name (two cannot be what one was)", n, by, name)
		}
	}
	maps.DeleteFunc(s.claims, func(_, by keep.WorkflowName) bool { return by == name })
	s.claims[name] = name
	if was != "" {
		s.claims[was] = name
	}
	return nil
}

// A native is the handlers of one version that is written in Go.
type native struct {
	workflow keep.WorkflowName
	script   engine.Script
}

// InGo returns the hashes of the versions written in Go whose handlers this host has, of the
// workflows that it works on, sorted.
func (h *Host) InGo() []string {
	h.scripts.mu.Lock()
	defer h.scripts.mu.Unlock()
	var list []string
	for hash, n := range h.scripts.native {
		if h.cfg.Only == nil || slices.Contains(h.cfg.Only, n.workflow) {
			list = append(list, hash)
		}
	}
	slices.Sort(list)
	return list
}

// nativeOf returns the handlers of a version that is written in Go.
func (s *scripts) nativeOf(d keep.Deployment) (engine.Script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.native[d.Hash]; known {
		return n.script, nil
	}
	return nil, fmt.Errorf("%w %s of workflow %s, which is written in Go: start the program that deployed it, or deploy the workflow from the program that is to run it", engine.ErrNotHere, d.Version, d.Workflow)
}
