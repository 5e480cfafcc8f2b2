package scripttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/regular"
)

// Suffix ends the name of every file of tests.
const Suffix = ".test.toml"

// MaxFile is the largest file of tests, in bytes.
const MaxFile = 4 << 20

// A File is a file of tests.
type File struct {
	Script string `toml:"script"` // relative to the file
	Tests  []Test `toml:"test"`
}

// A Test is one story: what happens, what the services answer, what must come of it.
type Test struct {
	Name    string    `toml:"name"`
	Handler string    `toml:"handler"` // empty: all
	Now     time.Time `toml:"now"`     // zero: the current time
	Events  []Event   `toml:"events"`
	Reads   []Read    `toml:"read"`
	Answers []Answer  `toml:"answer"`
	Expect  Expect    `toml:"expect"`
}

// An Event is pending when the test begins.
type Event struct {
	Topic     string `toml:"topic"`
	MessageID string `toml:"messageId"`
	Payload   any    `toml:"payload"`
}

// A Read is what a list or get tool returns once.
type Read struct {
	Tool   string         `toml:"tool"`
	Params map[string]any `toml:"params"` // nil: whatever they are
	Result any            `toml:"result"`
	Error  *Failure       `toml:"error"`
}

// An Answer is what becomes of one call, or of one lookup.
type Answer struct {
	Tool   string   `toml:"tool"`
	Says   Says     `toml:"says"`
	Result any      `toml:"result"`
	Error  *Failure `toml:"error"` // of refused; nil: a logic failure
}

// Says is what a service says to a call or to a lookup.
type Says string

const (
	Applied Says = "applied" // to a call: done
	Refused Says = "refused" // to a call: not done, and it will not be
	Found   Says = "found"   // to a lookup: it happened
	Absent  Says = "absent"  // to a lookup: it did not
	Lost    Says = "lost"    // to either: no answer
)

// toCall reports whether s can be the answer to a call.
func (s Says) toCall() bool { return s == Applied || s == Refused || s == Lost }

// toLookup reports whether s can be the answer to a lookup.
func (s Says) toLookup() bool { return s == Found || s == Absent || s == Lost }

// A Failure is how a read or a call fails, or how a run is expected to.
type Failure struct {
	Class   string `toml:"class"`
	Message string `toml:"message"`
}

// Expect is what must come of a test. What is nil is not checked.
type Expect struct {
	Reservations []map[string]any `toml:"reservations"`
	Calls        []map[string]any `toml:"calls"`
	Publishes    []map[string]any `toml:"publishes"`
	Items        []map[string]any `toml:"items"`
	Questions    []map[string]any `toml:"questions"`
	Error        *Failure         `toml:"error"`
}

// Find returns the files of tests at a path, sorted: the file itself, those of a
// script, or all in a directory and below it. Hidden directories and node_modules are
// left out.
func Find(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case strings.HasSuffix(path, Suffix):
		return []string{path}, nil
	case !info.IsDir():
		tests := strings.TrimSuffix(path, filepath.Ext(path)) + Suffix
		if _, err := os.Stat(tests); err != nil {
			return nil, fmt.Errorf("%s has no tests: %w", path, err)
		}
		return []string{tests}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		base := filepath.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != path && (strings.HasPrefix(base, ".") || base == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, Suffix):
			files = append(files, name)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// ReadFile reads and checks a file of tests, and finds its script. The error names the
// file and, where it can, the line.
func ReadFile(name string) (*File, error) {
	text, err := regular.Read(name, MaxFile)
	if err != nil {
		return nil, err
	}
	f, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	if f.Script == "" {
		f.Script, err = scriptBeside(name)
	} else if f.Script = filepath.Join(filepath.Dir(name), filepath.FromSlash(f.Script)); true {
		_, err = os.Stat(f.Script)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: find the script: %w", name, err)
	}
	return f, nil
}

// scriptBeside returns NAME.js or NAME.ts of NAME.test.toml.
func scriptBeside(name string) (string, error) {
	base := strings.TrimSuffix(name, Suffix)
	for _, ext := range []string{".js", ".ts"} {
		if _, err := os.Stat(base + ext); err == nil {
			return base + ext, nil
		}
	}
	return "", fmt.Errorf("there is no %s.js and no %s.ts; name it: script = \"…\"", filepath.Base(base), filepath.Base(base))
}

// Parse reads and checks the text of a file of tests. Errors begin with line and
// column, or with a space.
func Parse(text []byte) (*File, error) {
	var f File
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&f)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		e := unknown.Errors[0]
		line, column := e.Position()
		return nil, fmt.Errorf("%d:%d: unknown key %s", line, column, strings.Join(e.Key(), "."))
	case errors.As(err, &wrong):
		line, column := wrong.Position()
		return nil, fmt.Errorf("%d:%d: %s", line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	case err != nil:
		return nil, fmt.Errorf(" %w", err)
	}
	for i, t := range f.Tests {
		if err := t.validate(); err != nil {
			return nil, fmt.Errorf(" test %d (%s): %w", i+1, t.Name, err)
		}
	}
	return &f, nil
}

