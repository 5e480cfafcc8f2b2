package web

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// Config configures the pages.
type Config struct {
	// Store is what pages read. Required.
	Store store.Reader

	// Actor does what people decide. Required.
	Actor api.Actor

	// Clock is the one by which the Actor dates what people decide: that of the database, where several hosts share one. If nil, time.Now.
	Clock func() time.Time

	// Feed says when to read again. If nil, pages do not change until they are
	// loaded again.
	Feed Feed

	// Connections are shown with their tools. Their reads are called only when
	// a person presses a test button.
	Connections []connector.Connection

	// Hosts knows the processes that share the store. If nil, there is one.
	Hosts store.Leaser

	// Executors knows who executes workflows. If nil, nobody does.
	Executors view.Executors

	// Hooks lists the hooks with what came to them. If nil, there are none.
	Hooks func(ctx context.Context) ([]api.Hook, error)

	// Budgets returns the budgets that are configured. If nil, there are none.
	Budgets func() []budget.Rule

	// Accounts are the accounts of services. If nil, there are none.
	Accounts api.Accounts

	// Replayer goes through runs again. If nil, the pages offer none of that.
	Replayer api.Replayer

	// Deployer takes new versions. If nil, the pages say what to do instead.
	Deployer Deployer

	// Planner plans scripts. If nil, the pages offer no plans.
	Planner Planner

	// Connector connects accounts. If nil, nobody can connect one on the pages.
	Connector Connector

	// Secrets are the secrets of the database. If nil, nobody can set one on the pages.
	Secrets Secrets

	// Backups are copies of the database for admins. If nil, the pages offer none.
	Backups Backups

	// URL is where browsers find the pages, such as https://keep.example.com. If empty, it
	// is seen by how they come.
	URL string

	// Keys are the idempotency keys of HTTP requests. If nil, their page says
	// that there are none.
	Keys Keys

	// Settings says what became of keep.toml. If nil, nothing is said of it.
	Settings func() *api.Settings

	// Refusal says since when the store takes no commits, nil if it takes them. If nil, nothing is said of it.
	Refusal func() *api.Refusal

	// Access keeps the tokens and sessions that admins see. If nil, logging in is
	// not this host's, and there is nothing to see.
	Access store.Access

	// Policy is shown as the policy in force. If nil, policy.Default().
	Policy *policy.Policy

	// Version is the version of Keep that pages name. If empty, "devel".
	Version string

	// Logger receives failures that only an operator can fix. If nil,
	// slog.Default().
	Logger *slog.Logger
}

// site is everything that handlers share. It does not change after New.
type site struct {
	cfg    Config
	policy policy.Policy
	log    *slog.Logger
}

// New returns the handler of all pages and of the files below /static/. It starts
// nothing. Requests must carry an access.Identity (see package access); one without
// may read nothing.
func New(cfg Config) (http.Handler, error) {
	switch {
	case cfg.Store == nil:
		return nil, fmt.Errorf("web: a Store is required")
	case cfg.Actor == nil:
		return nil, fmt.Errorf("web: an Actor is required")
	}
	s := &site{cfg: cfg, policy: policy.Default(), log: cmp.Or(cfg.Logger, slog.Default())}
	if cfg.Policy != nil {
		s.policy = *cfg.Policy
	}
	s.cfg.Version = cmp.Or(cfg.Version, "devel")
	if cfg.Clock == nil {
		s.cfg.Clock = time.Now
	}
	return s.handler(), nil
}

// handler routes requests. A pattern names what it shows.
func (s *site) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /static/", files())
	mux.HandleFunc("GET /live", s.allow(access.Viewer, s.live))
	mux.HandleFunc("GET /find", s.allow(access.Viewer, s.find))
	s.work(mux)
	s.surroundings(mux)
	mux.HandleFunc("/", s.allow(access.Viewer, s.notFound))
	return secure(mux)
}

