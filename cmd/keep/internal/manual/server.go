package manual

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/keep-run/keep/docs"
)

//go:embed static/style.css
var style []byte

//go:embed static/icon.svg
var icon []byte

//go:embed static/page.html
var layout string

var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"mark": mark}).Parse(layout))
})

// policy allows nothing but the style and the pictures of this server. There is no script.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// A view is what the layout shows: a page, hits or the list of all pages.
type view struct {
	Title, Query string
	Page         *Page
	HTML         template.HTML
	Contents     []entry
	Groups       []listed
	Hits         []Hit
	Searched     bool
	Missing      string // the path that there is nothing at
}

// shown is how many hits a page has.
const shown = 50

// Handler returns a server of the pages.
func Handler() http.Handler {
	l := Open()
	mux := http.NewServeMux()
	file := func(name, kind string, data []byte) {
		mux.HandleFunc("GET "+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(data) // the client is gone
		})
	}
	file("/style.css", "text/css; charset=utf-8", style)
	file("/icon.svg", "image/svg+xml", icon)
	mux.Handle("GET /screens/{file}", http.FileServerFS(docs.Files))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		show(w, http.StatusOK, view{Title: "Documents", Groups: l.groups()})
	})
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, r *http.Request) {
		q := strings.TrimSpace(r.URL.Query().Get("q"))
		show(w, http.StatusOK, view{Title: "Search", Query: q, Searched: true, Hits: l.Search(q, shown)})
	})
	// The last part of a problem's type is an anchor: see idempotency.ProblemBase.
	mux.HandleFunc("GET /problems/{kind}", func(w http.ResponseWriter, r *http.Request) {
		if kind := r.PathValue("kind"); l.byName["problems"].has(kind) {
			http.Redirect(w, r, "/problems#"+kind, http.StatusFound)
			return
		}
		l.missing(w, r)
	})
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		p := l.byName[r.PathValue("name")]
		if p != nil {
			show(w, http.StatusOK, view{Title: p.Title, Page: p, HTML: template.HTML(p.html), Contents: p.contents})
			return
		}
		if p = l.byName[nameOf(r.PathValue("name"))]; p != nil {
			http.Redirect(w, r, "/"+p.Name, http.StatusFound)
			return
		}
		l.missing(w, r)
	})
	mux.HandleFunc("GET /", l.missing)
	return secure(mux)
}

// missing answers where there is no page, with what might have been meant.
func (l *Library) missing(w http.ResponseWriter, r *http.Request) {
	word := nameOf(r.URL.Path)
	show(w, http.StatusNotFound, view{Title: "No such page", Missing: r.URL.Path, Hits: l.Search(strings.ReplaceAll(word, "-", " "), 10)})
}

// show writes a page. It is made as a whole first, so that one which fails has a status that says so.
func show(w http.ResponseWriter, status int, v view) {
	var b bytes.Buffer
	if err := pages().Execute(&b, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone
}

// secure adds the headers that the pages of a host have, too.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// mark escapes a text and marks the words of a search in it.
func mark(text, query string) template.HTML {
	var b strings.Builder
	lower := strings.ToLower(text)
	if len(lower) != len(text) { // an uncommon letter changed its length
		return template.HTML(template.HTMLEscapeString(text))
	}
	words := strings.Fields(strings.ToLower(query))
	for at := 0; at < len(text); {
		from, to := len(text), len(text)
		for _, w := range words {
			if i := strings.Index(lower[at:], w); i >= 0 && at+i < from {
				from, to = at+i, at+i+len(w)
			}
		}
		b.WriteString(template.HTMLEscapeString(text[at:from]))
		if from < to {
			b.WriteString("<mark>" + template.HTMLEscapeString(text[from:to]) + "</mark>")
		}
		at = to
	}
	return template.HTML(b.String())
}
