package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// A manual is the documentation for people: one page without a script, made once.
type manual struct {
	text   []byte
	policy string // of content security
}

// A docRoute is one row of the page.
type docRoute struct {
	Method, Path, Summary, Description string
	Params                             []*huma.Param
}

const docsStyle = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}h2{margin-top:2rem;font-size:1.1rem}dt{margin-top:.3rem}dd{margin-left:1.5rem}`

var docsPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("docs").Parse(docsText)) })

const docsText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Keep API</title><meta name="viewport" content="width=device-width">
<style>{{.Style}}</style></head><body>
<h1>The API of Keep {{.Version}}</h1>
<p>{{.Description}}</p>
<p>The whole as <a href="openapi.json">OpenAPI 3.1</a>. A token goes into <code>Authorization: Bearer …</code>;
<code>keep token add NAME</code> makes one.</p>
{{range .Routes}}<section><h2><code>{{.Method}} {{.Path}}</code></h2>
<p>{{.Summary}}. {{.Description}}</p>
{{with .Params}}<dl>{{range .}}<dt><code>{{.Name}}</code> <small>{{.In}}</small></dt><dd>{{.Description}}</dd>{{end}}</dl>{{end}}
</section>
{{end}}</body></html>
`

// newManual makes the manual of a document.
func newManual(doc *huma.OpenAPI) (*manual, error) {
	var routes []docRoute
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "DELETE": item.Delete} {
			if op != nil {
				routes = append(routes, docRoute{method, path, op.Summary, op.Description, op.Parameters})
			}
		}
	}
	slices.SortFunc(routes, func(a, b docRoute) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) })
	var text bytes.Buffer
	err := docsPage().Execute(&text, map[string]any{
		"Style": template.CSS(docsStyle), "Version": doc.Info.Version, "Description": doc.Info.Description, "Routes": routes,
	})
	sum := sha256.Sum256([]byte(docsStyle))
	policy := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
	return &manual{text.Bytes(), policy}, err
}

// ServeHTTP answers with the page.
func (p *manual) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", p.policy)
	_, _ = w.Write(p.text) // the client is gone
}
