package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/postgres"
)

// A keyring is what the commands do with keys: in a database, or through the
// admin API of a running proxy. The proxy may be on another machine, where this command has no
// database.
type keyring interface {
	List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error)
	Show(ctx context.Context, reference string) (idempotency.View, error)
	Resolve(ctx context.Context, reference string, res idempotency.Resolution, now time.Time) (idempotency.View, error)
	ForgetSeen(ctx context.Context, reference, by, seen string, now time.Time) (idempotency.View, error)
}

// keysCmd is for who runs keep proxy, or a service with the middleware.
func (a *app) keysCmd() *cobra.Command {
	cmd := noun("keys", a.listKeysCmd, a.showKeyCmd(), a.resolveKeyCmd(), a.forgetKeyCmd(), a.importKeysCmd())
	cmd.Long = `Keys shows what became of requests with an idempotency key, and records what a
person found out about those whose outcome is unknown.

It asks the admin API at --admin, a URL or unix:SOCKET. Without that: the database at
--db, a file or postgres://…; else the proxy of keep.toml, by its proxy.admin_socket or
its proxy.admin_listen, if it runs; else the database of keep.toml. A file is asked
through its daemon, if one runs. The token of a URL is proxy.admin_token of keep.toml,
or KEEP_PROXY_ADMIN_TOKEN.`
	cmd.PersistentFlags().StringVar(&a.admin, "admin", "", "`URL` or unix:SOCKET of the admin API of a running proxy")
	return cmd
}

// withKeys calls f with the keys that the command is about: those of a proxy, or of a database. With
// --admin nothing of keep.toml is needed, so that a mistake in it does not matter.
func (a *app) withKeys(ctx context.Context, r database.Role, f func(keyring) error) error {
	cfg, err := a.configOfDB()
	if err != nil && a.admin == "" {
		return err
	}
	admin, err := a.adminOf(ctx, cfg)
	if err != nil || admin != nil {
		if err == nil {
			err = f(admin)
		}
		return err
	}
	if database.IsPostgres(cfg.DB) { // it may have keys and nothing else, which several proxies share
		return a.withKeyStore(ctx, cfg, r, func(s idempotency.Store) error { return f(idempotency.NewKeys(s)) })
	}
	return a.client().Call(ctx, cfg, a.opening(r), func(c *api.Client) error { return f(keysOfAPI{c}) })
}

// adminOf returns the client of the proxy that the command is about; nil if it is
// about a database. What the command line names must answer, or it is an error; what keep.toml
// names is taken if it answers, since its proxy need not run. --db wins over keep.toml.
func (a *app) adminOf(ctx context.Context, cfg *config.Config) (*proxy.AdminClient, error) {
	var p proxy.Config
	if cfg != nil {
		p = cfg.Proxy
	}
	// A socket needs no token: only its owner can open it.
	if socket, ok := strings.CutPrefix(a.admin, "unix:"); ok {
		a.admin, p.AdminSocket, p.AdminListen = "", socket, ""
		if c := (&proxy.AdminClient{Socket: socket}); c.Healthy(ctx) {
			return c, nil
		}
		return nil, exit.NoDatabase(fmt.Errorf("no proxy answers at %s; start keep proxy, or name its database with --db", socket))
	}
	if a.admin != "" {
		u, err := url.Parse(a.admin)
		if err != nil || u.Host == "" {
			return nil, exit.Misusef("--admin is %q, want a URL such as http://127.0.0.1:7434", a.admin)
		}
		c := &proxy.AdminClient{URL: a.admin, Token: p.AdminToken}
		if !c.Healthy(ctx) {
			return nil, exit.NoDatabase(fmt.Errorf("no proxy answers at %s; start keep proxy, or name its database with --db", a.admin))
		}
		return c, nil
	}
	if a.DB != "" {
		return nil, nil
	}
	if c := (&proxy.AdminClient{Socket: p.AdminSocket}); p.AdminSocket != "" && c.Healthy(ctx) {
		return c, nil
	}
	if listen := p.AdminListen; listen != "" && listen != "off" && p.AdminToken != "" {
		if c := (&proxy.AdminClient{URL: "http://" + listen, Token: p.AdminToken}); c.Healthy(ctx) {
			return c, nil
		}
	}
	return nil, nil
}

// A keysOfAPI is the keys of whoever answers for the database. Who decides, and
// when, is known there.
type keysOfAPI struct{ c *api.Client }

