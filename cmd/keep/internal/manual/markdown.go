package manual

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// repository is where files are that are no documents.
const repository = "https://github.com/keep-run/keep/blob/main/"

// converter makes HTML of Markdown. HTML in Markdown is left out, and no element gets a style: the
// policy of the pages allows neither.
var converter = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(wide{}, 100))),
)

// wide makes what is often wider than a phone scroll by itself, also by keyboard.
type wide struct{}

// RegisterFuncs registers the renderers of tables and of code.
func (wide) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(tables.KindTable, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.WriteString("<div class=\"wide\" tabindex=\"0\"><table>\n")
		} else {
			_, _ = w.WriteString("</table></div>\n")
		}
		return ast.WalkContinue, nil
	})
	code := func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, _ = w.WriteString("<pre tabindex=\"0\"><code>")
		_, _ = w.Write(util.EscapeHTML(n.Lines().Value(source)))
		_, _ = w.WriteString("</code></pre>\n")
		return ast.WalkSkipChildren, nil
	}
	r.Register(ast.KindFencedCodeBlock, code)
	r.Register(ast.KindCodeBlock, code)
}

// comment is what people who read a page are not shown.
var comment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^<!--.*?-->\n*`) })

// render makes a page of a document. all are the documents that links may lead to.
func render(name string, s source, all map[string]source) (*Page, error) {
	p := &Page{Name: name, Text: comment().ReplaceAllString(s.text, "")}
	source := []byte(p.Text)
	doc := converter.Parser().Parse(text.NewReader(source))
	x := &reader{page: p, source: source, anchors: map[string]int{}}
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(resolve(s.dir, string(n.Destination), all))
		case *ast.Image:
			n.Destination = []byte(resolve(s.dir, string(n.Destination), all))
		}
		return x.look(n), nil
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = converter.Renderer().Render(&out, source, doc)
	p.html = out.Bytes()
	p.contents = x.contents()
	return p, err
}

// resolve returns where a link of a document in dir leads on the pages.
//
// A file that is no document, such as a source, is at the repository: the program does not have it.
func resolve(dir, link string, all map[string]source) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	file, fragment, _ := strings.Cut(link, "#")
	if fragment != "" {
		fragment = "#" + fragment
	}
	file = path.Join(dir, file)
	name := nameOf(file)
	s, known := all[name]
	switch {
	case known && path.Ext(file) == ".md" && path.Dir(file) == s.dir:
		return "/" + name + fragment
	case strings.HasPrefix(file, "docs/screens/"):
		return "/screens/" + path.Base(file)
	}
	return repository + file + fragment
}

// titles are those of documents whose first heading is that of a part.
var titles = map[string]string{"guide": "Guide: how to write workflows"}

// A reader takes from a document what its page and the search need.
type reader struct {
	page    *Page
	source  []byte
	anchors map[string]int
	levels  []int // of the sections
}

// look reads a node, and says whether those below it are to be read.
func (x *reader) look(n ast.Node) ast.WalkStatus {
	switch n := n.(type) {
	case *ast.Heading:
		x.heading(n)
	case *ast.Paragraph, *ast.TextBlock:
		said := x.plain(n)
		if x.page.About == "" && len(x.page.sections) == 1 && n.Parent().Kind() == ast.KindDocument {
			x.page.About = first(said)
		}
		x.add(said)
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		for line := range strings.Lines(string(n.Lines().Value(x.source))) {
			x.add(strings.TrimSpace(line))
		}
	case *tables.TableRow, *tables.TableHeader:
		var cells []string
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			cells = append(cells, x.plain(c))
		}
		x.add(strings.Join(cells, " · "))
	}
	return ast.WalkContinue
}

// heading begins a section. A heading that the page has had already gets a number, as GitHub gives it, so
// that links to either work in both places.
func (x *reader) heading(n *ast.Heading) {
	title := x.plain(n)
	anchor := Anchor(title)
	if seen := x.anchors[anchor]; seen > 0 {
		x.anchors[anchor]++
		anchor = fmt.Sprintf("%s-%d", anchor, seen)
	} else {
		x.anchors[anchor] = 1
	}
	n.SetAttributeString("id", []byte(anchor))
	x.page.Title = cmp.Or(x.page.Title, titles[x.page.Name], title)
	x.page.sections = append(x.page.sections, section{anchor: anchor, heading: title})
	x.levels = append(x.levels, n.Level)
}

// add adds a line to the section that is read. What is before the first heading is no section, and is not
// found.
func (x *reader) add(line string) {
	if n := len(x.page.sections); n > 0 && line != "" {
		x.page.sections[n-1].lines = append(x.page.sections[n-1].lines, line)
	}
}

// plain returns the text of a node without its marks, on one line.
func (x *reader) plain(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(util.UnescapePunctuations(t.Value(x.source)))
			if t.SoftLineBreak() || t.HardLineBreak() {
				b.WriteByte(' ')
			}
		}
		if a, ok := n.(*ast.AutoLink); ok && entering {
			b.Write(a.Label(x.source))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// most is how many entries a table of contents has with headings of two levels.
const most = 60

// contents returns the table of contents: the first level of headings below the title and,
// if that is not too much, the second.
func (x *reader) contents() []entry {
	var out, short []entry
	top := 6
	for _, level := range x.levels[min(1, len(x.levels)):] {
		top = min(top, level)
	}
	for i, s := range x.page.sections {
		if i == 0 || x.levels[i] > top+1 {
			continue
		}
		e := entry{s.anchor, s.heading, x.levels[i] > top}
		if out = append(out, e); !e.Sub {
			short = append(short, e)
		}
	}
	if len(out) > most {
		return short
	}
	return out
}

// first returns the first sentence of a text.
func first(text string) string {
	if i := strings.Index(text, ". "); i > 0 {
		return text[:i+1]
	}
	return text
}

// Anchor returns the fragment that GitHub gives a heading.
func Anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
