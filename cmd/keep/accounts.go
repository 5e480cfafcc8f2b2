package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/web"
)

// connectFlags are those of keep connect. At most one of device, token and machine says how
// the credential is got; without one, OAuth goes through a browser of this machine.
type connectFlags struct {
	name          string
	scopes        []string
	device, token bool
	noBrowser     bool
	machine       bool
	port          int
	timeout       time.Duration
}

// connectCmd connects an account. The credential is stored in the database and not in
// keep.toml: hosts that share a database share it, and its renewals, too.
func (a *app) connectCmd() *cobra.Command {
	var f connectFlags
	cmd := &cobra.Command{
		Use: "connect PACK|mcp:SERVER", Short: "Connect an account of a service, or connect it again",
		Long: `Connect stores a credential of a service in the database, sealed with the key of
keep.key, which is made at first need. A connection uses it with account = "NAME".

A service with OAuth shows a page in the browser ($BROWSER names the program that opens
it); client_id and client_secret of your own OAuth client are in [packs.PACK] of keep.toml.
With --device the page can be opened on any machine. Of other services the key is typed,
and not shown, or is one line of standard input; basic takes user:password. It is never an
argument.

With mcp:SERVER it is an MCP server of keep.toml with a url: the server says where its tokens are
from, and a client is registered there, unless keep.toml has client_id.

With --json, the page to open is an object on a line of stderr (open, and code with --device), and
stdout has the account, once it is connected.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.connect(cmd.Context(), args[0], f, cmd.InOrStdin())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.name, "name", "", "`name` of the account (default: PACK)")
	fl.StringSliceVar(&f.scopes, "scopes", nil, "more `scopes` than the tools of keep.toml need")
	fl.BoolVar(&f.device, "device", false, "show a code to enter on a page that any machine can open")
	fl.BoolVar(&f.token, "token", false, "read a token instead of asking the service for one")
	fl.BoolVar(&f.machine, "client-credentials", false, "get tokens for the OAuth client itself, without a person")
	fl.BoolVar(&f.noBrowser, "no-browser", false, "print the page, and open no browser")
	fl.IntVar(&f.port, "port", 0, "`port` of 127.0.0.1 that the service sends the browser back to (default: any)")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Minute, "give up after this `duration`")
	return cmd
}

// connect gets a credential and stores it, in the place of one of the same name. Nothing is
// stored before the credential is there: who is interrupted connects again. The database is
// opened as for a deploy, since an account may be connected before anything was deployed.
func (a *app) connect(ctx context.Context, name string, f connectFlags, stdin io.Reader) error {
	if server, ok := strings.CutPrefix(name, config.MCPPack); ok {
		return a.connectServer(ctx, server, f)
	}
	f.name = cmp.Or(f.name, name)
	if !config.AccountName(f.name) {
		return exit.Misusef("--name is %q: use letters, digits, dots, dashes and underscores", f.name)
	}
	return a.withAccounts(ctx, database.ToDeploy, func(cfg *config.Config, m *account.Manager, _ database.DB) error {
		pack, err := config.OnePack(cfg.Dir, name)
		if err != nil {
			return err
		}
		fresh := keep.Account{Name: f.name, Pack: pack.Name, Style: pack.Auth.Style, ConnectedBy: daemon.User()}
		had, err := a.replaced(ctx, m, fresh)
		if err != nil {
			return err
		}
		var content seal.Content
		switch {
		case pack.Auth.Style == "none":
			return exit.Misusef("the pack %s sends no credential: there is nothing to connect", name)
		// Such a pack signs what it sends, and has no credential that is sent along: its key belongs to
		// a connection, and is a secret.
		case pack.Auth.Style == "standard-webhooks":
			return exit.Misusef("the pack %s signs with a key: store it with keep secrets set NAME, and write secret = \"${secret:NAME}\"", name)
		case f.token || pack.Auth.Style != "oauth2":
			content.Value, err = a.readSecret(ctx, fmt.Sprintf("Credential of %s (%s): ", pack.Title, pack.Auth.Style), stdin)
			// A password without its user would be stored, and first fail in a run.
			if bad := daemon.CheckCredential(pack, content.Value); err == nil && bad != nil {
				err = exit.Misusef("%w", bad)
			}
		default:
			fresh, content, err = a.authorize(ctx, cfg, pack, fresh, f)
		}
		if err != nil {
			return err
		}
		if err := a.storeAccount(ctx, m, fresh, content, pack.Title, had); err != nil {
			return err
		}
		if missing := daemon.NotGranted(fresh, scopesOf(cfg, pack, f)); content.Access != "" && len(missing) > 0 {
			fmt.Fprintf(a.Err, "The service did not name %s among the scopes that it gave: a tool that needs it may be refused. To allow it, connect again: keep connect %s --name %s\n",
				terminal.Clean(strings.Join(missing, ", ")), pack.Name, fresh.Name)
		}
		return nil
	})
}

// scopesOf returns the scopes that a service is asked for.
func scopesOf(cfg *config.Config, pack config.Pack, f connectFlags) []string {
	scopes := slices.Concat(cfg.Scopes(pack), f.scopes)
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// replaced returns the account that is there under the name of fresh, zero: none, and says that it will be replaced:
// a name that another pack, or another person, uses may be given by mistake.
func (a *app) replaced(ctx context.Context, m *account.Manager, fresh keep.Account) (keep.Account, error) {
	had, err := m.Account(ctx, fresh.Name)
	if errors.Is(err, keep.ErrNotFound) {
		return keep.Account{}, nil
	}
	if err != nil || had.Status == keep.AccountRevoked || a.JSON {
		return had, err
	}
	of := had.Pack
	if had.Subject != "" {
		of += " (" + had.Subject + ")"
	}
	a.say("Account %s of %s, which %s connected on %s, will be replaced.", had.Name, of, had.ConnectedBy, a.At(api.Time(had.ConnectedAt)))
	return had, nil
}

// storeAccount stores what was connected in the place of had, and says so. It makes the key of keep.key if there is
// none, so that what is wrong with the key shows here. What the service gave is nowhere else, so it is
// stored also if ctx has ended, but not in the place of what somebody connected since.
func (a *app) storeAccount(ctx context.Context, m *account.Manager, fresh keep.Account, content seal.Content, of string, had keep.Account) error {
	stored, err := m.ConnectOver(context.WithoutCancel(ctx), fresh, content, had.ConnectedAt)
	if errors.Is(err, keep.ErrStale) {
		return exit.Failedf("nothing was stored: %w", err)
	}
	if err != nil {
		return keyError(err)
	}
	if a.JSON {
		return a.PrintJSON(api.AccountOf(stored, nil, a.Now()))
	}
	fmt.Fprintf(a.Err, "Account %s of %s is connected. A connection uses it with: account = %q\n", stored.Name, of, stored.Name)
	return nil
}

// authorize gets tokens from a service with OAuth, and returns fresh with what is known of them.
// It asks for the scopes of all tools that keep.toml uses of the pack, so that a second
// connection of the same account needs no second agreement.
func (a *app) authorize(ctx context.Context, cfg *config.Config, pack config.Pack, fresh keep.Account, f connectFlags) (keep.Account, seal.Content, error) {
	scopes := scopesOf(cfg, pack, f)
	client, err := daemon.OAuthClient(cfg, pack, scopes)
	if err != nil {
		return fresh, seal.Content{}, exit.Misusef("%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var tokens oauth.Tokens
	switch {
	case f.machine:
		tokens, err = client.ClientCredentials(ctx)
	case f.device && client.DeviceURL == "":
		return fresh, seal.Content{}, exit.Misusef("%s has no device flow", pack.Title)
	case f.device:
		tokens, err = client.Device(ctx, func(page, code string) error { return a.showPage(a.Err, page, code, true) })
	default:
		// A service that knows clients by their exact redirect address needs the same port each time.
		f.port = cmp.Or(f.port, cfg.Clients[pack.Name].RedirectPort)
		tokens, err = client.Loopback(ctx, oauth.LoopbackOptions{Port: f.port, Open: func(page string) error { return a.showPage(a.Err, page, "", f.noBrowser) }})
	}
	switch {
	// The flow would say that its context ended; what happened is that nobody came.
	case errors.Is(err, context.DeadlineExceeded):
		return fresh, seal.Content{}, exit.Failedf("nobody allowed it within %s; try again: keep connect %s", f.timeout, pack.Name)
	case err != nil:
		return fresh, seal.Content{}, exit.Failedf("connect %s: %w", pack.Name, err)
	}
	fresh = daemon.Granted(fresh, tokens, scopes)
	// Client credentials come without a refresh token: the client itself gets new ones.
	fresh.Renews = fresh.Renews || f.machine
	return fresh, account.ContentOf(tokens), nil
}

// showPage tells a person which page to open, and opens it unless only showing was asked for.
// With --json it is an object on a line of to: stderr if the command prints something else, and a program has to
// open the page before.
func (a *app) showPage(to io.Writer, page, code string, only bool) error {
	var err error
	switch {
	case a.JSON && code != "":
		err = json.NewEncoder(to).Encode(map[string]string{"open": page, "code": code})
	case a.JSON:
		err = json.NewEncoder(to).Encode(map[string]string{"open": page})
	case code != "":
		_, err = fmt.Fprintf(a.Err, "Open %s and enter %s\n", terminal.Clean(page), terminal.Clean(code)) // a service says both
	default:
		_, err = fmt.Fprintf(a.Err, "Open %s\n", terminal.Clean(page))
	}
	if err != nil {
		return err
	}
	if only {
		return nil
	}
	return openPage(page)
}

// openPage opens a page in the person's browser, if there is a program that does. It does not
// wait for that program, and gives it none of the variables of Keep: a browser lives longer
// than this command, and secrets may be in them.
func openPage(page string) error {
	opener := os.Getenv("BROWSER")
	opener = cmp.Or(opener, map[string]string{"darwin": "open", "windows": "explorer"}[runtime.GOOS])
	if opener == "" {
		opener = "xdg-open"
	}
	cmd := exec.Command(opener, page)
	cmd.Env = config.Harmless(os.Environ())
	if err := cmd.Start(); err != nil {
		return nil // a person can open it: the page was printed
	}
	return cmd.Process.Release()
}

// maxTyped bounds a line that is secret, in bytes.
const maxTyped = 64 << 10

// readSecret reads a line without showing it: from the terminal, or of standard input. It is never
// an argument, which the history of a shell and the list of processes would show.
func (a *app) readSecret(ctx context.Context, prompt string, stdin io.Reader) (string, error) {
	var text string
	if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		line, err := a.readTyped(ctx, prompt, f)
		if err != nil {
			return "", err
		}
		text = line
	} else {
		r := bufio.NewReader(io.LimitReader(stdin, maxTyped+int64(len("\r\n"))+1))
		line, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		// What came with the line is looked at; nobody waits for more, since a pipe may stay open.
		if rest, _ := r.Peek(r.Buffered()); len(bytes.TrimSpace(rest)) > 0 {
			return "", exit.Misusef("several lines were given, and one is wanted; keep.toml also finds what has several lines as ${secret:NAME} in the file .secrets/NAME beside it")
		}
		text = line
	}
	if text = strings.TrimRight(text, "\r\n"); text == "" {
		return "", exit.Misusef("no value was given: type it when it is asked for on a terminal, or write one line to standard input")
	}
	if len(text) > maxTyped { // its beginning is another value
		return "", exit.Misusef("the value has more than %d bytes, and nothing was stored", maxTyped)
	}
	return text, ctx.Err()
}

// readTyped reads a line from a terminal, which shows nothing of it from before the prompt
// on; empty if Ctrl-C or Ctrl-D ended it. However it ends, also by a signal that ends ctx,
// the terminal is as before.
func (a *app) readTyped(ctx context.Context, prompt string, from *os.File) (string, error) {
	fd := int(from.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(fd, before) }()
	type typed struct {
		line string
		err  error
	}
	got := make(chan typed, 1)
	go func() {
		line, err := term.NewTerminal(onTerminal{from, a.Err}, "").ReadPassword(prompt)
		got <- typed{line, err}
	}()
	select {
	case t := <-got:
		if errors.Is(t.err, io.EOF) {
			fmt.Fprint(a.Err, "\r\n")
			return "", nil
		}
		return t.line, t.err
	case <-ctx.Done(): // what still reads ends with the process
		fmt.Fprint(a.Err, "\r\n")
		return "", ctx.Err()
	}
}

// onTerminal reads what is typed, and writes where messages go.
type onTerminal struct {
	io.Reader
	io.Writer
}

// withAccounts opens the database with its accounts. It goes around a daemon: what is sealed
// and the key are read here, and no secret passes through a socket. A host that runs reads the
// rows again at its next call.
func (a *app) withAccounts(ctx context.Context, r database.Role, f func(cfg *config.Config, m *account.Manager, db database.DB) error) error {
	return database.StartedWith("keep connect PACK", a.withStore(ctx, r, func(cfg *config.Config, db database.DB) error {
		o, _, err := a.operatorOf(ctx, cfg, db, nil)
		if err != nil {
			return err
		}
		return f(cfg, a.env().NewAccounts(func() *config.Config { return cfg }, db, o.SettleAccounts), db)
	}))
}

// keyError gives what is wrong with the key its exit status: the person has to put the key back,
// or to change who can read it. Trying again does not help.
func keyError(err error) error {
	_, open := errors.AsType[*seal.PermissionError](err)
	_, lost := errors.AsType[*account.LostKeyError](err)
	if open || lost {
		return exit.Misusef("%w", err)
	}
	return err
}

// accountsCmd lists accounts and works on them.
func (a *app) accountsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{
			Use: "accounts", Aliases: []string{"account"}, Short: "Accounts of services: who connected them, and whether they work",
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.listAccounts(cmd.Context()) },
		}
	}
	one := func(use, short string, run func(ctx context.Context, name string) error) *cobra.Command {
		return &cobra.Command{Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return keyError(run(cmd.Context(), args[0])) }}
	}
	yes, discard := false, false
	revoke := one("revoke", "Revoke an account at its service, and forget it", func(ctx context.Context, name string) error {
		return a.withAccounts(ctx, database.ToDecide, func(_ *config.Config, m *account.Manager, _ database.DB) error {
			// A wrong name is said before --yes is asked for.
			if _, err := namedAccount(ctx, m, name); err != nil {
				return err
			}
			if !yes {
				return exit.Misusef("workflows that use %s will stop; to revoke it: keep accounts revoke %s --yes", name, name)
			}
			done, err := m.Revoke(ctx, name, time.Time{})
			switch {
			case err != nil:
				return err
			case done.Error != "":
				fmt.Fprintf(a.Err, "Account %s is forgotten here; %s.\n", name, done.Error)
			default:
				fmt.Fprintf(a.Err, "Account %s is revoked.\n", name)
			}
			return nil
		})
	})
	revoke.Long = `Revoke tells the service that the tokens of an account are not wanted any more, and
forgets them here. A service cannot be told that of a key which was typed: it is
forgotten here alone, and is good until it is ended in the settings of the service.`
	revoke.Flags().BoolVar(&yes, "yes", false, "do it")
	rekey := &cobra.Command{Use: "rekey", Short: "Seal all accounts and secrets with a new key", Args: cobra.NoArgs,
		Long: `Rekey makes a new key beside keep.key, seals everything with it, and puts it in the
place of the old one. If it is interrupted, nothing is lost: run it again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAccounts(cmd.Context(), database.ToDecide, func(cfg *config.Config, m *account.Manager, _ database.DB) error {
				// The new key is on disk before the first row is sealed with it, and takes the place of the old
				// one after the last: whatever a kill leaves, the keys that are there open everything.
				n, err := m.Rekey(cmd.Context(), discard)
				if err != nil {
					return keyError(err)
				}
				fmt.Fprintf(a.Err, "%s sealed with a new key, which is in %s.\n", terminal.Plural(n, "row"), terminal.Short(cfg.Ring.Where()))
				return nil
			})
		}}
	rekey.Flags().BoolVar(&discard, "discard", false, "delete what no key opens, because its key is lost")
	// Testing, renewing and revoking have the role of decisions, although they read first: tokens
	// may be renewed on the way, and the new ones must be stored before they are used.
	return noun("accounts", list, one("show", "Show an account with its requests for new tokens", a.showAccount),
		one("test", "Make one read with an account, which shows whether it works", a.testAccount),
		one("renew", "Get new tokens of an account now", a.renewAccount), revoke, rekey,
		a.exportAccountCmd(), a.importAccountCmd(), a.recipientCmd())
}

