package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// loginCmd prints what logs a browser in. Whoever can open the database may.
func (a *app) loginCmd() *cobra.Command {
	return &cobra.Command{
		Use: "login", Short: "Print a link that logs one browser in, once",
		Long: `Login prints a link to the pages of keep serve or keep dev. It works once, within
an hour, and gives the browser all rights: whoever can write the database has them.
For others make tokens: keep token add NAME --role viewer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := a.loginLink(cmd.Context())
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.PrintJSON(map[string]string{"url": link})
			}
			_, err = fmt.Fprintln(a.Out, link)
			return err
		},
	}
}

// loginLink asks the host of the database for a link, since it knows where it is: its port may be
// any that was free. Without one it makes a link to where the configuration says, which works
// once a host serves there.
func (a *app) loginLink(ctx context.Context) (link string, err error) {
	cfg, err := a.configOfDB()
	if err != nil {
		return "", err
	}
	res, err := client.CallDaemon(ctx, cfg, http.MethodPost, daemon.LinkPath, nil, "")
	if err == nil {
		defer res.Body.Close()
		// A link, or a sentence about why there is none.
		text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		if err != nil || res.StatusCode != http.StatusOK {
			return "", errors.Join(exit.Failedf("the host of the database made no link: %s", terminal.Clean(string(text))), err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	if cfg.Server.Listen == "off" && cfg.Server.URL == "" {
		return "", exit.Failedf("server.listen of keep.toml is off: nobody serves the pages")
	}
	err = a.withStore(ctx, database.ToDecide, func(cfg *config.Config, db database.DB) error {
		link, err = access.LoginURL(ctx, db, baseOf(cfg.Server), daemon.User(), a.Now())
		return err
	})
	return link, err
}

// baseOf returns where the pages are, as far as the configuration says.
func baseOf(cfg config.Server) string {
	scheme := "http://"
	if cfg.TLSCert != "" {
		scheme = "https://"
	}
	listen := cmp.Or(cfg.Listen, daemon.DefaultListen)
	// A host that listens on all addresses is found on this machine, where the link is opened.
	if host, port, err := net.SplitHostPort(listen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		listen = net.JoinHostPort("localhost", port)
	}
	return cmp.Or(cfg.URL, scheme+listen)
}

// tokenCmd makes, lists and revokes what programs log in with. The database holds only a hash of
// each: whoever reads it, or a backup, cannot log in.
func (a *app) tokenCmd() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{
			Use: "token", Aliases: []string{"tokens"}, Short: "Tokens for the HTTP API: which there are, and when they end",
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context()) },
		}
	}
	return noun("token", list, a.addTokenCmd(), a.revokeTokenCmd())
}

// A madeToken is a token with its secret, which is shown once, where it is made.
type madeToken struct {
	api.Token
	Secret string `json:"secret"`
}

// addTokenCmd makes a token. It ends after 90 days if nothing else is said, since tokens are
// forgotten where they were used.
func (a *app) addTokenCmd() *cobra.Command {
	role, life := string(access.Operator), 90*24*time.Hour
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make a token and print its secret, once",
		Long: `Add makes a token for a program or a person and prints its secret on stdout. It is
kept nowhere; who loses it makes another. It goes into the header of each request:

  Authorization: Bearer keep_…

Roles: viewer sees; operator also decides, skips, pauses and triggers; author also deploys;
admin may do everything; agent uses keep gateway --listen, and nothing else.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := access.Role(role).Validate(); err != nil {
				return exit.Misusef("--role: %w", err)
			}
			switch {
			case args[0] == "" || len(args[0]) > access.MaxName:
				return exit.Misusef("NAME has %d bytes, want 1 to %d", len(args[0]), access.MaxName)
			case life < 0 || life > 0 && life < time.Second:
				return exit.Misusef("--life is %s, want a second or more, or 0 for no limit", life)
			}
			return a.addToken(cmd.Context(), args[0], role, life)
		},
	}
	cmd.Flags().StringVar(&role, "role", role, "agent, viewer, operator, author or admin")
	cmd.Flags().DurationVar(&life, "life", life, "`duration` until it ends; 0: never")
	return cmd
}

// addToken makes the secret here: nobody else, the daemon included, has it. The secret alone is on
// stdout, so that a shell can take it from there.
func (a *app) addToken(ctx context.Context, name, role string, life time.Duration) error {
	return a.decide(ctx, func(c *api.Client) error {
		secret, id, hash := access.Make()
		t, err := c.AddToken(ctx, api.NewToken{
			ID: id, Hash: hex.EncodeToString(hash), Name: name, Role: access.Role(role), Life: int64(life / time.Second),
		})
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(madeToken{t, secret})
		}
		fmt.Fprintf(a.Err, "Token %s of %s, %s. This is its secret; it is not shown again.\n", t.ID, terminal.Clean(t.Name), t.Role)
		_, err = fmt.Fprintln(a.Out, secret)
		return err
	})
}

// listTokens prints what is known of tokens, which is all but their secrets.
func (a *app) listTokens(ctx context.Context) error {
	return a.look(ctx, func(c *api.Client) error {
		all, err := c.Tokens(ctx)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return a.PrintJSON(all)
		}
		t := terminal.Table{Header: []string{"TOKEN", "NAME", "ROLE", "MADE", "ENDS", "USED"}}
		for _, v := range all {
			t.Add(v.ID, terminal.Clean(v.Name), string(v.Role), a.At(v.CreatedAt), a.maybeAt(v.ExpiresAt), a.maybeAt(v.UsedAt))
		}
		return t.Print(a.Out, a.OutInk)
	})
}

// maybeAt writes a time, or that there is none.
func (a *app) maybeAt(t *api.Time) string {
	if t == nil {
		return "never"
	}
	return a.At(*t)
}

// revokeTokenCmd ends tokens. One that is not there does not keep the others from being ended.
func (a *app) revokeTokenCmd() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID…", Short: "End tokens, and the sessions that were made with them",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decide(cmd.Context(), func(c *api.Client) error {
				var errs []error
				for _, id := range args {
					_, err := c.RevokeToken(cmd.Context(), id)
					if err == nil {
						fmt.Fprintf(a.Err, "Token %s is revoked.\n", terminal.Clean(id))
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}
