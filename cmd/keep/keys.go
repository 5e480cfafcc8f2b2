package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/key"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/spf13/cobra"
)

// A keyring is what the commands do with keys: in a database, or through the
// admin API of a running proxy.
type keyring interface {
	List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error)
	Show(ctx context.Context, reference string) (idempotency.View, error)
	Resolve(ctx context.Context, reference string, res idempotency.Resolution, now time.Time) (idempotency.View, error)
	Forget(ctx context.Context, reference, by string, now time.Time) (idempotency.View, error)
}

func (a *app) keysCmd() *cobra.Command {
	cmd := noun("keys", a.listKeysCmd, a.showKeyCmd(), a.resolveKeyCmd(), a.forgetKeyCmd(), a.importKeysCmd())
	cmd.Long = `Keys shows what became of requests with an idempotency key, and records what a
person found out about those whose outcome is unknown.

It asks the admin API at --admin. Without that: the database at --db, a file or
postgres://…; else the proxy of keep.toml, if its proxy.admin_listen is set and it
runs; else the database of keep.toml. A file is asked through its daemon, if one runs.`
	cmd.PersistentFlags().StringVar(&a.admin, "admin", "", "`URL` of the admin API of a running proxy")
	return cmd
}

// withKeys calls f with the keys that the command is about.
func (a *app) withKeys(ctx context.Context, r role, f func(keyring) error) error {
	if a.admin != "" {
		u, err := url.Parse(a.admin)
		if err != nil || u.Host == "" {
			return misusef("--admin is %q, want a URL such as http://127.0.0.1:7434", a.admin)
		}
		c := &proxy.AdminClient{URL: a.admin}
		if !c.Healthy(ctx) {
			return unreachable(fmt.Errorf("no proxy answers at %s; start keep proxy, or name its database with --db", a.admin))
		}
		return f(c)
	}
	cfg, err := a.loadConfig(".")
	if err != nil && (cfg == nil || cfg.DB == "") {
		return err
	}
	if listen := cfg.Proxy.AdminListen; a.db == "" && listen != "" && listen != "off" {
		if c := (&proxy.AdminClient{URL: "http://" + listen}); c.Healthy(ctx) {
			return f(c)
		}
	}
	if isPostgres(cfg.DB) { // it may have keys and nothing else, which several proxies share
		return a.withKeyStore(ctx, cfg, r, func(s idempotency.Store) error { return f(idempotency.NewKeys(s)) })
	}
	return a.askOf(ctx, cfg, a.opening(r), func(c *api.Client) error { return f(keysOfAPI{c}) })
}

// A keysOfAPI is the keys of whoever answers for the database. Who decides, and
// when, is known there.
type keysOfAPI struct{ c *api.Client }

// List implements keyring.
func (k keysOfAPI) List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error) {
	page, err := k.c.Keys(ctx, api.KeyQuery(f), api.Paging{Limit: p.Limit, Cursor: p.After})
	return page.Items, orEmpty(page.Next), err
}

// Show implements keyring.
func (k keysOfAPI) Show(ctx context.Context, reference string) (idempotency.View, error) {
	return k.c.Key(ctx, reference)
}

// Resolve implements keyring.
func (k keysOfAPI) Resolve(ctx context.Context, reference string, res idempotency.Resolution, _ time.Time) (idempotency.View, error) {
	in := api.Resolution{Happened: res.Happened}
	if res.Happened {
		in.Status, in.Body = res.Status, res.Body
	}
	return k.c.ResolveKey(ctx, reference, in)
}

// Forget implements keyring.
func (k keysOfAPI) Forget(ctx context.Context, reference, _ string, _ time.Time) (idempotency.View, error) {
	return k.c.ForgetKey(ctx, reference)
}

// withKeyStore calls f with the records of the configured database.
func (a *app) withKeyStore(ctx context.Context, cfg *config.Config, r role, f func(idempotency.Store) error) (err error) {
	var store idempotency.Store
	var closeStore func() error
	if isPostgres(cfg.DB) {
		if store, closeStore, err = openKeys(ctx, cfg.DB); err != nil {
			return unreachable(err)
		}
	} else {
		db, err := openStore(ctx, cfg, r)
		if err != nil {
			return err
		}
		store, closeStore = keysOf(db), db.Close
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	return f(store)
}

func (a *app) showKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show REF", Short: "Show one idempotency key with its answer", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := key.ParseID(args[0]); err != nil {
				return misusef("%w", err)
			}
			return a.withKeys(cmd.Context(), toLook, func(keys keyring) error {
				v, err := keys.Show(cmd.Context(), args[0])
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(v)
				}
				return a.printKey(v)
			})
		},
	}
}

