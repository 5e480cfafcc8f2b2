package project

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/rename"
)

// An Answer says what a person knows of a doubt.
type Answer int

const (
	Unanswered Answer = iota
	Same              // it is the same by another name
	Another           // it is another one
)

// AskRenames asks a person about each doubt, and reports whether all were answered. What
// is answered counts for this time, in the scripts and connections that it is given.
func (e *RenameError) AskRenames(in io.Reader, out io.Writer, scripts []Script, conns []connector.Connection) bool {
	for _, d := range e.Doubts {
		if d.Kind == rename.Both || d.Kind == rename.Ruled {
			return false
		}
		fmt.Fprintf(out, "%s\nIs %s the same as %s? [same/new/stop] ", terminal.Clean(d.Error()), terminal.Clean(d.Fresh), terminal.Clean(d.Gone))
		answer := Unanswered
		if line, err := readLine(in); err == nil {
			answer = map[string]Answer{"same": Same, "new": Another}[strings.TrimSpace(line)]
		}
		if answer == Unanswered {
			return false
		}
		apply(d, answer, scripts, conns)
		fmt.Fprintf(out, "To be asked no more, %s.\n", terminal.Clean(d.Fix()))
	}
	return true
}

// maxLine bounds an answer, in bytes (law: bounded).
const maxLine = 4 << 10

// readLine returns the next line, and takes nothing of what comes after it: that may be the answer to what is asked later.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLine; {
		n, err := in.Read(one)
		switch {
		case n > 0 && one[0] == '\n', err == io.EOF && len(line) > 0:
			return string(line), nil
		case n > 0:
			line = append(line, one[0])
		case err != nil:
			return "", err
		}
	}
	return "", bufio.ErrTooLong
}

// apply makes an answer part of the project.
//
// A script is copied before it is changed: the answer is for this time, and what was loaded stays as the
// file has it.
func apply(d rename.Doubt, answer Answer, scripts []Script, conns []connector.Connection) {
	for i := range conns {
		c := &conns[i]
		conn, tool, _ := strings.Cut(d.Fresh, ".")
		_, old, _ := strings.Cut(d.Gone, ".")
		switch {
		case d.Kind == rename.Connection && c.Name == d.Fresh && answer == Same:
			c.Was = append(slices.Clone(c.Was), d.Gone)
		case d.Kind == rename.Connection && c.Name == d.Fresh:
			c.New = true
		case d.Kind == rename.Tool && c.Name == conn:
			if c.ToolWas == nil {
				c.ToolWas, c.ToolNew = make(map[string]connector.Names), make(map[string]bool)
			}
			if answer == Same {
				c.ToolWas[tool] = append(c.ToolWas[tool], old)
			} else {
				c.ToolNew[tool] = true
			}
		}
	}
	for i := range scripts {
		s := &scripts[i]
		if s.Name != d.Workflow && (d.Kind != rename.Workflow || string(s.Name) != d.Fresh) {
			continue
		}
		w := *s.Workflow
		switch w.Handlers = slices.Clone(w.Handlers); {
		case d.Kind == rename.Workflow && answer == Same:
			w.Was = keep.WorkflowName(d.Gone)
		case d.Kind == rename.Workflow:
			w.New = true
		case d.Kind == rename.Topic && answer == Same:
			w.Definition = w.KeepAs(map[keep.TopicName]keep.TopicName{w.TopicOf(keep.TopicName(d.Fresh)): keep.TopicName(d.Gone)})
		case d.Kind == rename.Topic:
			w.NewTopics = append(slices.Clone(w.NewTopics), w.TopicOf(keep.TopicName(d.Fresh)))
		}
		for k := range w.Handlers {
			h := &w.Handlers[k]
			switch {
			case d.Kind != rename.Job && d.Kind != rename.Producer || string(h.Name) != d.Fresh:
			case answer == Same:
				h.Items = d.Gone
			default:
				h.New = true
			}
		}
		s.Workflow = &w
	}
}
