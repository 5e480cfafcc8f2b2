package main

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
)

const (
	drawEvery = 250 * time.Millisecond // while something happens
	logLines  = 10
)

// A page is the screen of keep dev on a terminal: one page that is drawn again.
type page struct {
	a        *app
	terminal io.Writer

	mu      sync.Mutex // protects the fields below
	dirty   bool       // something happened since the last read
	session *session
	found   []complaint
	log     []string // newest last
	part    []byte   // of a line that is being written
	body    []string // what the database said
}

// newPage returns a page that is drawn once run is called.
func newPage(a *app) *page { return &page{a: a, dirty: true} }

// run draws until ctx ends. What others write to stderr meanwhile becomes a
// line of the log.
func (p *page) run(ctx context.Context) {
	p.terminal = p.a.err.redirect(p)
	defer p.a.err.redirect(p.terminal)
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
func (p *page) attach(s *session) {
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
				p.add(fmt.Sprintf("[%s] %s %s", c.Workflow, l.Level, clean(l.Text)))
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
	p.add(clean(fmt.Sprintf(format, args...)))
}

// problems implements screen.
func (p *page) problems(found []complaint) {
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
		p.add(clean(string(p.part[:i])))
		p.part = p.part[i+1:]
	}
}

// read takes what the database says into the body, if something happened.
func (p *page) read(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dirty {
		return false
	}
	p.dirty = false
	p.body = nil
	if p.session == nil {
		p.body = []string{"Nothing runs."}
		return true
	}
	for _, name := range p.session.names() {
		lines, err := p.workflow(ctx, p.session.db, name)
		if err != nil {
			lines = []string{p.a.ink.red(clean(err.Error()))}
		}
		p.body = append(p.body, append(lines, "")...)
	}
	return true
}

// workflow returns the lines of one workflow.
func (p *page) workflow(ctx context.Context, db database, name keep.WorkflowName) ([]string, error) {
	w, err := api.ShowWorkflow(ctx, db, name)
	if err != nil {
		return nil, err
	}
	out := []string{p.a.ink.bold(string(name)) + " " + w.Version + ", " + pausedText(w.Paused)}
	if w.OpenRun != nil {
		r, err := api.ShowRun(ctx, db, *w.OpenRun)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("  run %s of %s: %s", r.ID, r.Handler, clean(orEmpty(r.WaitsFor))))
		if r.Error != nil {
			out = append(out, "  last error: "+p.a.ink.red(errorText(r.Error)))
		}
	}
	for _, h := range w.Handlers {
		at := h.NextRunAt
		if at == nil {
			at = h.WakeAt
		}
		if at != nil {
			out = append(out, fmt.Sprintf("  %s next: %s", h.Name, p.a.at(*at)))
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
		out = append(out, "  "+p.a.ink.yellow(clean(q.Question)), "    keep inbox show "+string(q.ID))
	}
	return out, nil
}

// draw puts the page on the terminal, cut to its size.
func (p *page) draw() {
	p.mu.Lock()
	all := []string{p.a.ink.bold("keep dev") + p.a.ink.dim("  "+p.a.now().Format("15:04:05Z")+"  Ctrl-C stops"), ""}
	if hasErrors(p.found) {
		all = append(all, p.a.ink.red("These files are broken; what ran before goes on:"))
	}
	for _, c := range p.found {
		all = append(all, strings.Split(strings.TrimRight(p.a.ink.complaint(c), "\n"), "\n")...)
	}
	if len(p.found) > 0 {
		all = append(all, "")
	}
	all = append(all, p.body...)
	all = append(all, p.a.ink.dim("log"))
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
			if used += runeColumns(r); used > wide {
				return b.String() + "\x1b[0m"
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