// listAccounts prints the accounts with the workflows that depend on each.
func (a *app) listAccounts(ctx context.Context) error {
	return a.withAccounts(ctx, database.ToRead, func(cfg *config.Config, m *account.Manager, db database.DB) error {
		all, err := m.Accounts(ctx)
		if err != nil {
			return err
		}
		used, err := daemon.UsedBy(ctx, cfg, db)
		if err != nil {
			return err
		}
		// Not nil: an empty list is [] in JSON.
		lines := []api.Account{}
		t := terminal.Table{Header: []string{"ACCOUNT", "PACK", "STATUS", "OF", "CONNECTED BY", "EXPIRES", "LAST SUCCESS"}}
		for _, acc := range all {
			v := api.AccountOf(acc, used[acc.Name], a.Now())
			lines = append(lines, v)
			status := string(v.Status)
			if v.Error != nil {
				status += ": " + terminal.Clean(*v.Error)
			}
			t.Add(v.Name, v.Pack, status, terminal.Clean(acc.Subject), terminal.Clean(v.ConnectedBy), a.sinceThen(v.ExpiresAt), a.sinceThen(v.LastUsedAt))
		}
		if a.JSON {
			return a.PrintJSON(lines)
		}
		return t.Print(a.Out, a.OutInk)
	})
}

