package access

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/link"
)

// maxLinkForm bounds what a press sends: a code, an action and a note, of which a character may take 12 bytes.
const maxLinkForm = 64 << 10

// byLink authenticates by the code of a link, and by nothing else: whoever is logged in
// decides as himself on the other pages. The identity has no role, so it covers no other
// page, and its ID is that of the question. Who has no right code comes without an identity,
// and counts against his address.
//
// A code is taken from the address to look, and from the body to decide: who follows a link
// decides nothing.
func (g *Guard) byLink(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLinkForm)
	var code string
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		code = r.URL.Query().Get("code")
	case http.MethodPost:
		if err := r.ParseForm(); err != nil {
			refuse(w, http.StatusBadRequest, "the form cannot be read")
			return
		}
		code = r.PostForm.Get("code")
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		refuse(w, http.StatusMethodNotAllowed, "look with GET, decide with POST")
		return
	}
	now := time.Now()
	id := strings.TrimPrefix(r.URL.Path, link.Prefix)
	holder, err := g.cfg.Links.Holder(r.Context(), keep.EscalationID(id), code)
	switch {
	case err == nil:
		next.ServeHTTP(w, r.WithContext(With(r.Context(), Identity{Name: holder, Via: ViaLink, ID: id})))
	case !errors.Is(err, keep.ErrNotFound):
		g.log.ErrorContext(r.Context(), "look up a link", "err", err)
		refuse(w, http.StatusServiceUnavailable, "the database cannot be read now")
	case !g.tries.allows(r.RemoteAddr, now):
		tooMany(w)
	default:
		g.tries.failed(r.RemoteAddr, now)
		next.ServeHTTP(w, r.WithContext(With(r.Context(), Identity{Via: ViaLink})))
	}
}
