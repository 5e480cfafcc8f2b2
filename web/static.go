package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// static serves the files of the directory static. Pages name each with a hash of
// its content, so that a browser keeps it for good.
type static struct {
	files  http.Handler
	hashes map[string]string // by name
}

// files are those of this program, which are looked through once.
var files = sync.OnceValue(func() *static {
	s, err := newStatic()
	if err != nil {
		panic(err) // they are in the executable
	}
	return s
})

func newStatic() (*static, error) {
	sub, err := fs.Sub(staticFiles, "static")
	if err != nil {
		return nil, err
	}
	s := &static{files: http.FileServerFS(sub), hashes: make(map[string]string)}
	entries, err := fs.ReadDir(sub, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		content, err := fs.ReadFile(sub, e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		s.hashes[e.Name()] = hex.EncodeToString(sum[:6])
	}
	return s, nil
}

// link returns the URL of a file; a name that is not there is a broken template.
func (s *static) link(name string) (string, error) {
	hash, ok := s.hashes[name]
	if !ok {
		return "", fmt.Errorf("no static file %q", name)
	}
	return "/static/" + name + "?v=" + hash, nil
}

// ServeHTTP serves the files of the pages.
func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Only files that newStatic saw: a file server would list the directory, too.
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	hash, ok := s.hashes[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// With another hash it is a page of the version before or after this one, which must not keep what
	// is not its own.
	if r.URL.Query().Get("v") == hash {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		w.Header().Set("Cache-Control", "no-cache")
	}
	http.StripPrefix("/static", s.files).ServeHTTP(w, r)
}
