// Package logsink writes lines to a file, as a first thing to look at: a script
// that writes to a log changes something outside, and has all the care for it
// that a payment has. In keep.toml it is connector = "log".
//
//	[connections.audit]
//	connector = "log"
//	path      = "audit.log"      # "stdout" and "stderr" are possible
//
// The tool write({text, data}) appends one line of JSON, {time, token, text,
// data}, with one system call, and flushes it to the disk. time is when the host
// recorded the mutation.
//
// A file is level C: the lookup reads it for the token. A line that a crash cut
// off isn't one; the next write starts on a line of its own. A file that is
// missing, or that has no line older than the call, may have been rotated since:
// that it does not have the token shows nothing, and in the end a person is asked.
// So it is with a file that has a line of more than 16 MiB, which is not read.
// stdout and stderr can't be read again and are level D.
package logsink

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/internal/regular"
)

// Kind is what configuration calls this connector.
const Kind = "log"

// settle is how long after its deadline a write that hangs in the file system
// is waited for.
const settle = time.Second

// maxLine bounds a line with its end, in bytes. A longer one is of another program, or of a version before.
const maxLine = 16 << 20

// A Config is one connection of keep.toml.
type Config struct {
	Connector string `toml:"connector"` // Kind, or empty
	Path      string `toml:"path"`      // of a file, or "stdout" or "stderr"
}

// New returns the connection of that name. It opens no file.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	if cfg.Path == "" || strings.ContainsRune(cfg.Path, 0) {
		c.Addf("path", "a file, stdout or stderr is required")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	switch cfg.Path {
	case "stdout":
		return NewWriter(name, os.Stdout), nil
	case "stderr":
		return NewWriter(name, os.Stderr), nil
	}
	f := &file{sink{name: name}, cfg.Path}
	return &connector.Connection{Name: name, Connector: Kind, Tools: []connector.Tool{f}}, nil
}

// NewWriter returns a connection of that name that writes to w, and so is level
// D. Calls write one after the other.
func NewWriter(name string, w io.Writer) *connector.Connection {
	s := &stream{sink: sink{name: name}, w: w}
	return &connector.Connection{Name: name, Connector: Kind, Tools: []connector.Tool{s}}
}

// A sink is what a file and a stream have in common.
type sink struct {
	name string
	mu   sync.Mutex // held while a line is written
}

func (s *sink) spec() connector.Spec {
	return connector.Spec{
		Name:        "write",
		Effect:      connector.Mutate,
		Description: "Appends one line with text and data.",
		Params: json.RawMessage(`{"type":"object","required":["text"],"additionalProperties":false,
			"properties":{"text":{"type":"string"},"data":{}}}`),
		Result:   json.RawMessage(`{"type":"null"}`),
		Level:    keep.LevelNone,
		Identity: []string{"text"},
	}
}

// Target returns the text, shortened.
func (s *sink) Target(params json.RawMessage) string {
	var p struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(params, &p) != nil {
		return "write"
	}
	if r := []rune(p.Text); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return p.Text
}

func (s *sink) failf(class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, format, args...)
	f.Tool = keep.ToolName(s.name + ".write")
	return f
}

