package project_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// A scripts is a directory with two files of a script, and the edit that replaces both and adds one.
type scripts struct {
	*testing.T
	dir  string
	edit []project.File
}

func newScripts(t *testing.T) scripts {
	s := scripts{t, t.TempDir(), nil}
	s.save("a.js", "a")
	s.save("lib/b.js", "b")
	was, err := project.Hashes(s.dir, "a.js", "lib/b.js", "lib/more/c.js")
	if err != nil || was["a.js"] != project.Hash("a") || was["lib/more/c.js"] != "" {
		t.Fatalf("the hashes: %v, %v", was, err)
	}
	for name, text := range map[string]string{"a.js": "A", "lib/b.js": "B", "lib/more/c.js": "C"} {
		s.edit = append(s.edit, project.File{Name: name, Text: text, Was: was[name]})
	}
	return s
}

// save writes a file as a person does.
func (s scripts) save(name, text string) {
	s.Helper()
	name = filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		s.Fatal(err)
	}
}

// has fails the test unless the files have these texts, - where there is none, and nothing else is left.
func (s scripts) has(want string) {
	s.Helper()
	var got []string
	for _, name := range []string{"a.js", "lib/b.js", "lib/more/c.js"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			text = []byte("-")
		}
		got = append(got, string(text))
	}
	if got := strings.Join(got, " "); got != want {
		s.Errorf("the files are %q, want %q", got, want)
	}
	for _, pattern := range []string{".keep-write-*", "lib/.keep-write-*", "lib/more/.keep-write-*"} {
		if left, _ := filepath.Glob(filepath.Join(s.dir, pattern)); len(left) > 0 {
			s.Errorf("there is %v", left)
		}
	}
}

// pending reports whether files are still to be written.
func (s scripts) pending() bool {
	_, err := os.Stat(filepath.Join(s.dir, ".keep-pending.json"))
	return err == nil
}

// dies begins an edit whose process ends before the first file is replaced.
func (s scripts) dies() {
	s.Helper()
	defer func() {
		if recover() == nil || !s.pending() {
			s.Fatal("the process did not die with files to write")
		}
	}()
	_ = project.WriteTogether(s.dir, s.edit, func() error { panic("killed") })
}

func yes() error { return nil }

// Files are replaced that are as before, or already as after; if another one is among them, none is, and
// nobody is asked to decide.
func TestWriteTogether(t *testing.T) {
	for name, c := range map[string]struct {
		save    func(s scripts)
		changed string // the file that the error names; empty: all are written
		want    string
	}{
		"as before":             {func(scripts) {}, "", "A B C"},
		"one is as after":       {func(s scripts) { s.save("lib/b.js", "B") }, "", "A B C"},
		"a new one is as after": {func(s scripts) { s.save("lib/more/c.js", "C") }, "", "A B C"},
		"one was saved":         {func(s scripts) { s.save("lib/b.js", "mine") }, "lib/b.js", "a mine -"},
		"one is gone":           {func(s scripts) { os.Remove(filepath.Join(s.dir, "a.js")) }, "a.js", "- b -"},
		"a new one is there":    {func(s scripts) { s.save("lib/more/c.js", "mine") }, "lib/more/c.js", "a b mine"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripts(t)
			c.save(s)
			decided := false
			err := project.WriteTogether(s.dir, s.edit, func() error {
				decided = true
				return nil
			})
			changed, ok := errors.AsType[*project.ChangedError](err)
			if ok && changed.Name != c.changed || ok != (c.changed != "") || !ok && err != nil || decided == ok {
				t.Errorf("it ended with %v, decided %v; want %q to be named", err, decided, c.changed)
			}
			s.has(c.want)
			if s.pending() {
				t.Error("files are still to be written")
			}
		})
	}
}

// A decision against the files leaves them as they were; whoever reads scripts writes nothing then.
func TestWriteTogetherRefused(t *testing.T) {
	s := newScripts(t)
	no := errors.New("another version came first")
	if err := project.WriteTogether(s.dir, s.edit, func() error { return no }); !errors.Is(err, no) {
		t.Errorf("it ended with %v, want %v", err, no)
	}
	if err := project.FinishWrites(s.dir); err != nil {
		t.Error(err)
	}
	s.has("a b -")
}

