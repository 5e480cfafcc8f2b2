package engine

import (
	"fmt"

	"github.com/keep-run/keep"
)

// A logged counts what a run has logged.
type logged struct {
	lines, bytes int
	full         bool // a limit was reached; what follows is dropped
}

// A runLog collects the lines that a phase logs, as far as the limits of its run
// allow.
type runLog struct {
	x     *execution
	lines []keep.LogLine
	logged
}

// add keeps one line. The last one that is kept says that others were not.
func (l *runLog) add(level, text, where string) {
	if l.full {
		return
	}
	limits := l.x.e.policy.Limits
	switch {
	case l.logged.lines == limits.LogLines:
		l.full = true
		level, text = "warn", fmt.Sprintf("the log of this run has %d lines: later ones are not kept", limits.LogLines)
	case l.bytes+len(text) > limits.LogBytes:
		l.full = true
		level, text = "warn", fmt.Sprintf("the log of this run has %d bytes: later lines are not kept", limits.LogBytes)
	}
	l.logged.lines++
	l.bytes += len(text)
	l.lines = append(l.lines, keep.LogLine{Run: l.x.run.ID, At: l.x.e.Now(), Level: level, Text: text, Where: where})
}
