package web

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// A scriptForm is the script of a form.
type scriptForm struct {
	Do       string            // check, deploy or propose
	Over     keep.Version      // that was in force when the form was made
	Checked  string            // mark of what was checked; empty: nothing was
	Entry    string            // file that declares the workflow
	Declares keep.WorkflowName // that the script declared when it was checked; of a new one
	Note     string            // for who decides about a proposal
	Files    []formFile        // the entry first

	over  bool // Over was given
	named bool // the text of the last file is still to come
}

// A formFile is one file in a form.
type formFile struct{ Name, Text string }

// Rows is how high its field is.
func (f formFile) Rows() int { return min(max(strings.Count(f.Text, "\n")+2, 8), 28) }

// Typed returns the text for a field, whose newline at the beginning a browser would drop.
func (f formFile) Typed() template.HTML { return "\n" + typed(f.Text) }

// TypedNote returns the note for its field.
func (f scriptForm) TypedNote() template.HTML { return "\n" + typed(f.Note) }

// typed escapes a text for a field so that all of it comes back. What is hidden is written by its
// number, which the page as a whole would not show as it is (see visible).
func typed(text string) template.HTML {
	var b strings.Builder
	for _, r := range template.HTMLEscapeString(text) {
		if hidden(r) {
			fmt.Fprintf(&b, "&#x%x;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return template.HTML(b.String())
}

// unshowable reports a text that no field of a browser keeps: one that is no UTF-8, or has NUL or
// control characters that HTML has no number for.
func unshowable(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r == 0 || r >= 0x80 && r < 0xa0 })
}

func mapValues(m map[string]string) []string { return slices.Collect(maps.Values(m)) }

// formOf returns the form of a version.
func formOf(d keep.Deployment) scriptForm {
	files := d.Sources()
	f := scriptForm{Over: d.Version, Entry: d.Entry, Files: []formFile{{d.Entry, files[d.Entry]}}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != d.Entry {
			f.Files = append(f.Files, formFile{name, files[name]})
		}
	}
	return f
}

// texts returns the files by their names.
func (f scriptForm) texts() map[string]string {
	out := make(map[string]string, len(f.Files))
	for _, file := range f.Files {
		out[file.Name] = file.Text
	}
	return out
}

// script returns the script as the API takes it.
func (f scriptForm) script() api.Script {
	files := f.texts()
	s := api.Script{File: f.Entry, Source: files[f.Entry], Imports: files}
	delete(files, f.Entry)
	return s
}

// mark returns what tells one script from another.
//
// It is in the form and no secret: it tells a person that the text changed, and keeps nobody from anything.
func (f scriptForm) mark() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", f.Entry)
	files := f.texts()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %q\n", name, files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// What a form may have, as api.Script does (law: bounded).
const (
	maxFiles    = 1001
	maxFileName = 255
)

// readForm reads a form over the version in force. Fields come before files, so that a file that is
// too large costs nothing that was typed. wrong says why the form has to be looked at again.
func readForm(r *http.Request, now scriptForm) (f scriptForm, wrong []string, err error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return f, nil, refusef("the form was not sent as multipart/form-data")
	}
	before := now.texts()
	var uploads []formFile
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		text := ""
		if err == nil {
			text, err = readPart(part)
		}
		// Files come after the fields: if these are whole, the form comes back as it was typed.
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok && f.valid() == nil {
			wrong = append(wrong, fmt.Sprintf("The form has more than %s with the files that were chosen. Nothing was taken from them.", byteCount(int(large.Limit))))
			uploads = nil
			break
		}
		if err != nil {
			return f, nil, err
		}
		if name := part.FileName(); part.FormName() != "upload" {
			err = f.field(part.FormName(), text, before)
		} else if name != "" {
			// A browser may send the path of a file on its machine, also one with backslashes; only its name counts.
			uploads = append(uploads, formFile{path.Base(strings.ReplaceAll(name, `\`, "/")), text})
		}
		if err != nil {
			return f, nil, err
		}
	}
	if f.Entry == "" && len(f.Files) == 1 { // a new one, or one that was thought to be new
		if only := &f.Files[0]; now.Entry != "" {
			*only = formFile{now.Entry, lines(only.Text, before[now.Entry])}
		}
		f.Entry = f.Files[0].Name
	}
	if err := f.valid(); err != nil {
		return f, nil, err
	}
	if len(uploads) > 0 && len(f.Files) == 1 && now.Entry == "" && strings.TrimSpace(f.Files[0].Text) == "" {
		f.begin(uploads)
	}
	for _, u := range uploads {
		if why := f.take(u, before); why != "" {
			wrong = append(wrong, why)
		}
	}
	if len(f.Files) > maxFiles {
		wrong = append(wrong, fmt.Sprintf("A script has at most %d files.", maxFiles))
	}
	if len(f.Note) > keep.MaxNote {
		wrong = append(wrong, fmt.Sprintf("A note has at most %d bytes, and this one %d.", keep.MaxNote, len(f.Note)))
	}
	return f, wrong, nil
}

// begin has files that were chosen take the place of a form without a script.
func (f *scriptForm) begin(uploads []formFile) {
	i := max(slices.IndexFunc(uploads, func(u formFile) bool { return strings.Contains(u.Text, "Keep.workflow(") }), 0)
	f.Entry = uploads[i].Name
	f.Files = []formFile{{Name: f.Entry}}
}

// field takes a field. Each name comes before its text.
func (f *scriptForm) field(name, text string, before map[string]string) (err error) {
	switch name {
	case "do":
		f.Do = text
	case "over":
		if f.Over, err = keep.ParseVersion(text); err != nil {
			return refusef("%v", err)
		}
		f.over = true
	case "workflow":
		f.Declares = keep.WorkflowName(text)
	case "checked":
		f.Checked = text
	case "entry":
		f.Entry = text
	case "note":
		f.Note = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	case "name":
		f.Files, f.named = append(f.Files, formFile{Name: text}), true
	case "text":
		if !f.named {
			return refusef("the form has a text without a name")
		}
		at := &f.Files[len(f.Files)-1]
		at.Text, f.named = lines(text, before[at.Name]), false
	}
	return nil
}

// readPart reads a field or a file.
func readPart(p *multipart.Part) (string, error) {
	text, err := io.ReadAll(p)
	return string(text), err
}

// valid reports a form that our page does not send.
func (f scriptForm) valid() error {
	_, known := f.texts()[f.Entry]
	switch {
	case f.Do != "check" && f.Do != "deploy" && f.Do != "propose" && f.Do != "":
		return refusef("nothing is done by %q", cut(20, f.Do))
	case f.named || len(f.Files) > maxFiles || !known || !f.over:
		return refusef("the form is not whole")
	}
	for _, file := range f.Files {
		if len(file.Name) > maxFileName || unshowable(file.Text) || unshowable(file.Name) {
			return refusef("%s has a name or a character that no form keeps; keep deploy takes it", cut(80, file.Name))
		}
	}
	return nil
}

// take puts a chosen file into the form: in the place of the one with its name, or beside the entry.
// It returns why it cannot be taken.
func (f *scriptForm) take(u formFile, before map[string]string) string {
	var at []int
	for i, file := range f.Files {
		if path.Base(file.Name) == u.Name {
			at = append(at, i)
		}
	}
	ext := path.Ext(u.Name)
	switch {
	case !slices.Contains([]string{".js", ".mjs", ".ts", ".mts", ".json"}, ext):
		return u.Name + " is no .js, .ts or .json file, and was not taken."
	case len(u.Name) > maxFileName, unshowable(u.Text), unshowable(u.Name), strings.ContainsFunc(u.Name, hidden):
		return cut(80, u.Name) + " is no text in UTF-8, or has a control character, and was not taken. keep deploy takes any."
	case len(at) > 1:
		return fmt.Sprintf("There are %d files named %s: change the text of the one that you mean.", len(at), u.Name)
	case len(at) == 1:
		file := &f.Files[at[0]]
		file.Text = lines(u.Text, before[file.Name])
	default:
		f.Files = append(f.Files, formFile{path.Join(path.Dir(f.Entry), u.Name), lines(u.Text, "")})
	}
	return ""
}

// lines ends the lines of a text as the one before it does: browsers end all of them with CR LF.
func lines(text, before string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if strings.Contains(before, "\r\n") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