// A line is what is written.
type line struct {
	Time  string          `json:"time,omitempty"`
	Token string          `json:"token"`
	Text  string          `json:"text"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// line makes the line of m.
func (s *sink) line(ctx context.Context, m keep.Mutation) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(m.Payload))
	d.DisallowUnknownFields()
	l := line{}
	var p struct {
		Text *string         `json:"text"`
		Data json.RawMessage `json:"data"`
	}
	if err := d.Decode(&p); err != nil || p.Text == nil {
		return nil, s.failf(keep.ClassLogic, "bad-params", "params must be {text, data}")
	}
	if ctx.Err() != nil {
		return nil, s.failf(keep.ClassTransient, "timeout", "nothing was written: the time for the call was over")
	}
	if !m.CreatedAt.IsZero() {
		l.Time = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	l.Token, l.Text, l.Data = m.Token, *p.Text, p.Data
	raw, err := jsonval.Encode(l)
	if err != nil {
		return nil, s.failf(keep.ClassLogic, "bad-params", "params: %v", err)
	}
	if len(raw) >= maxLine {
		return nil, s.failf(keep.ClassLogic, "too-large", "the line would have %d bytes, more than %d", len(raw), maxLine)
	}
	return append(raw, '\n'), nil
}

// A stream is a sink that can't be read.
type stream struct {
	sink
	w io.Writer
}

// Spec returns the description of the tool.
func (s *stream) Spec() connector.Spec { return s.spec() }

// Mutate writes the line.
func (s *stream) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := s.line(ctx, m)
	if err != nil {
		return connector.Receipt{}, err
	}
	if n, err := s.w.Write(raw); err != nil {
		return connector.Receipt{}, s.broken(n, err)
	}
	return connector.Receipt{}, nil
}

// broken classes an error of the one Write.
func (s *sink) broken(written int, err error) *keep.Failure {
	if written == 0 {
		return s.fail("write", err)
	}
	return s.failf(keep.ClassUnknown, "cut-off", "only a part was written: %v", err)
}

// fail classes an error from before anything was written.
func (s *sink) fail(doing string, err error) *keep.Failure {
	class := keep.ClassTransient
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		class = keep.ClassPermission
	case errors.As(err, new(*regular.Error)), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOSPC):
		class = keep.ClassPrecondition
	}
	return s.failf(class, "io", "%s: %v", doing, err)
}

// A file is a sink that is its own witness.
type file struct {
	sink
	path string
}

// Pin implements connector.Pinner.
func (f *file) Pin() json.RawMessage {
	text, _ := json.Marshal(map[string]string{"path": f.path}) // a string can be written
	return text
}

// Spec returns the description of the tool.
func (f *file) Spec() connector.Spec {
	s := f.spec()
	s.Level, s.Marked, s.SettleAfter = keep.LevelWitness, true, settle
	s.VerifyByHand = fmt.Sprintf("Look for the token in %s.", f.path)
	return s
}

// Mutate appends the line.
func (f *file) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, err := f.line(ctx, m)
	if err != nil {
		return connector.Receipt{}, err
	}
	if in, err := regular.Open(f.path); err == nil {
		in.Close()
	} else if errors.As(err, new(*regular.Error)) { // a pipe can't be read back
		return connector.Receipt{}, f.fail("open", err)
	}
	out, err := f.open()
	if err != nil {
		return connector.Receipt{}, f.fail("open", err)
	}
	defer out.Close()
	torn, err := endsTorn(out)
	if err != nil {
		return connector.Receipt{}, f.fail("look at the end", err)
	}
	if torn {
		raw = append([]byte{'\n'}, raw...)
	}
	if n, err := out.Write(raw); err != nil {
		return connector.Receipt{}, f.broken(n, err)
	}
	if err := out.Sync(); err != nil {
		return connector.Receipt{}, f.failf(keep.ClassUnknown, "flush", "flush: %v", err)
	}
	return connector.Receipt{}, nil
}

// open opens the file to append to it. One that is made is durable before anything is in it.
func (f *file) open() (*os.File, error) {
	out, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	if out, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	if err := regular.SyncDir(filepath.Dir(f.path)); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// endsTorn reports whether the last line has no end.
func endsTorn(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return false, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return last[0] != '\n', err
}

// Reconcile reads the file for the token.
func (f *file) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	in, err := regular.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return connector.Answer{Verdict: connector.Retry, Detail: "there is no file, and it may have been rotated"}, nil
	}
	if err != nil {
		return connector.Answer{}, f.fail("open", err)
	}
	defer in.Close()
	r, before, goesBack, unread := bufio.NewReaderSize(in, 64<<10), connector.Recorded(ctx, m), false, false
	for {
		raw, long, err := readLine(ctx, r)
		if holds(raw, m.Token) {
			if err := regular.Sync(in); err != nil { // who wrote it may have died before it was flushed
				return connector.Answer{}, f.fail("flush", err)
			}
			return connector.Answer{Verdict: connector.Happened, Detail: "the file has a line with the token"}, nil
		}
		goesBack, unread = goesBack || isOlder(raw, before), unread || long
		if errors.Is(err, io.EOF) && unread {
			return connector.Answer{Verdict: connector.Retry, Detail: fmt.Sprintf("no line of the file has the token, and one of more than %d bytes was not read", maxLine)}, nil
		}
		if errors.Is(err, io.EOF) && !goesBack {
			return connector.Answer{Verdict: connector.Retry, Detail: "no line of the file has the token, and none is older than the call: it may have been rotated"}, nil
		}
		if errors.Is(err, io.EOF) {
			return connector.Answer{Verdict: connector.Absent, Detail: "no line of the file has the token"}, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return connector.Answer{}, f.fail("read", err)
		}
	}
}

// readLine returns the next line with its end, and nothing of a long one. The last one may have no end.
func readLine(ctx context.Context, r *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
		if ctx.Err() != nil {
			return nil, long, ctx.Err()
		}
	}
}

// holds reports whether raw is a whole line with that token.
func holds(raw []byte, token string) bool {
	quoted, err := jsonval.Encode(token)
	if err != nil || !bytes.Contains(raw, quoted) {
		return false
	}
	var l line
	return json.Unmarshal(raw, &l) == nil && l.Token == token
}

// isOlder reports whether raw is a whole line of a call that was recorded before a time.
func isOlder(raw []byte, before time.Time) bool {
	var l line
	if json.Unmarshal(raw, &l) != nil {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, l.Time)
	return err == nil && at.Before(before)
}
