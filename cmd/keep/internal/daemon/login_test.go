package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/store/memory"
)

// A host makes no link to pages that nobody serves.
func TestNoLinkWithoutPages(t *testing.T) {
	for _, tt := range []struct {
		cfg    config.Server
		status int
		says   string
	}{
		{config.Server{Listen: "off"}, http.StatusConflict, "--listen"},
		{config.Server{Listen: "off", URL: "https://keep.example.com"}, http.StatusOK, "https://keep.example.com/login?"},
		{config.Server{Listen: "127.0.0.1:0"}, http.StatusOK, "http://127.0.0.1:"},
	} {
		s := &Server{env: Env{Log: slog.New(slog.DiscardHandler)}, store: memory.New()}
		if err := s.listen(t.Context(), tt.cfg); err != nil {
			t.Fatal(err)
		}
		if s.listener != nil {
			defer s.listener.Close()
		}
		w := httptest.NewRecorder()
		s.withOwner("db", http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, LinkPath, nil))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%+v: %d %q, want %d with %q", tt.cfg, w.Code, w.Body, tt.status, tt.says)
		}
	}
}
