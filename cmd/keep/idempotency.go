package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/keep-run/keep/idempotency/acceptance"
	"github.com/keep-run/keep/idempotency/proxy"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/internal/regular"
)

// idempotencyCmd is for owners of an API, whether Keep is in front of it or not. It opens no
// database and reads no keep.toml.
func (a *app) idempotencyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "idempotency", Short: "Ask an API whether it keeps the promises of idempotency keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.idempotencyTestCmd(), a.idempotencyBackendCmd(), a.idempotencyGuideCmd())
	return cmd
}

// idempotencyTestCmd tests an endpoint from outside, as its clients see it.
func (a *app) idempotencyTestCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "test URL",
		Short: "Send an endpoint requests and retries, and check the answers",
		Long: `Test sends the endpoint at URL requests with idempotency keys and checks the
answers. It makes real requests, each of which has its effect: point it at a test
system. What the endpoint can't be asked is skipped, and the table says why.

A file describes the endpoint, in TOML:

  method  = "POST"
  body    = '{"title": "test {n}"}'   # {n} is a new word in each case
  body_limit = 1048576                # bytes; without it no case about it
  programmable = true                 # keep idempotency backend is behind it
  response_limit = 8388608            # with that; the longest answer that is kept
  admin = "http://127.0.0.1:7434"     # the admin address of a keep proxy
  admin_token = "…"                   # its admin_token, if it has one
  restart = "kill -9 $(cat pid)"      # kills the server, which something starts again
  lease = "30s"                       # how long a dead owner is believed to live
  store_down = "./stop-database.sh"   # and store_up
  [headers]
  Content-Type  = "application/json"
  Authorization = "Bearer one"
  [other_caller]                      # by which another caller is known
  Authorization = "Bearer two"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// All is checked before the first request: each of them has its effect.
			d, err := describe(file)
			if err != nil {
				return exit.Misusef("%w", err)
			}
			if u, err := url.Parse(args[0]); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return exit.Misusef("%q is no URL; want http:// or https://, a host and a path", args[0])
			}
			// From the command line alone, so that one file describes a test system and the next.
			d.target.URL = args[0]
			return a.idempotencyTest(cmd.Context(), d.target)
		},
	}
	cmd.Flags().StringVar(&file, "describe", "", "TOML `file` that describes the endpoint")
	return cmd
}

// A description is what the file of keep idempotency test says: the target itself, and what has
// another form in TOML. Commands become functions, and texts become durations.
type description struct {
	target acceptance.Target

	Restart   string         `toml:"restart"`
	StoreDown string         `toml:"store_down"`
	StoreUp   string         `toml:"store_up"`
	Lease     proxy.Duration `toml:"lease"`
}

// maxDescription bounds the description of an endpoint, in bytes (law: bounded).
const maxDescription = 1 << 20

// describe reads a description; no file is an empty one. A key that is not known is an error: a case
// would be skipped silently for a word that was misspelled.
func describe(file string) (d description, err error) {
	if file == "" {
		return d, nil
	}
	text, err := regular.Read(file, maxDescription)
	if err != nil {
		return d, err
	}
	both := struct {
		acceptance.Target
		description
	}{}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&both); err != nil {
		if strict := new(toml.StrictMissingError); errors.As(err, &strict) {
			return d, fmt.Errorf("%s: %s", file, unknownKeys(strict))
		}
		return d, fmt.Errorf("%s: %w", file, err)
	}
	d = both.description
	d.target = both.Target
	d.target.Restart, d.target.StoreDown, d.target.StoreUp = inShell(d.Restart), inShell(d.StoreDown), inShell(d.StoreUp)
	d.target.Lease = time.Duration(d.Lease)
	return d, nil
}

// unknownKeys names the keys that are not known, with their lines. The library would show what stands around them, which may
// be a token.
func unknownKeys(err *toml.StrictMissingError) string {
	var list []string
	for _, e := range err.Errors {
		line, _ := e.Position()
		list = append(list, fmt.Sprintf("line %d: unknown key %q", line, strings.Join(e.Key(), ".")))
	}
	return strings.Join(list, "; ")
}

// inShell returns a function that runs a command of the description; nil for none.
// Processes that the command leaves behind must not keep its output open.
func inShell(command string) func(context.Context) error {
	if command == "" {
		return nil
	}
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.WaitDelay = 5 * time.Second
		if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
		}
		return nil
	}
}

// idempotencyGuideCmd prints what the owner of an API has to tell its clients.
func (a *app) idempotencyGuideCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "guide",
		Short: "Print what clients do about idempotency keys, for the documentation of an API",
		Long: `Guide prints a text in Markdown for the documentation of an API behind keep proxy or
the middleware: what clients send, when they retry, and what each answer means.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.JSON {
				return a.PrintJSON(map[string]string{"text": acceptance.Guide})
			}
			_, err := fmt.Fprint(a.Out, acceptance.Guide)
			return err
		},
	}
}

// idempotencyBackendCmd is a backend that fails as it is told to, for what cannot be asked of a
// real one: lost answers, and how often a request was executed.
func (a *app) idempotencyBackendCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Serve an endpoint that does as the test says, to put behind what is tested",
		Long: `Backend serves an endpoint that answers as the headers of a request say, and counts.
Behind a proxy or gateway it lets keep idempotency test ask everything: describe
the endpoint with programmable = true.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Err, "keep idempotency backend: http://%s\n", l.Addr())
			s := &http.Server{Handler: new(acceptance.Backend), ReadHeaderTimeout: 10 * time.Second}
			defer context.AfterFunc(cmd.Context(), func() { _ = s.Close() })()
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8000", "`address`")
	return cmd
}

// idempotencyTest runs all cases and prints what became of each. The status is 1 if one failed;
// those that were skipped, for what the description does not say, leave it at 0.
func (a *app) idempotencyTest(ctx context.Context, target acceptance.Target) error {
	results, err := acceptance.Run(ctx, target, nil)
	if err != nil {
		return err
	}
	// Skipped cases are printed with the reason: a green test of half the cases must be seen as that.
	passed, failed, skipped := 0, 0, 0
	t := terminal.Table{Header: []string{"GROUP", "CASE", "RESULT", "WHY"}}
	for _, r := range results {
		word := "passed"
		switch {
		case r.Skipped != "":
			word, skipped = "skipped", skipped+1
		case r.Passed:
			passed++
		default:
			word, failed = "FAILED", failed+1
		}
		t.Add(r.Group, terminal.Clean(r.Name), word, terminal.CutTo(terminal.Clean(r.Problem+r.Skipped), 120))
	}
	if a.JSON {
		err = a.PrintJSON(results)
	} else {
		err = t.Print(a.Out, a.OutInk)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "%d passed, %d failed, %d skipped.\n", passed, failed, skipped)
	if failed > 0 {
		return exit.With(exit.Failed)
	}
	return nil
}
