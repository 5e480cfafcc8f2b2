package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"

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

// mayBeNull are the properties that hold an object or null: what is absent is
// null, and a reference alone doesn't say so.
var mayBeNull = map[string]bool{"error": true, "trigger": true, "schedule": true, "decision": true, "wait": true}

// nullable marks the properties of a schema that may be null.
func nullable(schema *huma.Schema) {
	for name, p := range schema.Properties {
		if p.Ref != "" && mayBeNull[name] {
			schema.Properties[name] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
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