// A process that dies between two files leaves the rest to whoever reads scripts next, who replaces
// no file that was saved since: a person has to look first.
func TestWriteTogetherDies(t *testing.T) {
	for name, c := range map[string]struct {
		save    func(s scripts)
		changed string
		want    string
	}{
		"before the first":         {func(scripts) {}, "", "A B C"},
		"between two":              {func(s scripts) { s.save("a.js", "A") }, "", "A B C"},
		"one was saved before":     {func(s scripts) { s.save("a.js", "A"); s.save("lib/b.js", "mine") }, "lib/b.js", "A mine -"},
		"one was saved after":      {func(s scripts) { s.save("a.js", "A, mine") }, "a.js", "A, mine b -"},
		"another one came instead": {func(s scripts) { s.save("lib/more/c.js", "mine") }, "lib/more/c.js", "a b mine"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripts(t)
			s.dies()
			c.save(s)
			err := project.FinishWrites(s.dir)
			if c.changed == "" {
				if err != nil || s.pending() {
					t.Errorf("it ended with %v, want all written", err)
				}
				s.has(c.want)
				return
			}
			for range 2 { // it is said until a person has looked
				if err == nil || !strings.HasPrefix(err.Error(), c.changed+" was changed") || !strings.Contains(err.Error(), ".keep-pending.json") || !s.pending() {
					t.Errorf("it ended with %v, want %s to be named", err, c.changed)
				}
				s.has(c.want)
				err = project.WriteTogether(s.dir, s.edit, yes)
			}
			if err := os.Remove(filepath.Join(s.dir, ".keep-pending.json")); err != nil {
				t.Fatal(err)
			}
			if err := project.FinishWrites(s.dir); err != nil {
				t.Errorf("after a person has looked: %v", err)
			}
			s.has(c.want)
		})
	}
}

// Another process that reads the scripts while it is decided writes the files; the one that was
// refused then says so, and the one that was not has nothing left to do.
func TestWriteTogetherBeside(t *testing.T) {
	s := newScripts(t)
	beside := func(err error) func() error {
		return func() error { return errors.Join(project.FinishWrites(s.dir), err) }
	}
	if err := project.WriteTogether(s.dir, s.edit, beside(nil)); err != nil {
		t.Error(err)
	}
	s.has("A B C")
	s = newScripts(t)
	no := errors.New("another version came first")
	if err := project.WriteTogether(s.dir, s.edit, beside(no)); !errors.Is(err, no) || !strings.Contains(err.Error(), "written the files all the same") {
		t.Errorf("it ended with %v", err)
	}
}

// Another edit of the directory, which begins while it is decided about the first, writes the files of that
// one and has a list of its own. The first leaves that alone, however it ends: if the process of the other
// dies, whoever reads scripts next writes what it began.
func TestWriteTogetherTwoEdits(t *testing.T) {
	no := errors.New("another version came first")
	for name, answer := range map[string]error{"agreed": nil, "refused": no} {
		for _, back := range []bool{false, true} { // the other one makes a file what it was
			t.Run(fmt.Sprintf("%s, back=%t", name, back), func(t *testing.T) {
				s := newScripts(t)
				next, want := "A2", "A2 B C"
				if back {
					next, want = "a", "a B C"
				}
				other := scripts{t, s.dir, []project.File{{Name: "a.js", Text: next, Was: project.Hash("A")}}}
				err := project.WriteTogether(s.dir, s.edit, func() error {
					other.dies()
					s.has("A B C")
					return answer
				})
				if !errors.Is(err, answer) || answer != nil && !strings.Contains(err.Error(), "written the files all the same") {
					t.Errorf("the first edit ended with %v", err)
				}
				if !s.pending() {
					t.Error("the list of the other edit is gone")
				}
				if err := project.FinishWrites(s.dir); err != nil || s.pending() {
					t.Errorf("the rest: %v", err)
				}
				s.has(want)
				// The same, and the other one is through by the time that the first is decided about.
				s.save("a.js", "a")
				s.save("lib/b.js", "b")
				err = project.WriteTogether(s.dir, s.edit, func() error {
					return errors.Join(project.WriteTogether(s.dir, other.edit, yes), answer)
				})
				if !errors.Is(err, answer) || s.pending() {
					t.Errorf("after another edit: %v", err)
				}
				s.has(want)
			})
		}
	}
}

// A list of a version that did not note what is replaced is worked off as that version did: whatever has
// the names is replaced.
func TestFinishWritesOfBefore(t *testing.T) {
	s := newScripts(t)
	s.save("a.js", "mine")
	s.save(".keep-pending.json", `[{"name":"a.js","text":"A"},{"name":"lib/b.js","text":"B"},{"name":"lib/more/c.js","text":"C"}]`)
	if err := project.FinishWrites(s.dir); err != nil || s.pending() {
		t.Errorf("it ended with %v, want all written", err)
	}
	s.has("A B C")
}
