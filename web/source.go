package web

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An excerpt is some lines of a file.
type excerpt struct {
	File  string
	Lines []sourceLine
}

// A sourceLine is a line of a script; Hit marks the one that is meant.
type sourceLine struct {
	N    int
	Text string
	Hit  bool
}

// around is how many lines an excerpt has before and after the one that is meant.
const around = 4

// maxLine bounds what is shown of one line, in bytes.
const maxLine = 400

// quote returns the lines around a place, such as "a.js:12:5"; nil if the files do
// not have it.
func quote(files map[string]string, at string) *excerpt {
	name, line, ok := place(at)
	if !ok {
		return nil
	}
	text, known := files[name]
	if !known {
		for _, f := range slices.Sorted(maps.Keys(files)) {
			if path.Base(f) == path.Base(name) {
				name, text, known = f, files[f], true
				break
			}
		}
	}
	lines := strings.Split(text, "\n")
	if !known || line < 1 || line > len(lines) {
		return nil
	}
	e := &excerpt{File: name}
	for n := max(line-around, 1); n <= min(line+around, len(lines)); n++ {
		e.Lines = append(e.Lines, sourceLine{n, cut(maxLine, lines[n-1]), n == line})
	}
	return e
}

// place reads file:line:column.
func place(at string) (file string, line int, ok bool) {
	rest, _, ok := cutLast(at, ":")
	if !ok {
		return "", 0, false
	}
	file, number, ok := cutLast(rest, ":")
	if !ok {
		return "", 0, false
	}
	line, err := strconv.Atoi(number)
	return file, line, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
