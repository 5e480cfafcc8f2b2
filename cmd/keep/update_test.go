package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestUpdate(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
	}{
		"/newest": {200, `{"tag_name": "v1.10.0", "html_url": "https://example.com/v1.10.0"}`},
		"/down":   {503, "try later"},
		"/html":   {200, "<html>"},
		"/hidden": {200, `{"tag_name": "v1.10.0", "html_url": "https://example.com/\u009b2J\u202e"}`},
		"/odd":    {200, `{"tag_name": "newest"}`},
		"/long":   {200, `{"tag_name": "v1.10.0", "body": "` + strings.Repeat("x", releaseLimit) + `"}`},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answers[r.URL.Path]
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body)) // the client stops at its limit
	}))
	defer srv.Close()
	for _, c := range []struct{ path, have, want string }{
		{"/newest", "v1.9.0", "v1.10.0 is there, and this is v1.9.0"},
		{"/newest", "v1.10.0", "This is v1.10.0, and the newest release is v1.10.0."},
		{"/newest", "v1.11.0-rc.1", "This is v1.11.0-rc.1"},
		{"/newest", "(devel)", "nothing was compared"},
		{"/hidden", "v1.9.0", `https://example.com/\u009b2J\u202e`},
		{"/down", "v1.9.0", "503"},
		{"/html", "v1.9.0", "without a version"},
		{"/odd", "v1.9.0", "without a version"},
		{"/long", "v1.9.0", "without a version"},
	} {
		var out bytes.Buffer
		err := newApp(&out, &out).checkUpdate(t.Context(), srv.URL+c.path, c.have)
		said := out.String()
		if err != nil {
			said += err.Error()
		}
		if !strings.Contains(said, c.want) || strings.ContainsAny(said, "\u009b\u202e") || (err == nil) != (c.path == "/newest" || c.path == "/hidden") {
			t.Errorf("%s with %s: %q %v, want %q", c.path, c.have, said, err, c.want)
		}
	}
	out, status := keepAt(t, t.TempDir(), "update", "--check", "--json", "--from", srv.URL+"/newest")
	var got release
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || got.Newest != "v1.10.0" || got.URL == "" {
		t.Errorf("keep update --check --json: %d %s", status, out)
	}
	if out, status := keepAt(t, t.TempDir(), "update"); status != 2 {
		t.Errorf("keep update: %d %s", status, out)
	}
}
