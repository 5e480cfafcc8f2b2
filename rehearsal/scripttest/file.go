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

// Suffix ends the name of every file of tests in TOML.
const Suffix = ".test.toml"

// MaxFile is the largest file of tests, in bytes.
const MaxFile = 4 << 20

// A File is a file of tests.
type File struct {
	Script string `toml:"script" json:"script,omitzero"` // relative to the file
	Tests  []Test `toml:"test" json:"test,omitzero"`
}

// A Test is one story: what happens, what the services answer, what must come of it.
type Test struct {
	Name    string    `toml:"name" json:"name,omitzero"`
	Handler string    `toml:"handler" json:"handler,omitzero"` // empty: all
	Now     time.Time `toml:"now" json:"now,omitzero"`         // zero: the current time
	Runs    int       `toml:"runs" json:"runs,omitzero"`       // the test ends after so many, retries not counted; 0: when nothing is left to do
	Events  []Event   `toml:"events" json:"events,omitzero"`
	Reads   []Read    `toml:"read" json:"read,omitzero"`
	Answers []Answer  `toml:"answer" json:"answer,omitzero"`

	KV       map[string]any `toml:"kv" json:"kv,omitzero"`             // what ctx.kv has when the handler begins
	Items    []Item         `toml:"items" json:"items,omitzero"`       // that are over when the test begins
	Approved bool           `toml:"approved" json:"approved,omitzero"` // a person agreed to each call that needs it

	Expect Expect `toml:"expect" json:"expect,omitzero"`
}

// An Event is pending when the test begins.
type Event struct {
	Topic     string `toml:"topic" json:"topic,omitzero"`
	MessageID string `toml:"messageId" json:"messageId,omitzero"`
	Payload   any    `toml:"payload" json:"payload,omitzero"`
	JSON      string `toml:"json" json:"json,omitzero"` // the payload as JSON, in its place
}

// An Item is one of a job, and over.
type Item struct {
	ID     string          `toml:"id" json:"id,omitzero"`
	Title  string          `toml:"title" json:"title,omitzero"`
	Status keep.ItemStatus `toml:"status" json:"status,omitzero"` // done or skipped; empty: done
}

// A Read is what a list or get tool returns once.
type Read struct {
	Tool   string         `toml:"tool" json:"tool,omitzero"`
	Params map[string]any `toml:"params" json:"params,omitzero"` // nil: whatever they are
	Result any            `toml:"result" json:"result,omitzero"`
	JSON   string         `toml:"json" json:"json,omitzero"` // the result as JSON, in its place: TOML has no null
	Error  *Failure       `toml:"error" json:"error,omitzero"`
}

// An Answer is what becomes of one call, or of one lookup.
type Answer struct {
	Tool   string   `toml:"tool" json:"tool,omitzero"`
	Says   Says     `toml:"says" json:"says,omitzero"`
	Result any      `toml:"result" json:"result,omitzero"`
	JSON   string   `toml:"json" json:"json,omitzero"`   // the result as JSON, in its place
	Error  *Failure `toml:"error" json:"error,omitzero"` // of refused; nil: a logic failure
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
	Class   string `toml:"class" json:"class,omitzero"`
	Message string `toml:"message" json:"message,omitzero"`
}

// Expect is what must come of a test. What is nil is not checked.
type Expect struct {
	Reservations []map[string]any `toml:"reservations" json:"reservations,omitzero"`
	Calls        []map[string]any `toml:"calls" json:"calls,omitzero"`
	Publishes    []map[string]any `toml:"publishes" json:"publishes,omitzero"`
	Items        []map[string]any `toml:"items" json:"items,omitzero"`
	Questions    []map[string]any `toml:"questions" json:"questions,omitzero"`
	KV           map[string]any   `toml:"kv" json:"kv,omitzero"`
	Error        *Failure         `toml:"error" json:"error,omitzero"`
}

