package files

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
	"github.com/keep-run/keep/internal/regular"
)

// Bounds of list.
const (
	maxLimit   = 5000
	maxVisited = 100_000
)

var listSpec = connector.Spec{
	Name:        "list",
	Effect:      connector.List,
	Description: "Lists the files below the root, sorted by name; glob is matched against the whole name (*.eml, */*.csv).",
	Params: native.Object("", `
		"glob":{"type":"string"},
		"prefix":{"type":"string"},
		"after":{"type":"string","description":"only names that sort after this one; the last name of a page gives the next"},
		"limit":{"type":"integer","minimum":1,"maximum":5000,"description":"the size of a page; without it all names come, and more than 5000 are a failure"}`),
	Result: json.RawMessage(`{"type":"array","items":{"type":"object","required":["name","size","modified"],"properties":{
		"name":{"type":"string"},"size":{"type":"integer"},"modified":{"type":"string","format":"date-time"}}}}`),
}

type listParams struct {
	Glob   string `json:"glob"`
	Prefix string `json:"prefix"`
	After  string `json:"after"`
	Limit  int    `json:"limit"`
}

// An entry is one file of a list.
type entry struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Modified string `json:"modified"`
}

// list returns the entries of one page.
func (d *dir) list(ctx context.Context, params json.RawMessage) (any, error) {
	var p listParams
	if err := d.decode("list", params, &p); err != nil {
		return nil, err
	}
	if _, err := path.Match(p.Glob, ""); err != nil {
		return nil, d.failf("list", keep.ClassLogic, "bad-params", "glob %q: %v", p.Glob, err)
	}
	paged := p.Limit != 0
	if !paged {
		p.Limit = maxLimit
	}
	if p.Limit < 0 || p.Limit > maxLimit {
		return nil, d.failf("list", keep.ClassLogic, "bad-params", "limit must be 1 to %d", maxLimit)
	}
	root, err := d.open("list")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := d.names(ctx, root, p)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	entries := []entry{}
	for _, name := range names {
		info, err := root.Stat(name)
		switch {
		case err != nil && !isElsewhere(err):
			return nil, d.fail("list", "look at "+name, err)
		case err != nil || !info.Mode().IsRegular():
			continue // gone since, or a link to something else
		}
		if len(entries) == p.Limit && !paged {
			// A list that silently ends would lose files for good.
			return nil, d.failf("list", keep.ClassLogic, "answer-too-large", "there are more than %d files; read pages, with limit and after", maxLimit)
		}
		if len(entries) == p.Limit {
			break
		}
		entries = append(entries, entry{name, info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)})
	}
	return entries, nil
}

// names returns the files that match, unsorted.
func (d *dir) names(ctx context.Context, root *os.Root, p listParams) ([]string, error) {
	var names []string
	visited := 0
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		visited++
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case visited > maxVisited:
			return d.failf("list", keep.ClassLogic, "answer-too-large", "there are more than %d files; use a smaller root", maxVisited)
		case err != nil && name == ".":
			return err
		case name == ".", errors.Is(err, fs.ErrNotExist):
			return nil // what is gone has no files
		case err != nil: // who continues behind its files would never see them
			return d.fail("list", "read the directory "+name, err)
		case hidden(name) && e.IsDir():
			return fs.SkipDir
		case e.IsDir() && !(leadsTo(name+"/", p.Prefix) && reaches(p.Glob, name)):
			return fs.SkipDir
		case hidden(name), e.IsDir():
			return nil
		}
		glob := p.Glob == ""
		if !glob {
			glob, _ = path.Match(p.Glob, name)
		}
		if !glob || !strings.HasPrefix(name, p.Prefix) || name <= p.After {
			return nil
		}
		if !utf8.ValidString(name) {
			return d.failf("list", keep.ClassLogic, "not-utf-8", "the name %q is not UTF-8, and no text could name it; rename the file, or leave it out by glob or prefix", name)
		}
		names = append(names, name)
		return nil
	})
	var f *keep.Failure
	if err != nil && !errors.As(err, &f) {
		return nil, d.fail("list", "list", err)
	}
	return names, err
}