// List implements keyring.
func (k keysOfAPI) List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error) {
	page, err := k.c.Keys(ctx, api.KeyQuery(f), api.Paging{Limit: p.Limit, Cursor: p.After})
	return page.Items, terminal.OrEmpty(page.Next), err
}

// Show implements keyring.
func (k keysOfAPI) Show(ctx context.Context, reference string) (idempotency.View, error) {
	return k.c.Key(ctx, reference)
}

// Resolve implements keyring. An answer goes along only with happened: the flag --status has a
// default, also where there is none to record.
func (k keysOfAPI) Resolve(ctx context.Context, reference string, res idempotency.Resolution, _ time.Time) (idempotency.View, error) {
	in := api.Resolution{Happened: res.Happened, Seen: res.Seen}
	if res.Happened {
		in.Status, in.Body, in.Header = res.Status, res.Body, res.Header
	}
	return k.c.ResolveKey(ctx, reference, in)
}

// ForgetSeen implements keyring.
func (k keysOfAPI) ForgetSeen(ctx context.Context, reference, _, seen string, _ time.Time) (idempotency.View, error) {
	return k.c.ForgetKey(ctx, reference, seen)
}

// withKeyStore calls f with the records of the configured database, around a daemon. Postgres gets
// no tables but those of keys, and none from a command that adds no keys.
func (a *app) withKeyStore(ctx context.Context, cfg *config.Config, r database.Role, f func(idempotency.Store) error) (err error) {
	var store idempotency.Store
	var closeStore func() error
	if database.IsPostgres(cfg.DB) {
		prepare := (*postgres.Keys).Check
		if r >= database.ToDeploy {
			prepare = (*postgres.Keys).Migrate
		}
		if store, closeStore, err = openKeyTable(ctx, cfg.DB, prepare); err != nil {
			return exit.NoDatabase(err)
		}
	} else {
		db, err := database.Open(ctx, cfg, r)
		if err != nil {
			return err
		}
		store, closeStore = database.Keys(db), db.Close
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	return f(store)
}

// showKeyCmd shows one key. It takes the reference of an answer, which clients pass on to people,
// and not the key itself: two callers may have chosen the same one.
func (a *app) showKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show REF", Short: "Show one idempotency key with its answer", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := key.ParseID(args[0]); err != nil {
				return exit.Misusef("%w", err)
			}
			return a.withKeys(cmd.Context(), database.ToRead, func(keys keyring) error {
				v, err := keys.Show(cmd.Context(), args[0])
				switch {
				case err != nil:
					return err
				case a.JSON:
					return a.PrintJSON(v)
				}
				return a.printKey(v)
			})
		},
	}
}