// namedAccount returns the account of a name; of one that is not there, the error makes the
// command end with the status of what is not found.
func namedAccount(ctx context.Context, m *account.Manager, name string) (keep.Account, error) {
	all, err := m.Accounts(ctx)
	if err != nil {
		return keep.Account{}, err
	}
	i := slices.IndexFunc(all, func(v keep.Account) bool { return v.Name == name })
	if i < 0 {
		return keep.Account{}, &keep.NotFoundError{What: "account", ID: name}
	}
	return all[i], nil
}

// showAccount prints an account and its requests for new tokens, oldest first: one that was sent
// and has no answer may have used the refresh token up.
func (a *app) showAccount(ctx context.Context, name string) error {
	return a.withAccounts(ctx, database.ToRead, func(cfg *config.Config, m *account.Manager, db database.DB) error {
		found, err := namedAccount(ctx, m, name)
		if err != nil {
			return err
		}
		used, err := daemon.UsedBy(ctx, cfg, db)
		if err != nil {
			return err
		}
		detail := api.AccountDetail{Account: api.AccountOf(found, used[name], a.Now()), Refreshes: api.RefreshesOf(found)}
		if a.JSON {
			return a.PrintJSON(detail)
		}
		a.printAccount(detail.Account)
		for _, r := range detail.Refreshes {
			fmt.Fprintf(a.Out, "refresh of generation %d by %s at %s: %s\n", r.Generation, terminal.Clean(r.Host), a.At(r.SentAt), r.State)
		}
		return nil
	})
}

