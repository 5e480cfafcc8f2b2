package prove

import (
	"fmt"
	"html/template"
	"io"
	"sync"
)

// page is the report for people. It holds all it needs.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"ms": milliseconds}).Parse(pageText))
})

const pageText = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>What {{.Connection}} was proved to do</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem } th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
code { font-size: .9em; overflow-wrap: anywhere } .low { color: #a00; font-weight: 600 } .ok { color: #060; font-weight: 600 }
</style>
<h1>{{.Connection}}</h1>
<p>{{with .Pack}}Pack {{.Name}} {{.Version}} (<code>{{.Hash}}</code>). {{end}}Tried on {{.When}} UTC with {{.Spent}} calls of at most {{.Budget}}.
{{if .Stopped}}<span class="low">It was stopped before the end.</span>{{end}}</p>
<table><tr><th>Tool<th>Configured<th>Shown<th>Calls<th>Found<th>Visible after, p50<th>p99</tr>
{{range .Tools}}<tr><td>{{.Tool}}<td>{{.Level}}<td class="{{if gt .Grade .Level}}low{{else}}ok{{end}}">{{.Grade}}<td>{{.Calls}}<td>{{.Found}}<td>{{ms .VisibleP50}}<td>{{ms .VisibleP99}}</tr>
{{end}}</table>
{{range .Tools}}<h2>{{.Tool}}</h2>
{{with .Repeat}}<p>A repeat of the same call was {{.}}.</p>{{end}}
{{with .Faults}}<p class="low">What speaks against the level:</p><ul>{{range .}}<li>{{.}}{{end}}</ul>{{end}}
{{with .Advice}}<p>What to write:</p><ul>{{range .}}<li><code>{{.}}</code>{{end}}</ul>{{end}}
{{with .Made}}<p>What was made, to be removed. Where an answer was lost, or an error, it may not be there:</p>
<table><tr><th>Trial<th>Target<th>Effects<th>Token<th>Params<th>Error</tr>
{{range .}}<tr><td>{{.What}}<td>{{.Target}}<td>{{with .Effects}}{{.}}{{else}}–{{end}}<td><code>{{.Token}}</code><td><code>{{printf "%s" .Params}}</code><td>{{.Error}}</tr>
{{end}}</table>{{end}}
{{end}}</html>
`

// milliseconds writes a time that may not be known.
func milliseconds(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f ms", *ms)
}

// Page writes the report for people.
func (r Report) Page(w io.Writer) error { return page().Execute(w, r) }