// listKeysCmd lists keys. It is not made by listCmd, since the rows may be those of a proxy, which
// has no workflows and no API of Keep.
func (a *app) listKeysCmd() *cobra.Command {
	f := &listFlags{}
	var filter key.Filter
	var keys keyring
	l := listing[idempotency.View]{
		header: []string{"REFERENCE", "STATE", "STATUS", "REQUEST", "UPDATED", "KEY"},
		// There is no client: keys is set before the list is printed.
		fetch: func(ctx context.Context, _ *api.Client, f listFlags, p api.Paging) (api.Page[idempotency.View], error) {
			filter.State = key.State(f.status)
			views, next, err := keys.List(ctx, filter, keep.Page{Limit: p.Limit, After: p.Cursor})
			page := api.Page[idempotency.View]{Items: views}
			if next != "" {
				page.Next = &next
			}
			return page, err
		},
		row: func(v idempotency.View) []string {
			// A request that is in work, or unknown, has no answer yet.
			status := "-"
			if v.Status != nil {
				status = strconv.Itoa(*v.Status)
			}
			return []string{v.Reference, string(v.State), status, terminal.CutTo(terminal.Clean(v.Method+" "+v.Path), terminal.MaxTitle),
				a.When(v.UpdatedAt), terminal.CutTo(terminal.Clean(v.Key), terminal.MaxTitle)}
		},
		statuses: words(key.States()),
	}
	cmd := &cobra.Command{
		Short: "Idempotency keys of HTTP requests, and what became of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(l.statuses); err != nil {
				return err
			}
			return a.withKeys(cmd.Context(), database.ToRead, func(k keyring) error {
				keys = k
				return printList(cmd.Context(), a, *f, l, nil)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.limit, "limit", 100, "at most `n`")
	fs.StringVar(&f.cursor, "cursor", "", "continue after the `cursor` of the previous page")
	fs.BoolVar(&f.all, "all", false, "everything, page after page")
	fs.StringVar(&f.status, "status", "", "only those in this `state`")
	fs.StringVar(&filter.Key, "key", "", "only this `key`, of any caller")
	a.completeFlag(cmd, "status", fixed(l.statuses))
	return cmd
}

// resolveKeyCmd records what a person found out. Of the two answers only did-not-happen may do harm,
// and needs --yes: it lets the request be executed.
func (a *app) resolveKeyCmd() *cobra.Command {
	var res idempotency.Resolution
	var contentType string
	var headers []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "resolve REF happened|did-not-happen",
		Short: "Say what became of a request whose outcome is unknown",
		Long: `Resolve records what you found out about a request whose outcome is unknown.
did-not-happen releases its key: the next request with it is executed, which needs
--yes. happened records the answer that retries get. With --seen, as keep keys show prints it,
nothing is recorded if it is the outcome of another request with that key by then.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"happened", "did-not-happen"}, args[1]) {
				return exit.Misusef("%q is neither happened nor did-not-happen", args[1])
			}
			res.Happened, res.By = args[1] == "happened", daemon.User()
			for _, flag := range []string{"status", "body", "content-type", "header"} {
				// Who gives an answer with did-not-happen has probably taken one word for the other.
				if !res.Happened && cmd.Flags().Changed(flag) {
					return exit.Misusef("--%s belongs to happened", flag)
				}
			}
			var err error
			if res.Header, err = headerOf(contentType, headers, res.Body); err != nil {
				return err
			}
			return a.decideKey(cmd, args, yes || res.Happened, func(keys keyring) (idempotency.View, error) {
				return keys.Resolve(cmd.Context(), args[0], res, a.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm did-not-happen, which lets the request be executed again")
	cmd.Flags().StringVar(&res.Seen, "seen", "", seenUsage)
	cmd.Flags().IntVar(&res.Status, "status", 200, "status `code` of the answer")
	cmd.Flags().StringVar(&res.Body, "body", "", "body of the answer")
	cmd.Flags().StringVar(&contentType, "content-type", "", "`type` of the body (default application/json if it is JSON)")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "`\"Name: value\"` of the answer, as often as needed")
	return cmd
}

