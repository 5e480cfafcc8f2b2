package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
)

// AgentPath is where agents speak the Model Context Protocol.
const AgentPath = "/mcp"

// maxAgentRequest bounds a request of an agent, in bytes (law: bounded).
const maxAgentRequest = 4 << 20

// What bounds the scripts that agents try on a host, besides plans (law: bounded): its runs wait for the same sandbox.
const (
	maxTrials = 2
	trialTime = time.Minute
)

// agents answers agents. Each request is one of a token, whose role says what it may do;
// the API, which answers what the agent's tools ask, sees that role as well. Plans are made as those
// of the pages: an agent learns nothing by them that the workflow may not read.
func (s *Server) agents(v *Session, answers http.Handler, plans *ScriptPlanner) http.Handler {
	conns := v.conns // of the configuration that is offered now
	open := func(context.Context, bool) (mcp.Bench, error) {
		cfg := v.config()
		return mcp.Bench{Connections: conns, Runtime: v.Runtime, Policy: &cfg.Policy, Base: v.DB, Make: plans.PlanLoaded}, nil
	}
	// Each request has a server of its own, for the role of its token; the schemas are made once.
	known := sdk.NewSchemaCache()
	handler := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		id, _ := access.From(r.Context())
		// What is more than author is author: an agent gives no grants and makes no tokens, whatever its token may do.
		if id.Role.Covers(access.Author) {
			id.Role = access.Author
		}
		// Whoever reads later who did it sees that it was not the person himself.
		id.Name += " by an agent"
		call := func(ctx context.Context, f func(*api.Client) error) error {
			return f(&api.Client{Transport: InProcess{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answers.ServeHTTP(w, r.WithContext(access.With(r.Context(), id)))
			})}})
		}
		return mcp.New(mcp.Config{Role: id.Role, Call: call, Deploy: call, Open: open, Version: buildinfo.Read().Version, Logger: s.env.Log, Schemas: known, Places: s.trials, Time: trialTime})
	}, &sdk.StreamableHTTPOptions{
		// The guard knows by which names this server may be called, also behind a proxy.
		Stateless: true, JSONResponse: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxAgentRequest, Logger: s.env.Log,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := access.From(r.Context())
		switch {
		case id.Via != access.ViaToken: // a browser's session would let its pages ask
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuseAgent(w, http.StatusUnauthorized, "an agent shows a token in Authorization: Bearer …; keep token add --role author makes one")
		case !ownOrigin(r):
			refuseAgent(w, http.StatusForbidden, "the request comes from a page of another site")
		default:
			handler.ServeHTTP(w, r)
		}
	})
}

// ownOrigin reports whether a request comes from no page, or from one of this server.
func ownOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// refuseAgent answers with a problem, as the API does: agents read JSON, and no page.
func refuseAgent(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"title":%q,"status":%d,"detail":%q}`+"\n", http.StatusText(status), status, detail)
}
