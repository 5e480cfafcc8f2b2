package dev

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

const (
	drawEvery = 250 * time.Millisecond // while something happens
	logLines  = 10
)

// A page is the screen of keep dev on a terminal: one page that is drawn again.
type page struct {
	a        *terminal.Terminal
	terminal io.Writer

	// reading is held while the database of a session is read. It is locked before
	// mu, and never waited for with mu held: commits need mu.
	reading sync.Mutex

	mu      sync.Mutex // protects the fields below
	dirty   bool       // something happened since the last read
	session *daemon.Session
	found   []terminal.Problem
	log     []string // newest last
	part    []byte   // of a line that is being written
	body    []string // what the database said
}

// newPage returns a page that is drawn once run is called.
func newPage(a *terminal.Terminal) *page { return &page{a: a, dirty: true} }

// run draws until ctx ends. What others write to stderr meanwhile becomes a
// line of the log.
func (p *page) run(ctx context.Context) {
	p.terminal = p.a.Err.Redirect(p)
	defer p.a.Err.Redirect(p.terminal)
	fmt.Fprint(p.terminal, "\x1b[?1049h\x1b[?25l") // another screen, no cursor
	defer fmt.Fprint(p.terminal, "\x1b[?25h\x1b[?1049l")
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	drawn := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if p.read(ctx) || now.Sub(drawn) >= time.Second { // times move
				p.draw()
				drawn = now
			}
		}
	}
}

// attach waits until the database of the session before is not being read.
func (p *page) attach(s *daemon.Session) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.dirty = s, true
}

// commit implements screen: it only takes notes, since the engine waits for it.
func (p *page) commit(c keep.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = true
	for _, change := range c.Changes {
		if v, ok := change.(keep.AppendLogs); ok {
			for _, l := range v.Lines {
				p.add(fmt.Sprintf("[%s] %s %s", c.Workflow, l.Level, terminal.Clean(l.Text)))
			}
		}
	}
}

// add appends to the log. The caller holds mu.
func (p *page) add(line string) {
	p.log = append(p.log, line)
	p.log = p.log[max(0, len(p.log)-logLines):]
	p.dirty = true
}

// say implements screen.
func (p *page) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(terminal.Clean(fmt.Sprintf(format, args...)))
}

// problems implements screen.
func (p *page) problems(found []terminal.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found, p.dirty = found, true
}

// Write takes what is written to stderr while the page is up.
func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.part = append(p.part, b...)
	for {
		i := bytes.IndexByte(p.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		p.add(terminal.Clean(string(p.part[:i])))
		p.part = p.part[i+1:]
	}
}

// read fills the body from the database if something happened since the last time.
// Commits continue meanwhile: mu is not held.
//
// dirty is cleared before the database is read: what happens meanwhile makes it dirty again.
func (p *page) read(ctx context.Context) bool {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	dirty, s := p.dirty, p.session
	p.dirty = false
	p.mu.Unlock()
	if !dirty {
		return false
	}
	body := []string{"Nothing runs."}
	if s != nil {
		body = p.workflows(ctx, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body = body
	return true
}

// workflows returns the lines of all workflows of a session.
func (p *page) workflows(ctx context.Context, s *daemon.Session) []string {
	var out []string
	for _, name := range s.Names() {
		lines, err := p.workflow(ctx, s.DB, name)
		if err != nil {
			lines = []string{p.a.Ink.Red(terminal.Clean(err.Error()))}
		}
		out = append(out, append(lines, "")...)
	}
	return out
}

// workflow returns the lines of one workflow.
func (p *page) workflow(ctx context.Context, db database.DB, name keep.WorkflowName) ([]string, error) {
	w, err := api.ShowWorkflow(ctx, db, name)
	if err != nil {
		return nil, err
	}
	out := []string{p.a.Ink.Bold(string(name)) + " " + w.Version + ", " + terminal.PausedText(w.Paused)}
	for _, id := range w.OpenRuns[:min(len(w.OpenRuns), 5)] {
		r, err := api.ShowRun(ctx, db, id)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("  run %s of %s: %s", r.ID, r.Handler, terminal.Clean(terminal.OrEmpty(r.WaitsFor))))
		if r.Error != nil {
			out = append(out, "  last error: "+p.a.Ink.Red(terminal.ErrorText(r.Error)))
		}
	}
	for _, h := range w.Handlers {
		at := h.NextRunAt
		if at == nil {
			at = h.WakeAt
		}
		if at != nil {
			out = append(out, fmt.Sprintf("  %s next: %s", h.Name, p.a.At(*at)))
		}
	}
	counts, err := db.TopicCounts(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		out = append(out, fmt.Sprintf("  %s: %d pending, %d reserved, %d consumed, %d skipped",
			c.Topic, c.Pending, c.Reserved, c.Consumed, c.Skipped))
	}
	qs, err := api.OpenQuestions(ctx, db, name)
	if err != nil {
		return nil, err
	}
	for _, q := range qs {
		out = append(out, "  "+p.a.Ink.Yellow(terminal.Clean(q.Question)), "    keep inbox show "+string(q.ID))
	}
	return out, nil
}

// draw puts the page on the terminal, cut to its size.
//
// It writes over what is there, line by line, and clears only the rest: a screen that is cleared first
// flickers.
func (p *page) draw() {
	p.mu.Lock()
	all := []string{p.a.Ink.Bold("keep dev") + p.a.Ink.Dim("  "+p.a.Now().Format("15:04:05Z")+"  Ctrl-C stops"), ""}
	if terminal.HasErrors(p.found) {
		all = append(all, p.a.Ink.Red("These files have errors; the version before keeps running:"))
	}
	for _, c := range p.found {
		all = append(all, strings.Split(strings.TrimRight(p.a.Ink.Problem(c), "\n"), "\n")...)
	}
	if len(p.found) > 0 {
		all = append(all, "")
	}
	all = append(all, p.body...)
	all = append(all, p.a.Ink.Dim("log"))
	all = append(all, p.log...)
	p.mu.Unlock()
	wide, high := p.size()
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range all[:min(len(all), high-1)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cutColoured(l, wide) + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(p.terminal, b.String())
}

// size returns the columns and rows of the terminal.
func (p *page) size() (wide, high int) {
	if f, ok := p.terminal.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 1 {
			return w, h
		}
	}
	return 80, 24
}

// cutColoured cuts a line to a width; our own colours take no room.
func cutColoured(s string, wide int) string {
	var b strings.Builder
	used, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			if used += terminal.RuneColumns(r); used > wide {
				return b.String() + "\x1b[0m"
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
