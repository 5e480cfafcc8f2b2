package mcp

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"

	"github.com/keep-run/keep/api"
)

// passed are the requests of an agent that are passed on, besides reads. A deploy is one
// that waits for a person: propose makes no other. A comparison of versions only reads.
var passed = sync.OnceValue(func() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		http.MethodPost: regexp.MustCompile(`^` + api.Prefix + `/workflows/[^/]+/(pause|compare)$`),
		http.MethodPut:  regexp.MustCompile(`^` + api.Prefix + `/workflows/[^/]+/proposal$`),
	}
})

// hidden are reads that are not an agent's.
var hidden = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^` + api.Prefix + `/(tokens|accounts|secrets|links)(/|$)`)
})

// A gate passes an agent's requests on, and refuses what decides.
type gate struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.EscapedPath()
	reads := r.Method == http.MethodGet && !hidden().MatchString(path)
	if re := passed()[r.Method]; !reads && (re == nil || !re.MatchString(path)) {
		return nil, fmt.Errorf("%s %s is not for agents: a person decides", r.Method, path)
	}
	return g.next.RoundTrip(r)
}
