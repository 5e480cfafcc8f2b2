package plan

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"sync"
)

//go:embed plan.html
var pageText string

var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("plan").Funcs(template.FuncMap{"json": indented}).Parse(pageText))
})

// WriteHTML writes the plan as one page that needs nothing else.
func (p *Plan) WriteHTML(w io.Writer) error { return page().Execute(w, p) }

// indented returns JSON for people; null for none.
func indented(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	out, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(out)
}