// Find returns the files of tests at a path, sorted: the file itself, those of a
// script, or all in a directory and below it. Hidden directories and node_modules are
// left out.
func Find(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case is(path):
		return []string{path}, nil
	case !info.IsDir():
		var files []string
		for _, suffix := range append([]string{Suffix}, scriptSuffixes...) {
			tests := strings.TrimSuffix(path, filepath.Ext(path)) + suffix
			if _, err := os.Stat(tests); err == nil {
				files = append(files, tests)
			}
		}
		return files, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		base := filepath.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != path && (strings.HasPrefix(base, ".") || base == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && is(name):
			files = append(files, name)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// is reports whether a file has tests, by its name.
func is(name string) bool { return strings.HasSuffix(name, Suffix) || IsScript(name) }

// ReadFile reads and checks a file of tests in TOML, and finds its script. The error names the
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
	return f, f.locate(name)
}

// locate finds the script of the file of tests.
func (f *File) locate(name string) (err error) {
	if f.Script == "" {
		f.Script, err = scriptBeside(name)
	} else if f.Script = filepath.Join(filepath.Dir(name), filepath.FromSlash(f.Script)); true {
		_, err = os.Stat(f.Script)
	}
	if err != nil {
		return fmt.Errorf("%s: find the script: %w", name, err)
	}
	return nil
}

// scriptBeside returns NAME.js or NAME.ts of NAME.test.toml.
func scriptBeside(name string) (string, error) {
	base := name
	for _, suffix := range append([]string{Suffix}, scriptSuffixes...) {
		base = strings.TrimSuffix(base, suffix)
	}
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
		why := strings.TrimPrefix(wrong.Error(), "toml: ")
		if text, isTime := strings.CutPrefix(why, "parsing time "); isTime {
			why = strings.SplitN(text, " as ", 2)[0] + " is not a time: write one such as 2026-11-22T09:00:00Z"
		}
		return nil, fmt.Errorf("%d:%d: %s", line, column, why)
	case err != nil:
		return nil, fmt.Errorf(" %w", err)
	}
	for i := range f.Tests {
		t := &f.Tests[i]
		err := t.mean()
		if err == nil {
			err = t.validate()
		}
		if err != nil {
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
		if err := oneValue(e.Payload, e.JSON); err != nil {
			return fmt.Errorf("event %q: payload %w", e.MessageID, err)
		}
	}
	if err := t.validateStart(); err != nil {
		return err
	}
	for _, r := range t.Reads {
		if r.Tool == "" {
			return errors.New("read: tool required")
		}
		if err := oneValue(r.Result, r.JSON); err != nil {
			return fmt.Errorf("read of %s: result %w", r.Tool, err)
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
		case (a.Result != nil || a.JSON != "") && a.Says != Applied && a.Says != Found:
			return fmt.Errorf("answer of %s: %s has no result", a.Tool, a.Says)
		case a.Error != nil && a.Says != Refused:
			return fmt.Errorf("answer of %s: %s has no error", a.Tool, a.Says)
		}
		if err := oneValue(a.Result, a.JSON); err != nil {
			return fmt.Errorf("answer of %s: result %w", a.Tool, err)
		}
		if err := a.Error.validate(); err != nil {
			return fmt.Errorf("answer of %s: %w", a.Tool, err)
		}
	}
	return t.Expect.validate()
}

// validateStart reports the first thing that is wrong with what is there when the test begins.
func (t Test) validateStart() error {
	if t.Runs < 0 || t.Runs > MaxWorks {
		return fmt.Errorf("runs = %d: want 1 to %d", t.Runs, MaxWorks)
	}
	if t.KV != nil && t.Handler == "" {
		return errors.New("kv: name the handler whose checkpoint it is: handler = \"…\"")
	}
	for _, it := range t.Items {
		if it.ID == "" {
			return errors.New("items: id required")
		}
		if it.Status != "" && it.Status != keep.ItemDone && it.Status != keep.ItemSkipped {
			return fmt.Errorf("items: %s is %q: want %s or %s when the test begins", it.ID, it.Status, keep.ItemDone, keep.ItemSkipped)
		}
	}
	return nil
}

// oneValue reports what is wrong with a value that may be given as JSON in its place.
func oneValue(value any, text string) error {
	switch {
	case text == "":
		return nil
	case value != nil:
		return errors.New("is given twice, also as json")
	case !json.Valid([]byte(text)):
		return fmt.Errorf("is no JSON: %.80s", text)
	}
	return nil
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

// toJSON returns a value of a file as JSON, or the JSON in its place. Dates become strings.
func toJSON(v any, text string) (json.RawMessage, error) {
	if text != "" {
		return json.RawMessage(text), nil
	}
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}
