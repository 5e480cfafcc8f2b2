package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// apiCmd calls the HTTP API of the host of the database, by its socket. Unlike other verbs it does
// not fall back on the database: the answer is to be that of the running process.
func (a *app) apiCmd() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "api METHOD PATH [BODY]", Short: "Call the HTTP API of the running keep serve or keep dev",
		Long: `Api sends one request to the process that runs the database, by the socket beside
the file, which needs no token: only its owner can open it. PATH is below /api/v1;
GET /docs describes all of them. A BODY of - is read from stdin. The answer goes to
stdout as it came; a problem makes the status 1, or 3 for what is not there.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body []byte
			if len(args) == 3 {
				body = []byte(args[2])
			}
			if string(body) == "-" {
				var err error
				// The host takes none that is as large; what is cut is refused there.
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

// callAPI sends one request and prints its answer as it came, a problem too: the one who calls
// the API by hand wants to see what it says. So a status of 400 and more makes an exit status
// without a second message.
func (a *app) callAPI(ctx context.Context, method, path string, body []byte, key string) error {
	if !strings.HasPrefix(path, "/") {
		return exit.Misusef("PATH is %q, want one that begins with a slash, such as /runs", terminal.Clean(path))
	}
	cfg, err := a.configOfDB()
	if err != nil {
		return err
	}
	// A path is taken with and without the prefix, as documents write it.
	res, err := client.CallDaemon(ctx, cfg, method, api.Prefix+strings.TrimPrefix(path, api.Prefix), body, key)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := a.showAnswer(res.Body); err != nil {
		if method != http.MethodGet && method != http.MethodHead && res.StatusCode < http.StatusMultipleChoices {
			return client.Done(err)
		}
		return err
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return exit.With(exit.NotFound)
	case res.StatusCode >= 400:
		return exit.With(exit.Failed)
	}
	return nil
}

// showAnswer prints an answer as it comes, line by line; where a person reads it, without what could disturb a terminal.
func (a *app) showAnswer(body io.Reader) error {
	for in := bufio.NewReader(body); ; {
		line, err := in.ReadString('\n')
		if wrong := a.PrintText(line); wrong != nil {
			return wrong
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
	}
}