// headerOf returns the headers of an answer that a person gives. They are sent to each client that
// repeats the request, so what could end a line early is refused.
func headerOf(contentType string, lines []string, body string) (http.Header, error) {
	h := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsAny(value, "\r\n") {
			return nil, exit.Misusef("--header is %q, want \"Name: value\"", line)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	switch {
	case contentType != "":
		h.Set("Content-Type", contentType)
	case h.Get("Content-Type") == "" && body != "" && json.Valid([]byte(body)):
		h.Set("Content-Type", "application/json")
	}
	return h, nil
}

// forgetKeyCmd releases a key whose request is over, with its answer. One that is being executed is
// refused: its request would be executed beside it.
func (a *app) forgetKeyCmd() *cobra.Command {
	var yes bool
	var seen string
	cmd := &cobra.Command{
		Use:   "forget REF",
		Short: "Release a key, with its answer: the next request with it is executed",
		Long: `Forget releases a key, with its answer: the next request with it is executed. It
needs --yes: without it, forget shows which request that would be and changes nothing.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decideKey(cmd, args, yes, func(keys keyring) (idempotency.View, error) {
				return keys.ForgetSeen(cmd.Context(), args[0], daemon.User(), seen, a.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm: the request may be executed again")
	cmd.Flags().StringVar(&seen, "seen", "", seenUsage)
	return cmd
}

// seenUsage is of the flag by which a decision is about the request that was shown, and about no later one with its key.
const seenUsage = "only if the key is as it was shown: the `seen` of --json, or of the command that confirms"

// importKeysCmd takes keys over from another implementation. A key that is there already stays: so
// an import may be repeated, and undoes nothing that was decided here since.
func (a *app) importKeysCmd() *cobra.Command {
	var header string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take over rows of a platform_idempotency_keys table",
		Long: `Import reads rows of a table platform_idempotency_keys, one JSON object after the
other, and adds a key for each that the database does not have:

  psql -Atc 'select row_to_json(t) from platform_idempotency_keys t' > keys.jsonl

completed becomes done with its answer; in_progress and failed become unknown,
since nobody knows what became of them. The table has no fingerprint, so any
request with the key gets the answer. Callers are known by --header, which the
proxy's route needs too: caller = "header:X-User-Id".`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// First, so that a wrong name makes no database.
			rows, err := regular.Open(args[0])
			if err != nil {
				return err
			}
			defer rows.Close()
			if a.admin != "" {
				return exit.Misusef("the admin API takes no rows: name the database with --db")
			}
			cfg, err := a.configOfDB()
			if err != nil {
				return err
			}
			return a.withKeyStore(cmd.Context(), cfg, database.ToDeploy, func(store idempotency.Store) error {
				n, err := idempotency.Import(cmd.Context(), store, rows, header, ttl, a.Now())
				if err == nil && a.JSON {
					return a.PrintJSON(n)
				}
				fmt.Fprintf(a.Err, "%d added, %d known already, %d expired.\n", n.Added, n.Known, n.Expired)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&header, "header", "X-User-Id", "`name` of the header that has a request's user_id")
	cmd.Flags().DurationVar(&ttl, "ttl", idempotency.DefaultTTL, "how `long` answers are kept, from completed_at on, or created_at if there is none")
	return cmd
}

// decideKey records a decision about one key and shows what it is now. One that is not
// confirmed changes nothing: it shows the request that could be executed again, and the
// command that would confirm it.
func (a *app) decideKey(cmd *cobra.Command, args []string, confirmed bool, decide func(keyring) (idempotency.View, error)) error {
	ctx, ref := cmd.Context(), args[0]
	if _, err := key.ParseID(ref); err != nil {
		return exit.Misusef("%w", err)
	}
	// Opened to read alone, so that what is only shown cannot change anything.
	if !confirmed {
		return a.withKeys(ctx, database.ToRead, func(keys keyring) error { return a.askToFree(cmd, keys, args) })
	}
	return a.withKeys(ctx, database.ToDecide, func(keys keyring) error {
		v, err := decide(keys)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return a.PrintJSON(v)
		}
		fmt.Fprintf(a.Err, "%s is %s.\n", v.Reference, v.State)
		return nil
	})
}

// askToFree shows which request could be executed again if its key were free. Nothing was
// changed.
func (a *app) askToFree(cmd *cobra.Command, keys keyring, args []string) error {
	v, err := keys.Show(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Err, "The next request with this key would be executed, also if the first one was:")
	var s terminal.Sheet
	s.Add("  request", "%s %s", v.Method, terminal.Clean(v.Path))
	s.Add("  key", "%s", terminal.Clean(v.Key))
	s.Add("  caller", "%s", v.Caller)
	s.Add("  state", "%s", v.State)
	s.Add("  created", "%s", a.When(v.CreatedAt))
	if err := s.Print(a.Err, a.Ink); err != nil {
		return err
	}
	more := []string{"--yes"}
	if v.Seen != "" { // a proxy of before has no name for it
		more = append(more, "--seen", v.Seen)
	}
	fmt.Fprintf(a.Err, "Nothing was changed. To confirm: %s\n", confirmation(cmd, args, more...))
	return exit.With(exit.Misused)
}

// printKey shows a key with the answer that retries get. A body that is no text is not printed.
func (a *app) printKey(v idempotency.View) error {
	var s terminal.Sheet
	s.Add("reference", "%s", v.Reference)
	s.Add("key", "%s", terminal.Clean(v.Key))
	s.Add("request", "%s %s", v.Method, terminal.Clean(v.Path))
	s.Add("caller", "%s", v.Caller)
	s.Add("state", "%s", v.State)
	if v.UnknownFrom != nil {
		s.Add("unknown from", "%s", a.When(*v.UnknownFrom))
	}
	if v.LeaseUntil != nil {
		s.Add("lease until", "%s", a.When(*v.LeaseUntil))
	}
	if v.Status != nil {
		s.Add("status", "%d", *v.Status)
	}
	s.Add("resolved by", "%s", terminal.Clean(terminal.OrEmpty(v.ResolvedBy)))
	s.Add("created", "%s", a.When(v.CreatedAt))
	if v.ExpiresAt != nil {
		s.Add("expires", "%s", a.When(*v.ExpiresAt))
	}
	s.Add("seen", "%s", v.Seen) // for the flag --seen of a decision
	for _, name := range slices.Sorted(maps.Keys(v.Header)) {
		for _, value := range v.Header[name] {
			s.Add("header", "%s: %s", terminal.Clean(name), terminal.Clean(value))
		}
	}
	switch {
	case v.Body != nil:
		s.Add("body", "%s", terminal.CutTo(terminal.CleanText(*v.Body), maxShown))
	case v.BodySize != nil:
		s.Add("body", "%d bytes that are no text", *v.BodySize)
	}
	return s.Print(a.Out, a.OutInk)
}
