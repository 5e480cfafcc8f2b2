package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/internal/simtest"
)

// A tortureReport is what keep torture came to.
type tortureReport struct {
	Seed      uint64   `json:"seed"` // the first
	Seeds     int      `json:"seeds"`
	Seconds   float64  `json:"seconds"`
	Crashes   int      `json:"crashes"`
	Faults    int      `json:"faults"`
	Commits   int      `json:"commits"`
	Calls     int      `json:"calls"`
	Effects   int      `json:"effects"`
	Decisions int      `json:"decisions"`
	Broken    []uint64 `json:"broken"` // seeds that broke a law
}

func (a *app) tortureCmd() *cobra.Command {
	c := simtest.Config{}
	trace := false
	cmd := &cobra.Command{
		Use: "torture", Short: "Try to break Keep's guarantees in a simulated world", Args: cobra.NoArgs,
		Long: `Torture lets Keep work in simulated worlds: services lose answers and lie,
commits fail, people decide badly, and the host is killed at any point. At the
end of each world it compares what the services did with what the ledger says.
One seed decides everything that happens in a world, so a seed that breaks a law
can be seen again, step by step, with --trace.

It touches no file, no database and no network.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.For <= 0 && !trace {
				return misusef("--for must be a positive time, such as 10m")
			}
			if c.First == 0 {
				c.First = uint64(time.Now().UnixNano())
			}
			if c.Out = a.err; trace {
				c.Trace = a.err
			}
			return a.torture(cmd.Context(), c)
		},
	}
	cmd.Flags().Uint64Var(&c.First, "seed", 0, "first `seed`; default: one that was never tried")
	cmd.Flags().DurationVar(&c.For, "for", time.Minute, "how long to go on, such as `10m`")
	cmd.Flags().BoolVar(&trace, "trace", false, "print every step of the one seed of --seed")
	return cmd
}

func (a *app) torture(ctx context.Context, c simtest.Config) error {
	fmt.Fprintf(a.err, "simulating worlds from seed %d on\n", c.First)
	r := simtest.Torture(ctx, c)
	if err := a.printTorture(a.out, c.First, r); err != nil {
		return err
	}
	if len(r.Bad) > 0 {
		return said(exitFailed)
	}
	return nil
}

func (a *app) printTorture(out io.Writer, first uint64, r simtest.Report) error {
	if !a.json {
		_, err := fmt.Fprintln(out, r)
		return err
	}
	v := tortureReport{Seed: first, Seeds: r.Seeds, Seconds: r.Took.Seconds(), Crashes: r.Sum.Crashes, Faults: r.Sum.Faults,
		Commits: r.Sum.Commits, Calls: r.Sum.Calls, Effects: r.Sum.Effects, Decisions: r.Sum.Decisions, Broken: []uint64{}}
	for _, bad := range r.Bad {
		v.Broken = append(v.Broken, bad.Seed)
	}
	return a.printJSON(v)
}
