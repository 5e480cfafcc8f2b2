package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// A server makes the schemas of an operation when it is first asked for: a command has one for
// one request.
func TestSchemasOfWhatIsAskedFor(t *testing.T) {
	store := memory.New()
	op, err := operator.New(store, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: store, Actor: op, Changes: feed.New(1)})
	if err != nil {
		t.Fatal(err)
	}
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
