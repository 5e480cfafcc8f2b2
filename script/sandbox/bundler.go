package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// bundlerTime is what bundling one script may take. It changes in tests only.
var bundlerTime = 10 * time.Second

// Other limits of bundling one script. A script that needs more is refused with a
// *BuildError.
const (
	bundlerMemory = 512 << 20 // bytes; held only if the bundler is a process of its own

	// bundlerStack ends a bundler that recurses without end well before it has
	// taken its memory, and above what the deepest script that is accepted needs.
	bundlerStack = 384 << 20

	// bundlerAnswer bounds what a bundler writes: code, map and files, as JSON.
	bundlerAnswer = 64 << 20
)

// bundlerEnv marks a process that is a bundler. Its value is the version of what
// goes over stdin and stdout.
const (
	bundlerEnv     = "KEEP_BUNDLER"
	bundlerVersion = "1"
)

// offered is whether this program calls BundlerMain, so that its own executable
// can be started as a bundler.
var offered atomic.Bool

// building holds a token for each script that is being bundled, so that many
// hostile ones together are bounded, too.
var building = make(chan struct{}, 2)

// BundlerMain makes every later Build, BuildSource and BuildFiles of this program
// bundle in a process of its own, which is stopped after 10 seconds, at 512 MiB,
// and with all of its threads. The parser of esbuild recurses with its input: in
// the process of a host a hostile script of a megabyte would overflow the stack,
// which nothing in Go can recover from.
//
// Call it first in main. The process is the same executable again, started with an
// environment variable; there BundlerMain does not return.
//
// A program that does not call it bundles in its own process. Scripts nested too
// deeply are refused there, too, but one that keeps the parser busy is only
// abandoned after 10 seconds, and its memory is not bounded. Call BundlerMain
// where scripts come from people who are not trusted with the host.
func BundlerMain() {
	if os.Getenv(bundlerEnv) == "" {
		offered.Store(true)
		return
	}
	if err := serveBundler(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A bundleRequest says what to bundle: the files below Root, or these Files.
type bundleRequest struct {
	Version string
	Limit   time.Duration // after which nobody waits for the answer
	Entry   string
	Root    string            `json:",omitempty"`
	One     bool              `json:",omitempty"` // Files is one file, without imports
	Files   map[string][]byte `json:",omitempty"`
}

// A bundleAnswer is a Bundle, or what is wrong with the script, or with the
// machine.
type bundleAnswer struct {
	Bundle   *Bundle   `json:",omitempty"`
	Problems []Problem `json:",omitempty"`
	Error    string    `json:",omitempty"`
}

// build bundles what r names: in a process of its own if this program offers one.
func build(r bundleRequest) (*Bundle, error) {
	deadline := time.NewTimer(bundlerTime)
	defer deadline.Stop()
	select {
	case building <- struct{}{}:
	case <-deadline.C:
		return nil, fmt.Errorf("sandbox: build: %d other scripts were being bundled for %v", cap(building), bundlerTime)
	}
	if offered.Load() {
		defer func() { <-building }()
		return r.buildApart()
	}
	return r.buildHere()
}

// buildHere bundles in this process. A build that takes too long keeps its place
// among those that may run at once until it ends, since nothing can stop it.
func (r bundleRequest) buildHere() (*Bundle, error) {
	type outcome struct {
		b   *Bundle
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-building }()
		b, err := r.bundle()
		done <- outcome{b, err}
	}()
	deadline := time.NewTimer(bundlerTime)
	defer deadline.Stop()
	select {
	case o := <-done:
		return o.b, o.err
	case <-deadline.C:
		return nil, r.tooMuch("more than %v", bundlerTime)
	}
}

// tooMuch says which limit bundling the script has reached.
func (r bundleRequest) tooMuch(format string, args ...any) error {
	return &BuildError{[]Problem{{File: r.Entry, Text: "bundling the script takes " + fmt.Sprintf(format, args...) + ": simplify it, or leave data in a service"}}}
}

// bundle reads the files and bundles them.
func (r bundleRequest) bundle() (*Bundle, error) {
	switch {
	case r.Root != "":
		dir, err := os.OpenRoot(r.Root)
		if err != nil {
			return nil, fmt.Errorf("sandbox: build: %w", err)
		}
		defer dir.Close()
		return bundle(r.Entry, rootFiles{dir})
	case r.One:
		return bundle(r.Entry, oneFile{r.Entry, r.Files[r.Entry]})
	}
	return bundle(r.Entry, memoryFiles(r.Files))
}

// buildApart bundles in a process of its own.
func (r bundleRequest) buildApart() (*Bundle, error) {
	r.Version, r.Limit = bundlerVersion, bundlerTime
	if r.Root != "" {
		abs, err := filepath.Abs(r.Root)
		if err != nil {
			return nil, fmt.Errorf("sandbox: build: %w", err)
		}
		r.Root = abs
	}
	request, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("sandbox: build: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bundlerTime)
	defer cancel()
	cmd, err := bundlerCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox: build: %w", err)
	}
	out := &limitedBuffer{left: bundlerAnswer}
	last := &limitedBuffer{left: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, last
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, r.tooMuch("more than %v", bundlerTime)
	case errors.As(err, &exit) && exit.ExitCode() == exitMemory, out.full:
		return nil, r.tooMuch("more than %s of memory", size(bundlerMemory))
	case errors.As(err, &exit) && exit.ExitCode() != 1: // the runtime of Go gave up, or the system killed it
		return nil, r.tooMuch("more than the bundler can take (%v)", exit)
	case err != nil:
		return nil, fmt.Errorf("sandbox: build: the bundler failed: %w: %s", err, last.Bytes())
	}
	var answer bundleAnswer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("sandbox: build: the answer of the bundler: %w", err)
	}
	switch {
	case answer.Error != "":
		return nil, errors.New(answer.Error)
	case len(answer.Problems) > 0:
		return nil, &BuildError{answer.Problems}
	case answer.Bundle == nil:
		return nil, errors.New("sandbox: build: the bundler answered nothing")
	}
	return answer.Bundle, nil
}

