package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// emptyServer returns a server over a store that holds nothing.
func emptyServer(t *testing.T) *Server {
	t.Helper()
	store := memory.New()
	op, err := operator.New(store, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: store, Actor: op, Changes: feed.New(1)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A server makes the schemas of an operation when it is first asked for: a command has one for
// one request.
func TestSchemasOfWhatIsAskedFor(t *testing.T) {
	s := emptyServer(t)
	var made []string
	for _, r := range s.routes {
		put := r.put
		r.put = func(api huma.API) { made = append(made, r.pattern); put(api) }
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, Prefix+"/whoami", nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Identity{Name: "ann", Role: access.Viewer})))
		if w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	if want := []string{"GET " + Prefix + "/whoami"}; !slices.Equal(made, want) {
		t.Errorf("schemas were made for %v, want %v", made, want)
	}
}

// The document, the page about it and a first request may make one operation at the same time: huma writes to the responses
// of an operation, so none are shared.
func TestOperationsShareNoResponses(t *testing.T) {
	s := emptyServer(t)
	var ready, done sync.WaitGroup
	ready.Add(3)
	docs := make([]*huma.OpenAPI, 2)
	begin := func(f func()) { done.Go(func() { ready.Done(); ready.Wait(); f() }) }
	for i := range docs {
		begin(func() { docs[i] = s.whole() })
	}
	begin(func() {
		r := httptest.NewRequest(http.MethodPost, Prefix+"/workflows/w/topics/t/events", nil)
		s.ServeHTTP(httptest.NewRecorder(), r.WithContext(access.With(r.Context(), access.Identity{Name: "ann", Role: access.Operator})))
	})
	done.Wait()
	for path, item := range docs[0].Paths {
		other := docs[1].Paths[path]
		for method, ops := range map[string][2]*huma.Operation{
			http.MethodGet: {item.Get, other.Get}, http.MethodPost: {item.Post, other.Post}, http.MethodPut: {item.Put, other.Put},
			http.MethodPatch: {item.Patch, other.Patch}, http.MethodDelete: {item.Delete, other.Delete},
		} {
			if ops[0] == nil {
				continue
			}
			for status, response := range ops[0].Responses {
				if ops[1].Responses[status] == response {
					t.Errorf("%s %s: 2 documents share the response %s", method, path, status)
				}
			}
		}
	}
}
