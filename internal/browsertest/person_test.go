package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/keep-run/keep/internal/browsertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browsertest.Stop()
	os.Exit(code)
}

// A page opens also while the answer to a form is loaded, whatever the browser makes of the two.
func TestOpenAfterAForm(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /form", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<form method=post action="/form"><button>Send</button></form>`)
	})
	mux.HandleFunc("POST /form", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/form", http.StatusSeeOther) })
	mux.HandleFunc("GET /other", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "the other page")
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	p := browsertest.Sit(t)
	for range 20 {
		p.Open(site.URL + "/form")
		p.Click("button")
		p.Open(site.URL + "/other")
		if got := p.Script("document.body.innerText"); got != "the other page" {
			t.Fatalf("the page is %q", got)
		}
	}
}
