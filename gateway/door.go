package gateway

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Who may speak to a gateway by HTTP.

// knownHost reports whether a request may name the gateway so.
func (h *HTTPHandler) knownHost(host string) bool {
	if len(h.hosts) > 0 {
		return slices.ContainsFunc(h.hosts, func(known string) bool { return strings.EqualFold(known, host) })
	}
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// CheckOrigin returns why a text is no origin as browsers say it; nil: it is one.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || origin != u.Scheme+"://"+u.Host {
		return fmt.Errorf("%.100q is no origin: want a scheme and a host, such as https://app.example.com", origin)
	}
	return nil
}

// knownOrigin reports whether a request comes from no page, from one of the gateway's hosts, or from one
// that is let in.
func (h *HTTPHandler) knownOrigin(origins []string) bool {
	if len(origins) == 0 {
		return true
	}
	return len(origins) == 1 && CheckOrigin(origins[0]) == nil && (h.letIn(origins[0]) || h.knownHost(origins[0][strings.Index(origins[0], "//")+2:]))
}

// letIn reports whether an origin is one of those that the owner lists.
func (h *HTTPHandler) letIn(origin string) bool {
	return slices.ContainsFunc(h.pages, func(known string) bool { return strings.EqualFold(known, origin) })
}

// share tells the browser of a page that is let in that the page may read answers. It reports whether the
// request was that question alone, which has no token.
func (h *HTTPHandler) share(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if origin == "" || !h.letIn(origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", headerSession)
	w.Header().Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	w.WriteHeader(http.StatusNoContent)
	return true
}

// agent returns whose token a request has; empty: of no agent.
func (h *HTTPHandler) agent(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil
	}
	name := h.names[sha256.Sum256([]byte(token))]
	if name == "" && h.other != nil {
		return h.other(r.Context(), token)
	}
	return name, nil
}
