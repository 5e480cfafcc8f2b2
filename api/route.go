package api

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// A route is one operation. Its schemas are made when it is first asked for: most servers are those of
// a command, which makes one request, and the schemas of all operations take longer than all else it does.
type route struct {
	pattern string
	put     func(huma.API)
	handler func() http.HandlerFunc
}

func (r *route) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.handler()(w, req) }

// describe says what an operation answers with, by status, where its type does not.
type describe func(schemas huma.Registry) map[string]*huma.Response

// register adds an operation.
func register[I, O any](s *Server, op huma.Operation, f func(context.Context, *I) (*O, error), answers ...describe) {
	r := &route{pattern: op.Method + " " + op.Path}
	r.put = func(api huma.API) { // again for the document: nothing is shared
		op := op
		op.Parameters, op.Errors = slices.Clone(op.Parameters), slices.Clone(op.Errors)
		op.Responses = nil // huma writes to it: what describe returns is of this document alone
		for _, d := range answers {
			op.Responses = d(api.OpenAPI().Components.Schemas)
		}
		huma.Register(api, op, f)
	}
	r.handler = sync.OnceValue(func() http.HandlerFunc {
		var only one
		assemble(&only, s.cfg.Version, r)
		return only.handler
	})
	s.routes = append(s.routes, r)
}

// assemble puts routes on a mux.
func assemble(mux humago.Mux, version string, routes ...*route) *huma.OpenAPI {
	api := humago.New(mux, description(version))
	for _, r := range routes {
		r.put(api)
	}
	schemas := api.OpenAPI().Components.Schemas
	for name, schema := range schemas.Map() {
		nullable(schema, schemas.TypeFromRef("#/components/schemas/"+name))
	}
	if detail := schemas.Map()["ErrorDetail"]; detail != nil {
		delete(detail.Properties, "value") // which typed takes away
	}
	return api.OpenAPI()
}

// whole describes all operations.
func (s *Server) whole() *huma.OpenAPI {
	return assemble(http.NewServeMux(), s.cfg.Version, s.routes...)
}

// one is a mux of one handler, for whom the mux of the server has found it.
type one struct{ handler http.HandlerFunc }

func (o *one) HandleFunc(_ string, f func(http.ResponseWriter, *http.Request)) { o.handler = f }

func (o *one) ServeHTTP(w http.ResponseWriter, r *http.Request) { o.handler(w, r) }
