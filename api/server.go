package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// Prefix is where the API is.
const Prefix = "/api/v1"

// An Actor does what people decide; *operator.Operator and *host.Host are actors, and
// describe each method. It is composed of one interface for each noun, and is wide because
// the API offers every decision.
type Actor interface {
	Skipper
	ShownSkipper
	ItemActor
	ItemSkipper
	WorkflowActor
	Pauser
	GrantActor
	RunActor
	RedoActor

	Decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error
}

// A Skipper leaves inputs and events undone, and undoes that.
type Skipper interface {
	SkipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (operator.SkipResult, error)
	SkipInputsAsOf(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, at time.Time, d keep.Decision) (operator.InputsSkipped, error)
	SkipEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, d keep.Decision) (operator.SkipResult, error)
	UnskipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (operator.UnskipResult, error)
	UnskipEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, d keep.Decision) (operator.UnskipResult, error)
}

// A ShownSkipper leaves inputs and events undone, and undoes that, as they were shown, or were at a time.
type ShownSkipper interface {
	SkipInputAsOf(ctx context.Context, w keep.WorkflowName, id keep.InputID, at time.Time, d keep.Decision) (operator.SkipResult, error)
	SkipShownInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, redone int, d keep.Decision) (operator.SkipResult, error)
	UnskipShownInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, redone int, d keep.Decision) (operator.UnskipResult, error)
	SkipEventAttempt(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, attempt int, d keep.Decision) (operator.SkipResult, error)
	UnskipEventAttempt(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, attempt int, d keep.Decision) (operator.UnskipResult, error)
}

// An ItemActor does what people decide about items.
type ItemActor interface {
	CanDoItem(it keep.Item, action keep.Action) error
	ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error
	ReprocessAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error
}

// An ItemSkipper leaves items, and takes them up again.
type ItemSkipper interface {
	SkipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error
	SkipAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error
	SkipShownItem(ctx context.Context, w keep.WorkflowName, id string, attempt int, question keep.EscalationID, d keep.Decision) error
	UnskipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error
	UnskipAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error
}

// A Pauser pauses workflows.
type Pauser interface {
	Pause(ctx context.Context, w keep.WorkflowName, d keep.Decision) error
	PauseRunning(ctx context.Context, w keep.WorkflowName, d keep.Decision) error
	Resume(ctx context.Context, w keep.WorkflowName, d keep.Decision) error
	ResumePaused(ctx context.Context, w keep.WorkflowName, note string, d keep.Decision) error
}

// A WorkflowActor does what people decide about workflows.
type WorkflowActor interface {
	Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, d keep.Decision) error
	ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, d keep.Decision) error
	SetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, key string, value json.RawMessage, d keep.Decision, preview bool) (operator.CheckpointChange, error)
	SetShownCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, key string, shown, value json.RawMessage, d keep.Decision) error
	Publish(ctx context.Context, p operator.Publication) (ev keep.Event, created bool, err error)
}

// A Deployer makes a script the current version of a workflow.
type Deployer interface {
	// Deploy checks the script, which must declare the workflow w, and makes it
	// current. A script that is wrong is a *ScriptError. Over, if it is not nil,
	// is the version that must be current until then (zero: none), or else the
	// error is *keep.VersionError; none if the script is current already, and nothing
	// remains to be given.
	//
	// What the script calls and the workflow was not granted is given if give is set, in
	// the name of by, or else the version waits for a person.
	Deploy(ctx context.Context, w keep.WorkflowName, s Script, over *keep.Version, by operator.Giver, give bool) (operator.Deployed, error)

	// Propose is Deploy of a version that waits for a person, whatever is granted. Over is p.Over.
	Propose(ctx context.Context, w keep.WorkflowName, p NewProposal, over *keep.Version, by operator.Giver) (operator.Deployed, error)
}

