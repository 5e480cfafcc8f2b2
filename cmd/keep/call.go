package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
)

// errNoDaemon is returned when nothing answers on the socket.
var errNoDaemon = errors.New("no keep serve or keep dev runs on this database")

// apiCmd calls the HTTP API of the host of the database, by its socket.
func (a *app) apiCmd() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "api METHOD PATH [BODY]", Short: "Call the HTTP API of the running keep serve or keep dev",
		Long: `Api sends one request to the process that runs the database, by the socket beside
the file, which needs no token: only its owner can open it. PATH is below /api/v1;
GET /docs describes all of them. A BODY of - is read from stdin. The answer goes to
stdout as it came; a problem makes the status 1, or 3 for what is not there.`,
		Example: "  keep api GET '/runs?open=true'\n  keep api POST /workflows/invoices/pause --key pause-1\n" +
			`  keep api POST /inputs/skip '{"match": {"q": "newsletter"}, "preview": true}'`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body []byte
			if len(args) == 3 {
				body = []byte(args[2])
			}
			if string(body) == "-" {
				var err error
				if body, err = io.ReadAll(io.LimitReader(os.Stdin, 8<<20)); err != nil {
					return fmt.Errorf("read stdin: %w", err)
				}
			}
			return a.callAPI(cmd.Context(), strings.ToUpper(args[0]), args[1], body, key)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "Idempotency-`Key` of a POST: a repetition gets the first answer")
	return cmd
}

// callAPI sends one request and prints its answer.
func (a *app) callAPI(ctx context.Context, method, path string, body []byte, key string) error {
	if !strings.HasPrefix(path, "/") {
		return misusef("PATH is %q, want one that begins with a slash, such as /runs", clean(path))
	}
	cfg, err := a.loadConfig(".")
	if err != nil && (cfg == nil || cfg.DB == "") {
		return err
	}
	res, err := callDaemon(ctx, cfg, method, api.Prefix+strings.TrimPrefix(path, api.Prefix), body, key)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(a.out, res.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return said(exitNotFound)
	case res.StatusCode >= 400:
		return said(exitFailed)
	}
	return nil
}

// callDaemon sends a request to the daemon of the database. Without one the error
// is errNoDaemon, with the status of what cannot be reached.
func callDaemon(ctx context.Context, cfg *config.Config, method, path string, body []byte, key string) (*http.Response, error) {
	socket := socketOf(cfg)
	if socket == "" {
		return nil, unreachable(fmt.Errorf("%w: server.socket of keep.toml can name a socket for it", errNoDaemon))
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, misusef("%w", err)
	}
	r.Header.Set(access.ByHeader, who())
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := newDaemon(socket).http.RoundTrip(r)
	if errors.Is(err, fs.ErrPermission) {
		return nil, unreachable(err)
	}
	if _, dial := errors.AsType[*net.OpError](err); dial {
		return nil, unreachable(fmt.Errorf("%w: nothing answers at %s", errNoDaemon, short(socket)))
	}
	return res, err
}
