// Package manual is what keep docs shows: the documents of the repository as pages without
// scripts, with a search over all headings. Everything is in the program; nothing is fetched.
//
// A document is addressed by its file name in lower case, without .md. Headings have the anchors that
// GitHub gives them, so a link that works there works here, too. A link to a file that is not
// a document leads to the repository.
package manual

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep/docs"
	"github.com/keep-run/keep/idempotency"
)

// front is the README, as go generate of package guide copies it: it is above all packages
// that may embed it. Its links begin at the root, so it is not called .md: tests follow the links of such files.
//
//go:embed text/readme.markdown
var front embed.FS

// A Page is one document.
type Page struct {
	Name  string // readme, guide, …
	Title string
	About string // its first sentence; empty: none
	Text  string // Markdown

	html     []byte
	sections []section // in order; the first is of the title
	contents []entry
}

// An entry is one line of a table of contents.
type entry struct {
	Anchor, Text string
	Sub          bool
}

// A section is what stands below one heading, until the next.
type section struct {
	anchor, heading string
	lines           []string
}

// order is how the front page lists documents: what is not in it comes last.
var order = []group{
	{"Start", []string{"readme", "tutorial", "tasks", "install", "howto", "guide", "coming-from", "glossary"}},
	{"Write and try", []string{"consumers-or-items", "go", "order", "testing", "compare", "renames", "write", "mcp", "gateway", "repair"}},
	{"Services", []string{"packs", "services", "mail", "s3", "accounts", "hooks", "idempotency"}},
	{"Decide", []string{"grants", "approvals", "budgets", "breakers", "notifications", "redo"}},
	{"Operate", []string{"monitoring", "traces", "retention", "postgres", "scaling"}},
	{"Reference", []string{"reference", "problems", "api"}},
	{"Why you can rely on it", []string{"guarantees", "architecture", "status", "gaps", "benchmarks", "dependencies"}},
}

// A group is a part of the front page.
type group struct {
	Title string
	Names []string
}

// A Library is all documents.
type Library struct {
	pages  []*Page // as the front page lists them
	byName map[string]*Page
}

// Open returns the documents of this program. They are read once.
var Open = sync.OnceValue(func() *Library {
	l, err := read()
	if err != nil {
		panic("manual: " + err.Error()) // they are part of the program
	}
	return l
})

// read renders all documents at once: links need to know which there are.
func read() (*Library, error) {
	files, err := fs.Glob(docs.Files, "*.md")
	if err != nil {
		return nil, err
	}
	l := &Library{byName: make(map[string]*Page)}
	texts := map[string]source{}
	for _, file := range files {
		text, err := docs.Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		texts[nameOf(file)] = source{"docs", string(text)}
	}
	readme, err := front.ReadFile("text/readme.markdown")
	if err != nil {
		return nil, err
	}
	texts["readme"] = source{".", string(readme)}
	var names []string
	for _, g := range order {
		names = append(names, g.Names...)
	}
	for name, s := range texts {
		if l.byName[name], err = render(name, s, texts); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		l.pages = append(l.pages, l.byName[name])
	}
	slices.SortFunc(l.pages, func(a, b *Page) int {
		if i, j := place(names, a), place(names, b); i != j {
			return i - j
		}
		return strings.Compare(a.Name, b.Name)
	})
	return l, nil
}

// A source is the text of a document, and the folder that its links begin at.
type source struct{ dir, text string }

func nameOf(file string) string { return strings.ToLower(strings.TrimSuffix(path.Base(file), ".md")) }

func place(names []string, p *Page) int {
	if i := slices.Index(names, p.Name); i >= 0 {
		return i
	}
	return len(names)
}

// Pages returns all documents.
func (l *Library) Pages() []*Page { return l.pages }

// Find returns the address of a topic below the root: that of a document, of a heading as
// NAME#ANCHOR, of a problem as its type or the last part of it, or of the front page if the topic is empty. It reports false
// if there is none.
func (l *Library) Find(topic string) (string, bool) {
	if kind, ok := strings.CutPrefix(topic, idempotency.ProblemBase); ok {
		topic = "problems#" + kind
	}
	name, anchor, _ := strings.Cut(topic, "#")
	name = strings.TrimPrefix(nameOf(name), "/")
	p := l.byName[name]
	switch {
	case topic == "":
		return "/", true
	case p == nil && anchor == "" && l.byName["problems"].has(name):
		return "/problems#" + name, true
	case p == nil || anchor != "" && !p.has(anchor):
		return "", false
	case anchor != "":
		return "/" + p.Name + "#" + anchor, true
	}
	return "/" + p.Name, true
}

// Print returns the Markdown of a document. It reports false if there is none.
func (l *Library) Print(name string) (string, bool) {
	p := l.byName[nameOf(name)]
	if p == nil {
		return "", false
	}
	return p.Text, true
}

// has reports whether a page has a heading with this anchor.
func (p *Page) has(anchor string) bool {
	return p != nil && anchor != "" && slices.ContainsFunc(p.sections, func(s section) bool { return s.anchor == anchor })
}

// groups returns the documents as the front page shows them.
func (l *Library) groups() []listed {
	var out []listed
	known := map[string]bool{}
	for _, g := range order {
		var pages []*Page
		for _, name := range g.Names {
			if known[name] = true; l.byName[name] != nil {
				pages = append(pages, l.byName[name])
			}
		}
		out = append(out, listed{g.Title, pages})
	}
	var rest []*Page
	for _, p := range l.pages {
		if !known[p.Name] {
			rest = append(rest, p)
		}
	}
	if rest != nil {
		out = append(out, listed{"More", rest})
	}
	return out
}

// listed is a group of the front page.
type listed struct {
	Title string
	Pages []*Page
}
