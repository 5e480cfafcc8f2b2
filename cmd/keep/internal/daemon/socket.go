package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
)

// IdentityPath is where the socket, and nothing else, tells whose it is.
const IdentityPath = "/daemon"

// An Identity is what a daemon tells of itself.
type Identity struct {
	Version string `json:"version"`
	DB      string `json:"db"` // its path, or its URL without a password
	PID     int    `json:"pid"`

	// Gateway says that it is a keep gateway: commands do not go through it.
	Gateway bool `json:"gateway,omitempty"`
}

// SocketOf returns the socket of a database: that of the configuration, else one
// beside the file; empty: it can have none.
func SocketOf(cfg *config.Config) string {
	switch {
	case runtime.GOOS == "windows":
		return ""
	case cfg.Server.Socket != "":
		return cfg.Server.Socket
	case cfg.DB == "" || database.IsPostgres(cfg.DB):
		return ""
	}
	file := cfg.DB
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real // whatever name it is known by
	}
	return file + ".sock"
}

// withOwner adds to what the socket offers what only the owner of the database is
// told: whose socket it is, and links to log in, since only this process knows on
// which address it is.
func (s *Server) withOwner(db string, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+IdentityPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Identity{Version: buildinfo.Read().Version, DB: db, PID: os.Getpid()}) // the client is gone
	})
	mux.HandleFunc("POST "+LinkPath, func(w http.ResponseWriter, r *http.Request) {
		if s.hidden {
			http.Error(w, "it serves no pages; start it with another address than --listen off, or set server.url to where they are", http.StatusConflict)
			return
		}
		link, err := access.LoginURL(r.Context(), s.store, s.base, User(), time.Now())
		if err != nil {
			s.env.Log.ErrorContext(r.Context(), "make a link to log in", "err", err)
			http.Error(w, "the database cannot be used now", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, link)
	})
	if s.hub != nil {
		mux.Handle("GET "+GatewayPath, s.hub)
	}
	mux.Handle("/", next)
	return mux
}
