// Package terminal writes for people and programs: tables, colours, progress and problems
// to a terminal, JSON to a pipe. Text of others never reaches a terminal unescaped.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/keep-run/keep"
)

// A Terminal is where a command writes: data to out, all else to err.
type Terminal struct {
	Out    io.Writer     // data
	Err    *lockedWriter // messages, the log, progress
	TTY    bool          // err is a terminal, and may be animated
	Ink    Ink           // colours of err
	OutInk Ink           // colours of out
	JSON   bool          // out takes JSON and nothing else

	Clock func() time.Time // of the machine; nil: time.Now

	out *output // behind Out
}

// New returns a terminal of two streams. Colours and animation follow from
// what they are.
func New(stdout, stderr io.Writer) *Terminal {
	out := &output{w: stdout}
	return &Terminal{Out: out, Err: &lockedWriter{w: stderr}, TTY: isTerminal(stderr), Ink: inkFor(stderr), OutInk: inkFor(stdout), out: out}
}

// Lost returns why data could not be written, as on a disk that is full; nil: all was.
func (t *Terminal) Lost() error {
	if t.out == nil {
		return nil
	}
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	return t.out.err
}

// An output remembers that something could not be written. A verb prints line after line and looks at few of the errors; what it
// printed would be taken for the whole.
type output struct {
	w io.Writer

	mu  sync.Mutex // protects err, and is held while something is written
	err error      // the first; nothing is written after it, which would look like the whole with a gap in it
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		n, o.err = o.w.Write(p)
	}
	return n, o.err
}

// Now returns the time that messages show.
func (t *Terminal) Now() time.Time {
	if t.Clock != nil {
		return t.Clock().UTC()
	}
	return time.Now().UTC()
}

// When returns a time exactly, and how far it is from now.
func (t *Terminal) When(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04:05Z") + " (" + relative(at.Sub(t.Now())) + ")"
}

// PrintText writes the text of a file as it is; for a terminal as CleanText shows it.
func (t *Terminal) PrintText(text string) error {
	to := t.Out
	if t.out != nil {
		to = t.out.w
	}
	if f, ok := to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		text = CleanText(text)
	}
	_, err := io.WriteString(t.Out, text)
	return err
}

// PrintJSON writes v as JSON on stdout.
func (t *Terminal) PrintJSON(v any) error {
	text, err := SafeJSON(v, "")
	if err != nil {
		return err
	}
	_, err = io.WriteString(t.Out, text+"\n")
	return err
}

// ProgressDelay is how long a command works before it says so.
const ProgressDelay = time.Second

// Animate shows a line on a terminal, once a second, until the returned function is
// called. Elsewhere it shows nothing.
//
// The line is written over by whatever is written next, so that nothing of it is left between messages.
func (t *Terminal) Animate(line func() string) (stop func()) {
	if !t.TTY || t.JSON {
		return func() {}
	}
	done := make(chan struct{})
	t.Err.animate(true)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(ProgressDelay)
		defer tick.Stop()
		for {
			select {
			case <-done:
				fmt.Fprint(t.Err, "") // takes the line away
				t.Err.animate(false)
				return
			case <-tick.C:
				fmt.Fprint(t.Err, t.Ink.Dim(line()))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// Indented returns text of somebody else, safe to show, each line after the first indented: none of them can look like
// one of Keep, or of another script.
func Indented(text string) string { return strings.ReplaceAll(CleanText(text), "\n", "\n    ") }

// LogLine shows a line that a script wrote.
func (t *Terminal) LogLine(w keep.WorkflowName, l keep.LogLine) {
	level := ""
	switch l.Level {
	case "warn":
		level = t.Ink.Yellow("warn") + " "
	case "error":
		level = t.Ink.Red("error") + " "
	case "debug":
		level = "debug "
	}
	where := ""
	if l.Where != "" {
		where = t.Ink.Dim(" (" + Clean(l.Where) + ")")
	}
	fmt.Fprintf(t.Err, "[%s] %s%s%s\n", w, level, Indented(l.Text), where)
}

// A lockedWriter lets the log and the talk of several goroutines share stderr.
type lockedWriter struct {
	mu       sync.Mutex // protects the fields below
	w        io.Writer
	animated bool // the last line may be one of progress
}

// clearLine takes a line of progress away.
const clearLine = "\r\x1b[K"

// Write writes all of p, over a line of progress if there is one.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.animated {
		if _, err := io.WriteString(l.w, clearLine); err != nil {
			return 0, err
		}
	}
	return l.w.Write(p)
}

// animate says whether lines of progress are shown from now on.
func (l *lockedWriter) animate(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.animated = on
}

// Redirect sends what follows to w, and returns where it went before.
func (l *lockedWriter) Redirect(w io.Writer) (before io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.w = l.w, w
	return before
}

// isTerminal reports whether w is a terminal that understands escapes.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// An Ink colours text, or leaves it alone.
type Ink bool

// inkFor returns colours for a terminal, unless NO_COLOR says otherwise.
func inkFor(w io.Writer) Ink { return Ink(isTerminal(w) && os.Getenv("NO_COLOR") == "") }

// paint returns s in the colour of an SGR code.
func (i Ink) paint(code, s string) string {
	if !i || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (i Ink) Red(s string) string    { return i.paint("31;1", s) }
func (i Ink) Green(s string) string  { return i.paint("32", s) }
func (i Ink) Yellow(s string) string { return i.paint("33", s) }
func (i Ink) Dim(s string) string    { return i.paint("2", s) }
func (i Ink) Bold(s string) string   { return i.paint("1", s) }