// leadsTo reports whether names in the directory can have the prefix.
func leadsTo(dir, prefix string) bool {
	return strings.HasPrefix(dir, prefix) || strings.HasPrefix(prefix, dir)
}

// reaches reports whether glob may match a name in the directory: no * matches a slash.
func reaches(glob, dir string) bool {
	return glob == "" || strings.ContainsRune(glob, '[') || strings.Count(glob, "/") > strings.Count(dir, "/")
}

// isElsewhere reports whether err says that a name is gone, or a link that leads out of the root or nowhere.
func isElsewhere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || isEscape(err)
}

var readSpec = connector.Spec{
	Name:        "read",
	Effect:      connector.Get,
	Description: "Reads a file as text, or as base64; offset and length read a part of a large one. Null if there is no such file.",
	Params: native.Object(`"name"`, `
		"name":{"type":"string","minLength":1},
		"encoding":{"enum":["text","base64"]},
		"offset":{"type":"integer","minimum":0},
		"length":{"type":"integer","minimum":0,"maximum":524288}`),
	Result: json.RawMessage(`{"type":["object","null"],"required":["name","size","modified"],"properties":{
		"name":{"type":"string"},"size":{"type":"integer"},"modified":{"type":"string"},
		"text":{"type":"string"},"base64":{"type":"string"},"warnings":{"type":"array","items":{"type":"string"}}}}`),
}

type readParams struct {
	Name     string `json:"name"`
	Encoding string `json:"encoding"`
	Offset   int64  `json:"offset"`
	Length   *int64 `json:"length"`
}

// A content is the result of read.
type content struct {
	entry
	Text     *string  `json:"text,omitempty"`
	Base64   *string  `json:"base64,omitempty"`
	Warnings []string `json:"warnings"`
}

// read returns the content of a file, or null.
func (d *dir) read(_ context.Context, params json.RawMessage) (any, error) {
	var p readParams
	if err := d.decode("read", params, &p); err != nil {
		return nil, err
	}
	f, info, err := d.openFile("read", p.Name)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	length := max(info.Size()-p.Offset, 0)
	if p.Length != nil {
		length = min(length, *p.Length)
	}
	if p.Offset < 0 || length < 0 || length > maxRead {
		return nil, d.failf("read", keep.ClassLogic, "answer-too-large",
			"%d bytes at offset %d are more than %d; use offset and length", length, p.Offset, maxRead)
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, p.Offset, length))
	if err != nil {
		return nil, d.fail("read", "read "+p.Name, err)
	}
	out := content{entry: entry{p.Name, info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)}, Warnings: []string{}}
	switch p.Encoding {
	case "base64":
		s := base64.StdEncoding.EncodeToString(raw)
		out.Base64 = &s
	case "", "text":
		s := strings.ToValidUTF8(string(raw), string(utf8.RuneError))
		if s != string(raw) {
			out.Warnings = append(out.Warnings, "what is not UTF-8 was replaced by U+FFFD; use encoding base64")
		}
		out.Text = &s
	default:
		return nil, d.failf("read", keep.ClassLogic, "bad-params", "encoding is %q, want text or base64", p.Encoding)
	}
	return out, nil
}

// openFile opens a regular file. It returns nil and no error if there is none of
// that name: a script can't catch an error, and a file that was listed may be
// gone.
func (d *dir) openFile(tool, name string) (*os.File, fs.FileInfo, error) {
	if err := d.checkName(tool, name); err != nil {
		return nil, nil, err
	}
	root, err := d.open(tool)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	f, err := regular.OpenIn(root, name)
	var info fs.FileInfo
	if err == nil {
		d.step("opened")
		if info, err = f.Stat(); err == nil { // of what is open: another file may have the name by now
			return f, info, nil
		}
		f.Close() // it was opened to read
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, regular.ErrDangling) {
		return nil, nil, nil
	}
	if errors.As(err, new(*regular.Error)) {
		return nil, nil, d.failf(tool, keep.ClassLogic, "bad-name", "%q is not a file", name)
	}
	return nil, nil, d.fail(tool, "open "+name, err)
}
