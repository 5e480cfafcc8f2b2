package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/keep-run/keep/idempotency/acceptance"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
)

func (a *app) idempotencyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "idempotency", Short: "Ask an API whether it keeps the promises of idempotency keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.idempotencyTestCmd())
	return cmd
}

func (a *app) idempotencyTestCmd() *cobra.Command {
	var file string
	var target acceptance.Target
	cmd := &cobra.Command{
		Use:   "test URL",
		Short: "Send an endpoint requests and retries, and check the answers",
		Long: `Test sends the endpoint at URL requests with idempotency keys and checks the
answers. It makes real requests, each of which has its effect: point it at a test
system. What the endpoint can't be asked is skipped.

A file describes the endpoint, in TOML:

  method  = "POST"
  body    = '{"title": "test {n}"}'   # {n} is a new word in each case
  body_limit = 1048576                # bytes; without it no case about it
  [headers]
  Content-Type  = "application/json"
  Authorization = "Bearer one"
  [other_caller]                      # by which another caller is known
  Authorization = "Bearer two"`,
		Example: `  keep idempotency test http://127.0.0.1:7433/orders --describe orders.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := describe(file, &target); err != nil {
				return misusef("%w", err)
			}
			target.URL = args[0]
			return a.idempotencyTest(cmd.Context(), target)
		},
	}
	cmd.Flags().StringVar(&file, "describe", "", "TOML `file` that describes the endpoint")
	return cmd
}

// describe reads a description; no file is an empty one.
func describe(file string, target *acceptance.Target) error {
	if file == "" {
		return nil
	}
	text, err := os.Open(file)
	if err != nil {
		return err
	}
	defer text.Close()
	if err := toml.NewDecoder(text).DisallowUnknownFields().Decode(target); err != nil {
		if strict := new(toml.StrictMissingError); errors.As(err, &strict) {
			return fmt.Errorf("%s: %s", file, strict.String())
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (a *app) idempotencyTest(ctx context.Context, target acceptance.Target) error {
	results, err := acceptance.Run(ctx, target, nil)
	if err != nil {
		return err
	}
	passed, failed, skipped := 0, 0, 0
	t := table{header: []string{"GROUP", "CASE", "RESULT", "WHY"}}
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
		t.add(r.Group, clean(r.Name), word, cutTo(clean(r.Problem+r.Skipped), 120))
	}
	if a.json {
		err = a.printJSON(results)
	} else {
		err = t.print(a.out, a.outInk)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%d passed, %d failed, %d skipped.\n", passed, failed, skipped)
	if failed > 0 {
		return said(exitFailed)
	}
	return nil
}