// printAccount prints all that is known of an account but its credential.
func (a *app) printAccount(v api.Account) {
	fmt.Fprintf(a.Out, "%s of %s: %s, generation %d\n", v.Name, v.Pack, v.Status, v.Generation)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(a.Out, "%s: %s\n", what, text)
		}
	}
	if v.Error != nil {
		line("problem", terminal.Clean(*v.Error))
	}
	if v.Subject != nil {
		line("user", terminal.Clean(*v.Subject))
	}
	line("scopes", terminal.Clean(strings.Join(v.Scopes, " ")))
	line("connected", fmt.Sprintf("%s by %s", a.At(v.ConnectedAt), terminal.Clean(v.ConnectedBy)))
	if v.ExpiresAt != nil {
		line("expires", a.sinceThen(v.ExpiresAt))
	}
	line("last success", a.sinceThen(v.LastUsedAt))
	line("workflows that use it", usedBy(v.Workflows))
}

// usedBy names workflows on one line.
func usedBy(workflows []keep.WorkflowName) string {
	if len(workflows) == 0 {
		return "none so far"
	}
	names := make([]string, len(workflows))
	for i, w := range workflows {
		names[i] = string(w)
	}
	return strings.Join(names, ", ")
}

// testAccount makes the read that the pack names for this. Its status tells a credential that
// the service refuses, which a person has to replace (4), from a service that does not answer
// (1), which may be tried again.
func (a *app) testAccount(ctx context.Context, name string) error {
	return a.withAccounts(ctx, database.ToDecide, func(cfg *config.Config, m *account.Manager, _ database.DB) error {
		err := daemon.TestAccount(ctx, cfg, m, name)
		f, _ := errors.AsType[*keep.Failure](err)
		switch {
		// Not every pack has a read that does no more than show whether a credential works.
		case errors.Is(err, config.ErrNoTest):
			return exit.Misusef("%w", err)
		case errors.Is(err, keep.ErrNotFound):
			return err
		case err == nil:
			fmt.Fprintf(a.Err, "Account %s works.\n", name)
			return nil
		case f != nil && f.Class == keep.ClassPermission:
			fmt.Fprintf(a.Err, "%s %s\n", a.Ink.Red("keep:"), terminal.CleanText(err.Error()))
			return exit.With(exit.NeedsPerson)
		}
		return exit.Failedf("%w", err)
	})
}