// bundlerInherits names what a bundler gets of the environment: Windows starts
// nothing without the first, and a program that is watched for data races waits a
// second before it exits unless the second says otherwise.
var bundlerInherits = []string{"SYSTEMROOT", "GORACE"}

// bundlerCommand returns this executable as a bundler. Nothing else of the environment
// goes with it: secrets are there.
func bundlerCommand(ctx context.Context) (*exec.Cmd, error) {
	// On Linux this is the file that runs, even if it was replaced since. Elsewhere, and
	// where /proc is not mounted, it is the file of that name.
	path := "/proc/self/exe"
	if _, err := os.Stat(path); err != nil || runtime.GOOS != "linux" {
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{bundlerEnv + "=" + bundlerVersion}
	for _, name := range bundlerInherits {
		if v := os.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// exitMemory is the status of a bundler that has reached its memory.
const exitMemory = 3

// serveBundler answers the one request on in, under the limits of a bundler.
func serveBundler(in io.Reader, out io.Writer) error {
	debug.SetMaxStack(bundlerStack)
	debug.SetMemoryLimit(bundlerMemory * 3 / 4) // collects garbage rather than reach the limit
	go watchMemory()
	var r bundleRequest
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("bundler: read the request: %w", err)
	}
	if r.Version != bundlerVersion {
		return fmt.Errorf("bundler: version %s cannot answer version %s: Keep was upgraded, restart it", bundlerVersion, r.Version)
	}
	time.AfterFunc(r.Limit, func() { os.Exit(1) }) // whoever asked may be gone
	var answer bundleAnswer
	var err error
	answer.Bundle, err = r.bundle()
	if e, ok := errors.AsType[*BuildError](err); ok {
		answer.Problems = e.Problems
	} else if err != nil {
		answer.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(answer)
}

// watchMemory ends the process when it holds more than a bundler may. Limits of
// the operating system differ, and some count what Go only reserves.
func watchMemory() {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(5 * time.Millisecond) {
		metrics.Read(sample)
		if sample[0].Value.Uint64()-min(sample[0].Value.Uint64(), sample[1].Value.Uint64()) > bundlerMemory {
			os.Exit(exitMemory)
		}
	}
}

// A limitedBuffer keeps the first bytes that are written to it. It takes in the
// rest, so that the writer ends.
type limitedBuffer struct {
	bytes.Buffer
	left int
	full bool
}

// Write keeps what fits.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	keep := min(len(p), b.left)
	b.left -= keep
	b.full = b.full || keep < len(p)
	b.Buffer.Write(p[:keep])
	return len(p), nil
}
