package daemon

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// Actors are what changes a database. A nil deployer takes no scripts.
type Actors struct {
	api.Actor
	api.Deployer
	api.Accounts // nil: there are none to be shown
	api.Replayer // nil: no runs are gone through again

	Ungrantable func(keep.GrantedTool) string // why a tool cannot be granted so; nil: all can
	Clock       func() time.Time              // dates what people decide; nil: that of this machine does
}

// NewAPI returns the API of a database that no host of this process works on.
func (e Env) NewAPI(cfg *config.Config, db database.DB, by Actors, tokens store.Access, changes *feed.Feed) (*api.Server, error) {
	return e.newAPI(db, by, tokens, changes, HooksOf(cfg, db), cfg.BudgetRules, nil, nil, nil)
}

// newAPI returns the API of a database. settings says what became of the configuration
// of its host, refusal whether its store takes commits, and inGo which versions written in Go that has; nil: there is none.
func (e Env) newAPI(db database.DB, by Actors, tokens store.Access, changes *feed.Feed,
	hooks func(context.Context) ([]api.Hook, error), budgets func() []budget.Rule, settings func() *api.Settings, refusal func() *api.Refusal, inGo func() []string) (*api.Server, error) {
	hosts, _ := db.(store.Leaser)
	if by.Clock == nil {
		by.Clock = e.now
	}
	return api.New(api.Config{
		Store: db, Actor: by.Actor, Deployer: by.Deployer, Replayer: by.Replayer, Changes: changes, Keys: database.Keys(db), Access: tokens, Hosts: hosts, Executors: executors(db, inGo), Hooks: hooks, Budgets: budgets, Settings: settings, Refusal: refusal, Accounts: by.Accounts, Ungrantable: by.Ungrantable,
		Clock: by.Clock, Version: buildinfo.Read().Version, Logger: e.Log,
	})
}

// executors knows who works on a database: the hosts that share it, or the one of this process, which
// has some versions written in Go; nil: there is none.
func executors(db database.DB, inGo func() []string) view.Executors {
	if l, shared := db.(store.Leaser); shared {
		return view.Sharing(l)
	}
	if inGo == nil {
		return nil
	}
	return view.Alone(inGo)
}

// UnknownKeys returns how targets are notified of unknown keys, of the newest idempotency.MaxUnknown (law: bounded): with
// the object that keep keys --json prints. It is nil if there is no store.
func UnknownKeys(s idempotency.Store) func(context.Context) ([]notify.Key, error) {
	if s == nil {
		return nil
	}
	keys := idempotency.NewKeys(s)
	return func(ctx context.Context) (list []notify.Key, err error) {
		for v, err := range store.All(ctx, keys.List, key.Filter{State: key.Unknown}, keep.Page{Limit: 1000}) {
			if err != nil {
				return nil, err
			}
			k := notify.Key{ID: v.Reference, At: v.UpdatedAt}
			if v.UnknownFrom != nil {
				k.At = *v.UnknownFrom
			}
			k.ID += "." + strconv.FormatInt(k.At.UnixMilli(), 10) // a later doubt is another one
			if k.Data, err = json.Marshal(v); err != nil {
				return nil, err
			}
			if list = append(list, k); len(list) == idempotency.MaxUnknown {
				break
			}
		}
		return list, nil
	}
}

// linksOf returns the links to questions that a configuration asks for; nil: none.
func linksOf(cfg *config.Config, db database.DB) *link.Links {
	if !cfg.Notify.Links {
		return nil
	}
	return link.New(db, cfg.Server.URL, cfg.Notify.Sinks())
}

// maxTold is how large a question may be to be told whole, in bytes: receivers refuse what has more than a megabyte or so, and each
// attempt is as large as the one before.
const maxTold = 256 << 10

// Told returns a question as people are told it: with the object that keep inbox show --json prints, or, if that is too large, as
// keep inbox --json prints it.
func Told(q keep.Escalation) (json.RawMessage, error) {
	text, err := json.Marshal(api.EscalationOf(q))
	if err != nil || len(text) <= maxTold {
		return text, err
	}
	return json.Marshal(api.Listed(q))
}

// notifyConfig returns how a host tells people of questions.
func (e Env) notifyConfig(cfg *config.Config, db database.DB, links *link.Links) (notify.Config, error) {
	targets, err := cfg.Notify.Targets(e.Log)
	return notify.Config{
		Links:   links,
		Unknown: UnknownKeys(database.Keys(db)),
		Store:   db,
		Targets: targets,
		Encode:  Told,
		Retry:   cfg.Notify.Retry,
		Timeout: cfg.Notify.Timeout,
		Logger:  e.Log,
	}, err
}
