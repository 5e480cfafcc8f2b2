package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/childenv"
	"github.com/keep-run/keep/internal/redact"
)

// SinkCommand is the sink of a Command.
const SinkCommand keep.Sink = "on_escalation"

// A Command tells of a question by running a program with the message on its
// standard input, never in its arguments, which other users can see. Status 0
// means that it took the message. It is killed, with what it started, when its
// time is over.
//
// Its environment has PATH, HOME and the few more that programs need to start,
// and none of what keep was given, secrets above all.
type Command struct {
	argv []string
	dir  string
	log  *slog.Logger
}

// NewCommand returns a command that runs in dir. argv[0] is looked up in PATH
// unless it has a slash; then it is relative to dir. If log is nil,
// slog.Default() gets what the program prints.
func NewCommand(argv []string, dir string, log *slog.Logger) (*Command, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("the command is empty")
	}
	argv = append([]string(nil), argv...)
	if strings.ContainsAny(argv[0], `/\`) && !filepath.IsAbs(argv[0]) {
		argv[0] = filepath.Join(dir, argv[0])
	}
	if log == nil {
		log = slog.Default()
	}
	return &Command{argv: argv, dir: dir, log: log}, nil
}

// Sink returns SinkCommand.
func (c *Command) Sink() keep.Sink { return SinkCommand }

// maxOutput bounds what is kept of a program's output, in bytes.
const maxOutput = 4 << 10

// Deliver runs the program once.
func (c *Command) Deliver(ctx context.Context, m Message) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, childenv.Of(nil), bytes.NewReader(m.Body)
	out := head{code: m.Code}
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // what it started may hold its output open
	ownGroup(cmd)
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // its status was 0; what it left running had its output open for longer
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", filepath.Base(c.argv[0]), err, out.suffix())
	}
	c.log.InfoContext(ctx, "told of a question", "sink", string(SinkCommand), "question", m.ID, "output", out.text())
	return nil
}

// A head keeps the beginning of what is written to it, and takes the rest.
type head struct {
	kept []byte
	all  int
	code string // that must not be seen: of the message; empty: none
}

// Write never fails: a program must not stop because nobody wants to hear more.
func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxOutput-len(h.kept))]...)
	h.all += len(p)
	return len(p), nil
}

// text returns what a program printed, without the code of a link, or its beginning where
// the rest was cut off: a program may print what it was given.
func (h *head) text() string {
	text := string(h.kept)
	if h.code == "" {
		return text
	}
	text = strings.ReplaceAll(text, h.code, redact.Hidden)
	for n := len(h.code) - 1; n > 0 && h.all > len(h.kept); n-- {
		if rest, ok := strings.CutSuffix(text, h.code[:n]); ok {
			return rest
		}
	}
	return text
}

// suffix returns what a program printed, for the end of a message.
func (h *head) suffix() string {
	text := strings.TrimSpace(string(bytes.ToValidUTF8([]byte(h.text()), []byte("?"))))
	switch {
	case text == "":
		return ""
	case h.all > len(h.kept):
		return fmt.Sprintf(": %s… (%d bytes)", text, h.all)
	}
	return ": " + text
}
