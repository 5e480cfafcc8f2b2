package simtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// maxScript is how much of a history a broken seed prints. All of it comes with
// the replay.
const maxScript = 60

// A history is what the seed decided, as far as it matters: faults,
// crashes, what people did, and which laws broke. It takes in a trace.
type history struct{ lines []string }

// Write takes in one line of the trace.
func (h *history) Write(line []byte) (int, error) {
	for _, mark := range []string{" FAULT ", " CRASH ", " person: ", " BROKEN "} {
		if !bytes.Contains(line, []byte(mark)) {
			continue
		}
		if len(h.lines) == maxScript {
			h.lines = h.lines[1:]
		}
		h.lines = append(h.lines, strings.TrimRight(string(line), "\n"))
		break
	}
	return len(line), nil
}

// explain lives through a broken seed again, and adds its history.
func (c Config) explain(t *testing.T, r Result) Result {
	var h history
	if again := c.run(t, r.Seed, &h); again.Digest != r.Digest {
		h.lines = append(h.lines, "the second time was another history: something here does not depend on the seed alone")
	}
	r.Script = h.lines
	return r
}

// Replay says how to see the seed again.
func (r Result) Replay() string {
	if r.Group {
		return fmt.Sprintf("go test ./internal/simtest -run TestGroup$ -seed %d -v", r.Seed)
	}
	return fmt.Sprintf("go test ./internal/simtest -run TestSeed -seed %d -v", r.Seed)
}

// describe lists the result, its history if a law was broken, and how to replay it.
func (r Result) describe(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d (%s): %s\n", r.Seed, took.Round(time.Millisecond), r)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  broken law %s\n", p)
	}
	if len(r.Script) > 0 {
		fmt.Fprintf(&b, "what went before:\n  %s\n", strings.Join(r.Script, "\n  "))
	}
	if len(r.Problems) > 0 {
		fmt.Fprintf(&b, "replay it, with every step: %s\nor: go run ./internal/torture -trace -seed %d%s\n", r.Replay(), r.Seed, map[bool]string{true: " -group"}[r.Group])
	}
	return b.String()
}