func (a *app) listKeysCmd() *cobra.Command {
	f := &listFlags{}
	var filter key.Filter
	var keys keyring
	l := listing[idempotency.View]{
		header: []string{"REFERENCE", "STATE", "STATUS", "REQUEST", "UPDATED", "KEY"},
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
			status := "-"
			if v.Status != nil {
				status = strconv.Itoa(*v.Status)
			}
			return []string{v.Reference, string(v.State), status, cutTo(clean(v.Method+" "+v.Path), maxTitle),
				a.when(v.UpdatedAt), cutTo(clean(v.Key), maxTitle)}
		},
		statuses: words(key.States()),
	}
	cmd := &cobra.Command{
		Short: "Idempotency keys of HTTP requests, and what became of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(l.statuses); err != nil {
				return err
			}
			return a.withKeys(cmd.Context(), toLook, func(k keyring) error {
				keys = k
				return printList(cmd.Context(), a, *f, l, nil)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.limit, "limit", 100, "at most `n`")
	fs.StringVar(&f.cursor, "cursor", "", "go on after the `cursor` of the previous page")
	fs.BoolVar(&f.all, "all", false, "everything, page after page")
	fs.StringVar(&f.status, "status", "", "only those in this `state`")
	fs.StringVar(&filter.Key, "key", "", "only this `key`, of any caller")
	a.completeFlag(cmd, "status", fixed(l.statuses))
	return cmd
}

func (a *app) resolveKeyCmd() *cobra.Command {
	var res idempotency.Resolution
	cmd := &cobra.Command{
		Use:   "resolve REF happened|did-not-happen",
		Short: "Say what became of a request whose outcome is unknown",
		Long: `Resolve records what you found out about a request whose outcome is unknown.
did-not-happen releases its key: the next request with it is executed. happened
records the answer that retries get.`,
		Example: `  keep keys resolve key_36aagtdmsnzqbd7rejge7z5zdv did-not-happen
  keep keys resolve key_36aagtdmsnzqbd7rejge7z5zdv happened --status 201 --body '{"id": 7}'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"happened", "did-not-happen"}, args[1]) {
				return misusef("%q is neither happened nor did-not-happen", args[1])
			}
			res.Happened, res.By = args[1] == "happened", who()
			if !res.Happened && (cmd.Flags().Changed("status") || cmd.Flags().Changed("body")) {
				return misusef("--status and --body belong to happened")
			}
			return a.decideKey(cmd.Context(), args[0], func(keys keyring) (idempotency.View, error) {
				return keys.Resolve(cmd.Context(), args[0], res, a.now())
			})
		},
	}
	cmd.Flags().IntVar(&res.Status, "status", 200, "status `code` of the answer")
	cmd.Flags().StringVar(&res.Body, "body", "", "body of the answer")
	return cmd
}

func (a *app) forgetKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "forget REF",
		Short: "Give a key free, with its answer: the next request with it is executed",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decideKey(cmd.Context(), args[0], func(keys keyring) (idempotency.View, error) {
				return keys.Forget(cmd.Context(), args[0], who(), a.now())
			})
		},
	}
}

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
			rows, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer rows.Close()
			if a.admin != "" {
				return misusef("the admin API takes no rows: name the database with --db")
			}
			cfg, err := a.loadConfig(".")
			if err != nil && (cfg == nil || cfg.DB == "") {
				return err
			}
			return a.withKeyStore(cmd.Context(), cfg, toDeploy, func(store idempotency.Store) error {
				n, err := idempotency.Import(cmd.Context(), store, rows, header, ttl, a.now())
				if err == nil && a.json {
					return a.printJSON(n)
				}
				fmt.Fprintf(a.err, "%d added, %d known already, %d expired.\n", n.Added, n.Known, n.Expired)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&header, "header", "X-User-Id", "`name` of the header that has a request's user_id")
	cmd.Flags().DurationVar(&ttl, "ttl", idempotency.DefaultTTL, "how `long` answers are kept, from created_at on")
	return cmd
}

// decideKey records a decision about one key and shows what it is now.
func (a *app) decideKey(ctx context.Context, ref string, decide func(keyring) (idempotency.View, error)) error {
	if _, err := key.ParseID(ref); err != nil {
		return misusef("%w", err)
	}
	return a.withKeys(ctx, toDecide, func(keys keyring) error {
		v, err := decide(keys)
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(v)
		}
		fmt.Fprintf(a.err, "%s is %s.\n", v.Reference, v.State)
		return nil
	})
}

func (a *app) printKey(v idempotency.View) error {
	var s sheet
	s.add("reference", "%s", v.Reference)
	s.add("key", "%s", clean(v.Key))
	s.add("request", "%s %s", v.Method, clean(v.Path))
	s.add("caller", "%s", v.Caller)
	s.add("state", "%s", v.State)
	if v.UnknownFrom != nil {
		s.add("unknown from", "%s", a.when(*v.UnknownFrom))
	}
	if v.LeaseUntil != nil {
		s.add("lease until", "%s", a.when(*v.LeaseUntil))
	}
	if v.Status != nil {
		s.add("status", "%d", *v.Status)
	}
	s.add("resolved by", "%s", clean(orEmpty(v.ResolvedBy)))
	s.add("created", "%s", a.when(v.CreatedAt))
	if v.ExpiresAt != nil {
		s.add("expires", "%s", a.when(*v.ExpiresAt))
	}
	switch {
	case v.Body != nil:
		s.add("body", "%s", cutTo(cleanText(*v.Body), maxShown))
	case v.BodySize != nil:
		s.add("body", "%d bytes that are no text", *v.BodySize)
	}
	return s.print(a.out, a.outInk)
}