// work routes the pages about what workflows do.
//
// The least role of a route is said here: show is for viewers, or for operators if it is a POST; do is for
// operators. What an answer needs beyond it, mayAnswer and withLimit know. A preview that tells what an
// action would send again needs the role of the action.
func (s *site) work(mux *http.ServeMux) {
	s.show(mux, "GET /{$}", "home", s.home)
	s.show(mux, "GET /inputs", "inputs", s.inputs)
	s.show(mux, "GET /inputs/{id}", "input", s.input)
	s.do(mux, "POST /inputs/{id}/skip", s.skipInput)
	s.do(mux, "POST /inputs/{id}/unskip", s.unskipInput)
	s.show(mux, "GET /skip-inputs", "bulk", s.bulkPreview)
	s.show(mux, "POST /skip-inputs", "bulk", s.bulkSkip)

	s.show(mux, "GET /inbox", "inbox", s.inbox)
	s.show(mux, "GET /inbox/{id}", "question", s.question)
	s.doUpTo(mux, access.Operator, access.MaxBody, "POST /inbox/{id}", s.decide)
	mux.HandleFunc("GET /decide/{id}", s.byLink(s.linkShow))
	mux.HandleFunc("POST /decide/{id}", s.byLink(s.linkDecide))
	s.showTo(mux, access.Operator, "GET /inbox/together", "together", s.together)
	s.do(mux, "POST /inbox/together", s.decideTogether)
	s.showTo(mux, access.Operator, "GET /inbox/together/confirm", "confirm_together", s.confirmTogether)
	s.file(mux, "GET /inbox/{id}/attempted", s.attemptedFile)
	s.showTo(mux, access.Operator, "GET /inbox/{id}/confirm", "confirm", s.confirm)

	s.show(mux, "GET /runs", "runs", s.runs)
	s.show(mux, "GET /runs/{id}", "run", s.run)
	s.showUpTo(mux, access.Author, access.MaxBody, "POST /runs/{id}/replay", "replay", s.replay)
	s.file(mux, "GET /runs/{id}/prepared", s.preparedFile)

	s.show(mux, "GET /workflows", "workflows", s.workflows)
	s.show(mux, "GET /workflows/{name}", "workflow", s.workflow)
	s.show(mux, "GET /workflows/{name}/versions/{version}", "version", s.version)
	s.showUpTo(mux, access.Author, access.MaxBody, "POST /workflows/{name}/compare", "compare", s.compare)
	s.showTo(mux, access.Author, "GET /workflows/{name}/deploy", "deploy", s.deployForm)
	s.showTo(mux, access.Author, "GET /deploy", "deploy", s.deployForm)
	for _, pattern := range []string{"POST /workflows/{name}/deploy", "POST /deploy"} {
		mux.HandleFunc(pattern, s.allow(access.Author, s.takeScript))
	}
	s.showTo(mux, access.Author, "POST /workflows/{name}/plan", "plan", s.plan)
	s.show(mux, "GET /proposals", "proposals", s.proposals)
	s.show(mux, "GET /proposals/{id}", "proposal", s.showProposal)
	s.do(mux, "POST /workflows/{name}/pause", s.pause)
	s.do(mux, "POST /workflows/{name}/resume", s.resume)
	s.do(mux, "POST /workflows/{name}/run", s.trigger)
	s.show(mux, "GET /workflows/{name}/checkpoint", "checkpoint", s.checkpoint)
	s.do(mux, "POST /workflows/{name}/checkpoint", s.resetCheckpoint)
	s.doUpTo(mux, access.Admin, access.MaxBody, "POST /workflows/{name}/checkpoint/values", s.setCheckpoint)

	s.show(mux, "GET /events", "events", s.events)
	s.show(mux, "GET /event", "event", s.event)
	s.do(mux, "POST /event/skip", s.skipEvent)
	s.do(mux, "POST /event/unskip", s.unskipEvent)
	s.showTo(mux, access.Operator, "GET /redo", "redo", s.redo)
	s.do(mux, "POST /redo", s.doRedo)
	s.do(mux, "POST /runs/{id}", s.doRun)
	s.file(mux, "GET /event/payload", s.eventFile)

	s.show(mux, "GET /items", "items", s.items)
	s.show(mux, "GET /item", "item", s.item)
	s.do(mux, "POST /item", s.decideItem)
	s.showTo(mux, access.Operator, "GET /item/confirm", "confirm_item", s.confirmItem)

	s.show(mux, "GET /mutations", "mutations", s.mutations)
	s.file(mux, "GET /mutations.csv", s.exportCSV)
	s.file(mux, "GET /mutations.json", s.exportJSON)
	s.show(mux, "GET /mutations/{key}", "mutation", s.mutation)
	s.file(mux, "GET /mutations/{key}/payload", s.payloadFile)
	s.file(mux, "GET /mutations/{key}/result", s.resultFile)
}

// surroundings routes the pages about services, deliveries, keys and who has access.
//
// Connecting and the backup are handlers of their own, since they answer with a page, a redirect or a file.
func (s *site) surroundings(mux *http.ServeMux) {
	s.show(mux, "GET /connections", "connections", s.connections)
	s.show(mux, "POST /connections/{name}/{tool}/test", "tested", s.testTool)

	s.show(mux, "GET /hooks", "hooks", s.hooks)
	s.show(mux, "GET /budgets", "budgets", s.budgets)

	s.show(mux, "GET /accounts", "accounts", s.accounts)
	s.show(mux, "GET /accounts/{name}", "account", s.account)
	s.doAs(mux, access.Admin, "POST /accounts/{name}/{verb}", s.doAccount)

	s.showTo(mux, access.Admin, "GET /connect", "connect", s.connectList)
	s.showTo(mux, access.Admin, "GET /connect/{pack}", "connect_form", s.connectForm)
	mux.HandleFunc("POST /connect/{pack}", s.allow(access.Admin, func(w http.ResponseWriter, r *http.Request) {
		limitBody(w, r)
		if err := s.connect(w, r); err != nil {
			s.fail(w, r, err)
		}
	}))
	s.doAs(mux, access.Admin, "GET /callback", s.finish)

	s.showTo(mux, access.Admin, "GET /secrets", "secrets", s.secrets)
	s.showTo(mux, access.Admin, "GET /secrets/{name}", "secret", s.secret)
	s.doAs(mux, access.Admin, "POST /secrets", s.setSecret)
	s.doAs(mux, access.Admin, "POST /secrets/{name}/remove", s.removeSecret)

	s.show(mux, "GET /keys", "keys", s.keys)
	s.show(mux, "GET /keys/{ref}", "key", s.key)
	s.do(mux, "POST /keys/{ref}", s.decideKey)
	s.showTo(mux, access.Operator, "GET /keys/{ref}/confirm", "confirm_key", s.confirmKey)

	s.show(mux, "GET /settings", "settings", s.settings)
	s.showTo(mux, access.Admin, "GET /audit", "audit", s.audit)
	s.showTo(mux, access.Admin, "POST /settings/tokens", "token", s.issueToken)
	s.doAs(mux, access.Admin, "POST /settings/credentials/{id}/revoke", s.revoke)
	mux.HandleFunc("POST /settings/backup", s.allow(access.Admin, func(w http.ResponseWriter, r *http.Request) {
		if err := s.backup(w, r); err != nil {
			s.fail(w, r, err)
		}
	}))
}

// secure adds the headers that keep pages to themselves. There is no inline script
// or style in them, so the policy of content security needs no exception.
func secure(next http.Handler) http.Handler {
	const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}