// Config configures a Server.
type Config struct {
	// Store is what is read. Required.
	Store store.Reader

	// Actor does what people decide. Required.
	Actor Actor

	// Deployer takes new versions. If nil, they are refused.
	Deployer Deployer

	// Replayer goes through runs again. If nil, that is refused.
	Replayer Replayer

	// Changes is what /events follows. Required.
	Changes *feed.Feed

	// Keys keep the answers of requests with an Idempotency-Key, and are what
	// /keys shows. If nil, the header is refused: it must not be ignored.
	Keys idempotency.Store

	// Access keeps tokens. If nil, there is nothing about tokens.
	Access store.Access

	// Hosts knows the processes that share the store. If nil, there is one, and
	// nothing is to be known about it.
	Hosts store.Leaser

	// Executors knows who executes workflows. If nil, nobody does.
	Executors view.Executors

	// Hooks lists the hooks with what came to them. If nil, there are none.
	Hooks func(ctx context.Context) ([]Hook, error)

	// Ungrantable says why a tool cannot be granted to a workflow so; empty: it can. If nil, all can.
	Ungrantable func(keep.GrantedTool) string

	// Budgets returns the budgets that are configured. If nil, there are none.
	Budgets func() []budget.Rule

	// Accounts knows the accounts of services. If nil, there are none.
	Accounts Accounts

	// Settings returns what became of the configuration. If nil, nothing is said of it.
	Settings func() *Settings

	// Refusal returns what the store answered to the last commit, nil if it was taken. If nil, nothing is said of it.
	Refusal func() *Refusal

	// Clock tells what is late, and when a token ends. It is the one by which the Actor dates what people decide: that of the
	// database, where several hosts share one. If nil, time.Now.
	Clock func() time.Time

	// Heartbeat is the time between two signs of life on /events. If zero, 15
	// seconds.
	Heartbeat time.Duration

	// Patience is how long a client of /events may take for what is sent to it.
	// One that does not read is cut off; it comes back with the last id that it
	// saw. If zero, 10 seconds.
	Patience time.Duration

	// Gather is the least time between two changes on /events; what comes in
	// between is sent together. If zero, 100 ms.
	Gather time.Duration

	// Version is the version of Keep that the document names. If empty, "devel".
	Version string

	// Logger receives what a person should hear of. If nil, slog.Default().
	Logger *slog.Logger
}

// A Server answers everything below Prefix. Requests must carry an
// access.Identity; see access.Guard. It is safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	routes  []*route
	keys    *idempotency.Guard // nil: none
	handler http.Handler
	docs    func() (*manual, error)
	doc     func() ([]byte, error) // the OpenAPI document
}

// New returns a server. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Actor == nil || cfg.Changes == nil {
		return nil, errors.New("api: Store, Actor and Changes are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	cfg.Gather = cmp.Or(cfg.Gather, 100*time.Millisecond)
	cfg.Version = cmp.Or(cfg.Version, "devel")
	if cfg.Budgets == nil {
		cfg.Budgets = func() []budget.Rule { return nil }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	mux := http.NewServeMux()
	s := &Server{cfg: cfg, log: cfg.Logger}
	s.reads()
	s.actions()
	s.streams()
	for _, r := range s.routes {
		mux.Handle(r.pattern, r)
	}
	// Most servers of a command are never asked for these, and making them takes
	// longer than all the rest.
	s.doc = sync.OnceValues(s.document)
	s.docs = sync.OnceValues(func() (*manual, error) { return newManual(s.whole()) })
	mux.HandleFunc("GET "+Prefix+"/openapi.json", s.serveDocument)
	mux.HandleFunc("GET "+Prefix+"/docs", s.serveDocs)
	mux.HandleFunc(Prefix+"/", otherwise(mux))
	var err error
	s.handler, err = s.guarded(mux)
	return s, err
}

// guarded puts idempotency keys in front of what changes something.
func (s *Server) guarded(next http.Handler) (http.Handler, error) {
	if s.cfg.Keys == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && (r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != "") {
				writeProblem(w, problemOf(http.StatusNotImplemented, KindUnsupported, "this server keeps no idempotency keys"))
				return
			}
			next.ServeHTTP(w, r)
		}), nil
	}
	var err error
	s.keys, err = idempotency.New(s.cfg.Keys, idempotency.Config{
		Host: ownHost, Logger: s.log, Lease: keyLease, Instance: Prefix + "/keys/", Rules: keyRules(),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.keys.Handler(next))
	mux.Handle("POST "+Prefix+replayPath, next)
	mux.Handle("POST "+Prefix+recordPath, next)
	mux.Handle("POST "+Prefix+comparePath, next)
	return mux, nil
}

// caller says whose key it is: the token's, not that of its name, which another may
// have as well. Two callers never see each other's answers.
func caller(r *http.Request) (string, error) {
	id, ok := access.From(r.Context())
	if !ok {
		return "", idempotency.ErrCallerUnknown
	}
	return string(id.Via) + " " + cmp.Or(id.ID, "name "+id.Name), nil
}

