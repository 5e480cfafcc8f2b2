package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// typeOf returns the type T.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// document returns the OpenAPI document, as the repository has it.
func (s *Server) document() ([]byte, error) {
	text, err := json.Marshal(s.whole())
	if err != nil {
		return nil, err
	}
	var doc bytes.Buffer
	if err := json.Indent(&doc, text, "", "  "); err != nil {
		return nil, err
	}
	doc.WriteByte('\n')
	return doc.Bytes(), nil
}

// nullable marks the properties of the schema of a type that may be null: what is absent is null, of pointers that are not
// left out. A reference, a list of values or an object alone do not say so.
func nullable(schema *huma.Schema, of reflect.Type) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := schema.Properties[name]
		if p == nil || f.Type.Kind() != reflect.Pointer || strings.Contains(options, "omit") {
			continue
		}
		switch {
		case p.Ref != "":
			schema.Properties[name] = &huma.Schema{Description: p.Description, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
		case len(p.Enum) > 0:
			p.Nullable, p.Enum = true, append(slices.Clip(p.Enum), nil)
		default:
			p.Nullable = true
		}
	}
}

// serveDocument answers with the OpenAPI document.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request) {
	doc, err := s.doc()
	if err != nil {
		writeProblem(w, s.problem(r.Context(), err))
		return
	}
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
	_, _ = w.Write(doc) // the client is gone
}

// serveDocs answers with the documentation for people.
func (s *Server) serveDocs(w http.ResponseWriter, r *http.Request) {
	docs, err := s.docs()
	if err != nil {
		writeProblem(w, s.problem(r.Context(), err))
		return
	}
	docs.ServeHTTP(w, r)
}
