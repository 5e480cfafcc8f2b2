package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// keep doctor --compact compacts the database whose records it has checked, also if keep.toml names another one by then.
func TestCompactIsOfWhatWasChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	at, err := url.Parse(newShelf(t, makes{}).url)
	noError(t, err)
	through := httputil.NewSingleHostReverseProxy(at)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		put(t, ".", "keep.toml", "db = \"other.db\"\n")
		through.ServeHTTP(w, r)
	}))
	defer server.Close()
	put(t, ".", "keep.toml", "db = \"checked.db\"\n[gateway.servers.shelf]\nurl = \""+server.URL+"\"\n")
	if out, talk, status := runCommand(t, "db", "migrate"); status != exit.Done {
		t.Fatal(out, talk)
	}
	if out, talk, status := runCommand(t, "doctor", "--servers", "--compact"); status != exit.Done {
		t.Errorf("status %d\n%s%s", status, out, talk)
	}
}
