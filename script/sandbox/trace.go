package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxFrames is how many frames of a stack are read, and how many an error keeps at most.
const maxFrames = 32

// failure is how the prelude describes what a script threw.
type failure struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Stack   string `json:"stack"`
}

func decodeFailure(text string) (f failure, ok bool) {
	return f, text != "" && json.Unmarshal([]byte(text), &f) == nil
}

// thrown is the error for what the script threw, as the prelude described it.
// Two of the engine's own errors are limits.
func (p *phase) thrown(text string) error {
	f, ok := decodeFailure(text)
	if !ok {
		f = failure{Name: "Thrown", Message: "a value that cannot be shown"}
	}
	stack := p.prog.frames(f.Stack)
	at := p.where
	if len(stack) > 0 {
		at = stack[0].Position
	}
	switch {
	case f.Name == "InternalError" && f.Message == "out of memory":
		return p.outOfMemory(at)
	case f.Name == "RangeError" && f.Message == "Maximum call stack size exceeded",
		f.Name == "InternalError" && f.Message == "stack overflow":
		return &LimitError{Limit: "stack", Value: int64(p.limits.Stack), At: at}
	}
	return &ScriptError{
		Name: strings.ToValidUTF8(f.Name, "\uFFFD"), Message: strings.ToValidUTF8(p.mapText(f.Message), "\uFFFD"),
		Stack: stack, At: at,
	}
}

// mapFailure makes the error that an item failed with point at the author's
// files: its stack, and the call's own place, which is where it was thrown.
func (p *phase) mapFailure(q *request) {
	if len(q.args) != 1 {
		return
	}
	f, ok := decodeFailure(string(q.args[0]))
	if !ok {
		return
	}
	var stack strings.Builder
	for i, frame := range p.prog.frames(f.Stack) {
		if i == 0 {
			q.at = frame.Position
		}
		fmt.Fprintf(&stack, "    at %s\n", frame)
	}
	f.Stack = stack.String()
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // three strings always marshal
	}
	q.args[0] = b
}

// outOfMemory tells the two limits apart: the script's objects reached theirs,
// or the memory around them could not grow.
func (p *phase) outOfMemory(at Position) error {
	if int(p.in.mem.Size()) > p.limits.Memory-1<<20 {
		return &LimitError{Limit: "memory", Value: int64(p.limits.Memory), At: at}
	}
	return &LimitError{Limit: "heap", Value: int64(p.limits.Heap), At: at}
}

// trapped is the error of an engine that trapped although it was not asked to.
func (p *phase) trapped(err error) error {
	if strings.Contains(err.Error(), "stack overflow") {
		return &LimitError{Limit: "stack", Value: int64(p.limits.Stack), At: p.where}
	}
	return &ScriptError{Name: "EngineError", Message: "the JavaScript engine failed: " + firstLine(err), At: p.where, cause: err}
}

func firstLine(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

// name is the script's name for messages. A nil program is the engine's boot.
func (prog *Program) name() string {
	if prog == nil {
		return "boot"
	}
	return prog.entry
}

// frames parses a stack and maps it to the author's files. Frames of the
// prelude and of native functions are left out. A stack that the script made up may be of any length.
func (prog *Program) frames(stack string) []Frame {
	var list []Frame
	called := "" // name of the frame before: what this one calls
	read := 0
	for line := range strings.Lines(stack) {
		if read++; read > maxFrames { // the engine writes fewer
			break
		}
		f, ok := prog.rawFrame(line)
		if ok {
			if called != "" {
				f.Line, f.Column = prog.code.callee(f.Line, f.Column, called)
			}
			f.Position = prog.position(f.Line, f.Column)
			if ok = !f.IsZero(); ok {
				list = append(list, f)
			}
		}
		called = f.Func
	}
	return list
}

// callSite is where the script calls a function: its line and column in the bundle as
// the prelude packs them, and the last part of the function's name or "".
type callSite struct {
	at   int
	name string
}

// maxPlacesKept is how many places a phase remembers. Scripts call from fewer.
const maxPlacesKept = 1000

// placed reads a place that the prelude passes, and maps it to the author's file.
//
// The engine reports a call at the last of its arguments, which may be many
// lines below. So the place is moved back to the name, if an open parenthesis
// after that name is what the reported place lies in.
func (p *phase) placed(v value, name string) (Position, error) {
	at, err := p.in.number(v)
	if err != nil || at == 0 || p.prog == nil {
		return Position{}, err
	}
	key := callSite{at, name}
	if known, ok := p.places[key]; ok {
		return known, nil
	}
	found := p.prog.position(p.prog.code.callee(at>>24, at&(1<<24-1), name))
	if p.places == nil || len(p.places) >= maxPlacesKept {
		p.places = make(map[callSite]Position)
	}
	p.places[key] = found
	return found, nil
}

// frame parses one line of a stack and maps it to the author's file.
func (prog *Program) frame(line string) (f Frame, ok bool) {
	if f, ok = prog.rawFrame(line); ok {
		f.Position = prog.position(f.Line, f.Column)
	}
	return f, ok && !f.IsZero()
}

// rawFrame parses one line of a stack, which is "    at f (file:line:col)" or
// "    at file:line:col", if it is in the bundle.
func (prog *Program) rawFrame(line string) (f Frame, ok bool) {
	line, ok = strings.CutPrefix(strings.TrimSpace(line), "at ")
	if !ok {
		return f, false
	}
	if place, ok := strings.CutSuffix(line, ")"); ok {
		i := strings.LastIndex(place, " (")
		if i < 0 {
			return f, false
		}
		f.Func, line = place[:i], place[i+2:]
		if strings.HasPrefix(f.Func, "<") { // <anonymous>, <eval>
			f.Func = ""
		}
		f.Func = strings.ToValidUTF8(f.Func[:min(len(f.Func), maxName)], "\uFFFD")
	}
	if prog == nil {
		return f, false
	}
	rest, ok := strings.CutPrefix(line, prog.entry+":")
	if !ok {
		return f, false
	}
	l, c, _ := strings.Cut(rest, ":")
	var err1, err2 error
	f.Line, err1 = strconv.Atoi(l)
	f.Column, err2 = strconv.Atoi(c)
	return f, err1 == nil && err2 == nil
}

// position maps a place in the bundle to the author's file. Code that the
// bundler added has no such place.
func (prog *Program) position(line, column int) Position {
	if prog.positions == nil {
		return Position{File: prog.entry, Line: line, Column: column}
	}
	file, _, l, c, ok := prog.positions.Source(line, column-1)
	if !ok {
		return Position{}
	}
	return Position{File: file, Line: l, Column: c + 1}
}

// mapText replaces the places in a text that shows a stack, such as a logged
// error, by those in the author's files.
func (p *phase) mapText(text string) string {
	if p.prog == nil || !strings.Contains(text, "\n    at ") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "    at ") {
			b.WriteString(line)
			continue
		}
		f, ok := p.prog.frame(line)
		if !ok {
			continue // the prelude's or native
		}
		fmt.Fprintf(&b, "    at %s\n", f)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// json is the position as JSON, null if it is unknown.
func (p Position) json() []byte {
	if p.IsZero() {
		return []byte("null")
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a string and two numbers always marshal
	}
	return b
}