// renewAccount asks for new tokens although the old ones may still be good. That the service
// refuses is no error of the renewal but a state of the account, and needs a person.
func (a *app) renewAccount(ctx context.Context, name string) error {
	return a.withAccounts(ctx, database.ToDecide, func(_ *config.Config, m *account.Manager, _ database.DB) error {
		acc, err := m.Renew(ctx, name)
		if err != nil {
			return err
		}
		if acc.Status != keep.AccountOK {
			fmt.Fprintf(a.Err, "Account %s is %s: %s\n", name, acc.Status, terminal.Clean(acc.Error))
			return exit.With(exit.NeedsPerson)
		}
		fmt.Fprintf(a.Err, "Account %s has generation %d.\n", name, acc.Generation)
		return nil
	})
}

// secretsCmd stores secrets in the database.
func (a *app) secretsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{Use: "secrets", Aliases: []string{"secret"}, Short: "Secrets in the database: which are stored, and who set them", Args: cobra.NoArgs,
			Long: `Secrets lists the secrets that the database holds, sealed with the key of keep.key. One
is what ${secret:NAME} of keep.toml stands for, unless the environment or a file has that
name. Values are never shown.`,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.listSecrets(cmd.Context()) }}
	}
	set := &cobra.Command{Use: "set NAME", Short: "Store a secret, or replace it", Args: cobra.ExactArgs(1),
		Long: `Set seals a value with the key of keep.key and stores it, in place of one of that name. The
value is typed, and not shown, or is one line of standard input; it is never an argument.
keep.toml uses it as ${secret:NAME}. A running host takes it between two calls.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, name := cmd.Context(), args[0]
			// Before a value is typed that could not be stored.
			if err := daemon.CheckSecretName(name); err != nil {
				return exit.Misusef("%w", err)
			}
			return a.withAccounts(ctx, database.ToDeploy, func(_ *config.Config, m *account.Manager, _ database.DB) error {
				value, err := a.readSecret(ctx, "Value of "+name+": ", cmd.InOrStdin())
				if err != nil {
					return err
				}
				if err := daemon.SetSecret(ctx, m, name, value, daemon.User()); err != nil {
					if bad, ok := errors.AsType[*web.SecretError](err); ok {
						return exit.Misusef("%w", bad)
					}
					return keyError(err)
				}
				fmt.Fprintf(a.Err, "Secret %s is set.\n", name)
				return nil
			})
		}}
	rm := &cobra.Command{Use: "rm NAME", Short: "Remove a secret", Args: cobra.ExactArgs(1),
		Long: `Remove deletes a stored secret. A running host whose keep.toml refers to it continues with the
value that it has; it takes no other change of keep.toml and does not start again until the
secret is set, or keep.toml does not refer to it any more. To end access, revoke the secret
at the service.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSecrets(cmd.Context(), database.ToDecide, func(m *account.Manager) error {
				err := daemon.RemoveSecret(cmd.Context(), m, args[0])
				if err == nil {
					fmt.Fprintf(a.Err, "Secret %s is removed.\n", args[0])
				}
				return err
			})
		}}
	return noun("secrets", list, set, rm)
}

// withSecrets is withAccounts for secrets that are there.
func (a *app) withSecrets(ctx context.Context, r database.Role, f func(m *account.Manager) error) error {
	return database.StartedWith("keep secrets set NAME", a.withAccounts(ctx, r, func(_ *config.Config, m *account.Manager, _ database.DB) error { return f(m) }))
}

// listSecrets prints names and who set them. Values stay sealed, so it needs no key.
func (a *app) listSecrets(ctx context.Context) error {
	return a.withSecrets(ctx, database.ToRead, func(m *account.Manager) error {
		all, err := m.Secrets(ctx)
		if err != nil {
			return err
		}
		lines := []api.Secret{}
		t := terminal.Table{Header: []string{"SECRET", "SET BY", "SET"}}
		for _, s := range all {
			v := api.SecretOf(s)
			lines = append(lines, v)
			t.Add(v.Name, terminal.Clean(v.SetBy), a.At(v.SetAt))
		}
		if a.JSON {
			return a.PrintJSON(lines)
		}
		return t.Print(a.Out, a.OutInk)
	})
}
