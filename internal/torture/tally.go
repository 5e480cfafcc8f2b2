package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/keep-run/keep/internal/simtest"
)

// A part is one line of a tally: what a time of simulation came to. It is written when that
// time is over, so whoever is killed loses a minute of the count, and counts nothing twice.
type part struct {
	Seed    uint64   `json:"seed"` // the first
	Next    uint64   `json:"next"` // the first of the next part
	Group   bool     `json:"group,omitempty"`
	Worlds  int      `json:"worlds"`
	Seconds float64  `json:"seconds"`
	Crashes int      `json:"crashes"`
	Faults  int      `json:"faults"`
	Broken  []uint64 `json:"broken,omitempty"` // seeds that broke a law
}

// A tally is a file of parts, one line of JSON each.
type tally struct {
	path  string
	group bool // what is simulated now
	seed  uint64
}

// readTally returns the parts of a tally, none if there is no such file.
func readTally(path string) (parts []part, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for n, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var p part
		if err == nil && len(line) > 0 {
			if err = json.Unmarshal(line, &p); err != nil {
				err = fmt.Errorf("%s:%d: %w", path, n+1, err)
			}
			parts = append(parts, p)
		}
	}
	return parts, err
}

// resume returns the first seed that no part of this kind has begun; 0: there is no part.
func resume(parts []part, group bool) (next uint64) {
	for _, p := range parts {
		if p.Group == group {
			next = p.Next
		}
	}
	return next
}

// add writes a part to the end of the file.
func (t *tally) add(r simtest.Report, next uint64) {
	p := part{Seed: t.seed, Next: next, Group: t.group, Worlds: r.Seeds, Seconds: r.Took.Seconds(), Crashes: r.Sum.Crashes, Faults: r.Sum.Faults}
	for _, bad := range r.Bad {
		p.Broken = append(p.Broken, bad.Seed)
	}
	t.seed = next
	line, err := json.Marshal(p)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(t.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture: a part is not counted:", err)
	}
}

// sum prints what all parts came to.
func sum(w io.Writer, parts []part) error {
	var all, since part
	for _, p := range parts {
		all.Worlds += p.Worlds
		all.Seconds += p.Seconds
		all.Crashes += p.Crashes
		all.Faults += p.Faults
		all.Broken = append(all.Broken, p.Broken...)
		if since.Worlds += p.Worlds; len(p.Broken) > 0 {
			since.Worlds = 0
		}
	}
	_, err := fmt.Fprintf(w, "all parts: %d worlds in %.1f hours, %d crashes, %d faults; %d worlds broke a law %v; %d worlds since the last of them\n",
		all.Worlds, all.Seconds/3600, all.Crashes, all.Faults, len(all.Broken), all.Broken, since.Worlds)
	return err
}