// validate reports the first thing that no test can mean.
func (t Test) validate() error {
	if t.Name == "" {
		return errors.New("name required")
	}
	for _, e := range t.Events {
		if e.Topic == "" || e.MessageID == "" {
			return fmt.Errorf("event %q in topic %q: topic and messageId required", e.MessageID, e.Topic)
		}
	}
	for _, r := range t.Reads {
		if r.Tool == "" {
			return errors.New("read: tool required")
		}
		if err := r.Error.validate(); err != nil {
			return fmt.Errorf("read of %s: %w", r.Tool, err)
		}
	}
	for _, a := range t.Answers {
		switch {
		case a.Tool == "":
			return errors.New("answer: tool required")
		case !a.Says.toCall() && !a.Says.toLookup():
			return fmt.Errorf("answer of %s: says %q: want applied, refused or lost to a call; found, absent or lost to a lookup", a.Tool, a.Says)
		case a.Result != nil && a.Says != Applied && a.Says != Found:
			return fmt.Errorf("answer of %s: %s has no result", a.Tool, a.Says)
		case a.Error != nil && a.Says != Refused:
			return fmt.Errorf("answer of %s: %s has no error", a.Tool, a.Says)
		}
		if err := a.Error.validate(); err != nil {
			return fmt.Errorf("answer of %s: %w", a.Tool, err)
		}
	}
	return t.Expect.validate()
}

func (f *Failure) validate() error {
	if f == nil || f.Class == "" || slices.Contains(keep.Classes(), keep.Class(f.Class)) {
		return nil
	}
	return fmt.Errorf("class %q: want one of %s", f.Class, words(keep.Classes()))
}

// expected are the keys that each list of an Expect may have.
var expected = []struct {
	list string
	keys []string
	of   func(Expect) []map[string]any
}{
	{"reservations", []string{"topic", "ids"}, func(e Expect) []map[string]any { return e.Reservations }},
	{"calls", []string{"tool", "params", "state"}, func(e Expect) []map[string]any { return e.Calls }},
	{"publishes", []string{"topic", "messageId", "payload"}, func(e Expect) []map[string]any { return e.Publishes }},
	{"items", []string{"id", "title", "status", "attempt"}, func(e Expect) []map[string]any { return e.Items }},
	{"questions", []string{"kind", "question", "tool", "item"}, func(e Expect) []map[string]any { return e.Questions }},
}

// validate reports a key that would never be compared.
func (e Expect) validate() error {
	for _, x := range expected {
		for _, row := range x.of(e) {
			for key := range row {
				if !slices.Contains(x.keys, key) {
					return fmt.Errorf("expect.%s: unknown key %q: want %s", x.list, key, strings.Join(x.keys, ", "))
				}
			}
		}
	}
	if err := e.Error.validate(); err != nil {
		return fmt.Errorf("expect.error: %w", err)
	}
	return nil
}

// words joins the values of a closed set.
func words[T ~string](all []T) string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}

// toJSON returns a value of a file as JSON. Dates become strings.
func toJSON(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}
