package plan

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
)

//go:embed plan.html
var pageText string

var page = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// WriteHTML writes the plan as one page that needs nothing else.
func (p *Plan) WriteHTML(w io.Writer) error {
	return page().Execute(w, p.shown(math.MaxInt, math.MaxInt))
}

// WritePart writes the plan as a part of a page that brings its own style: at most so many rows of
// each list, and so many bytes of each value.
func (p *Plan) WritePart(w io.Writer, rows, bytes int) error {
	return page().ExecuteTemplate(w, "plan", p.shown(rows, bytes))
}

// A shown plan is one with what a page has of it.
type shown struct {
	*Plan
	Mutations []Mutation
	Publishes []Publish
	Reads     []Read
	Unknown   []string
	Errors    []Error

	bytes int // of a value
}

func (p *Plan) shown(rows, bytes int) shown {
	return shown{p, first(rows, p.Mutations), first(rows, p.Publishes), first(rows, p.Reads), first(rows, p.Unknown), first(rows, p.Errors), bytes}
}

func first[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// More is how many of a list are not shown.
func (s shown) More(some, all any) int {
	return reflect.ValueOf(all).Len() - reflect.ValueOf(some).Len()
}

// JSON returns a value for people; null for none.
func (s shown) JSON(raw json.RawMessage) string {
	out := indented(raw)
	if len(out) > s.bytes {
		out = strings.ToValidUTF8(out[:s.bytes], "") + "…"
	}
	return out
}

// indented returns JSON on lines; null for none.
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