// Run deletes old idempotency keys until ctx is done, and returns nil then.
func (s *Server) Run(ctx context.Context) error {
	if s.keys == nil {
		<-ctx.Done()
		return nil
	}
	return s.keys.Run(ctx)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if coding := codingOf(r); coding != "" {
		w.Header().Set("Accept-Encoding", "identity")
		writeProblem(w, problemOf(http.StatusUnsupportedMediaType, KindMediaType,
			fmt.Sprintf("the body is encoded (Content-Encoding: %.60s); send it as it is, without that header", coding)))
		return
	}
	s.handler.ServeHTTP(w, r)
}

// codingOf returns how the body of a request is encoded; empty: it is not, or there is none.
func codingOf(r *http.Request) string {
	coding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	if r.Method != http.MethodPost && r.Method != http.MethodPut || strings.EqualFold(coding, "identity") {
		return ""
	}
	return coding
}

// otherwise answers what is no route of mux: of a path that is known, it says which methods are.
func otherwise(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		methods := methodsOf(mux, r)
		if len(methods) == 0 {
			writeProblem(w, problemOf(http.StatusNotFound, KindNoRoute, "there is no "+r.Method+" "+r.URL.Path+"; see "+Prefix+"/docs"))
			return
		}
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		writeProblem(w, problemOf(http.StatusMethodNotAllowed, KindMethod, r.URL.Path+" takes "+allow+", not "+r.Method+"; see "+Prefix+"/docs"))
	}
}

// methodsOf returns the methods for which mux has a route to the path of r.
func methodsOf(mux *http.ServeMux, r *http.Request) []string {
	var found []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.WithContext(r.Context()) // a copy
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != Prefix+"/" {
			found = append(found, method)
		}
	}
	return found
}

// wellFormed is JSON without text that Unicode cannot hold, since two ids that differ in it would be one, and without what
// other readers would read otherwise.
var wellFormed = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, v any) error {
	if err := canonical.WellFormed(data); err != nil {
		return fmt.Errorf("a text of the body %w", err)
	}
	if err := canonical.Unambiguous(data); err != nil {
		return err
	}
	err := huma.DefaultJSONFormat.Unmarshal(data, v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON: %w, at byte %d of %d", err, syntax.Offset, len(data))
	}
	return err
}}

// description returns what the OpenAPI document says of the whole.
func description(version string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Keep", Version: version,
				Description: "Look at the workflows of a host, and decide what it asks. Lists are newest first, in pages; " +
					"errors are problems of RFC 9457; a POST with an Idempotency-Key is done once.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "made by keep token add"},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": wellFormed, "json": wellFormed},
		DefaultFormat:                "application/json",
		Transformers:                 []huma.Transformer{typed},
		RejectUnknownQueryParameters: true,
	}
}

// operation describes a route and who may use it.
func (s *Server) operation(method, path, id, summary string, need access.Role) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: Prefix + path, Summary: summary,
		Description: "Needs the role " + string(need) + ".",
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
			http.StatusTooManyRequests, http.StatusServiceUnavailable}, // of access.Guard
		Middlewares: huma.Middlewares{s.allow(need)},
	}
	if method != http.MethodPost && strings.Contains(path, "{") {
		op.Errors = append(op.Errors, http.StatusNotFound)
	}
	if method == http.MethodPut {
		op.Errors = append(op.Errors, http.StatusConflict)
	}
	if method == http.MethodPost || method == http.MethodPut {
		op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge,
			http.StatusNotImplemented) // a host may have no deployer, and no place for keys
	}
	if method == http.MethodPost {
		op.Errors = append(op.Errors, http.StatusNotFound, http.StatusConflict)
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "Makes the request happen once: a repetition gets the first answer.",
		})
	}
	return op
}

// allow refuses those whose role does not do.
func (s *Server) allow(need access.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		id, ok := access.From(ctx.Context())
		_, w := humago.Unwrap(ctx)
		switch {
		case !ok:
			writeProblem(w, problemOf(http.StatusUnauthorized, KindUnauthorized, "a token is needed: keep token add"))
		case !id.Role.Covers(need):
			writeProblem(w, problemOf(http.StatusForbidden, KindForbidden, id.Name+" has the role "+string(id.Role)+"; this needs "+string(need)))
		default:
			next(ctx)
		}
	}
}
