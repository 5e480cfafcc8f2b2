package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/keep-run/keep/internal/garbage"
	"github.com/keep-run/keep/script/sandbox"
)

// main connects run to the process: its arguments, streams, signals and status.
func main() {
	// First: this process may be the bundler that another keep started, and then nothing below runs.
	sandbox.BundlerMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	withoutCores()               // before any key or token is read
	garbage.Pace()
	a := newApp(os.Stdout, os.Stderr)
	a.hangups, a.outlive = hangups, outlive
	os.Exit(a.execute(ctx, os.Args[1:]))
}

// hangups returns a channel of SIGHUP, which from then on does not end the process, until
// stop is called.
func hangups() (ch <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// outlive lets the process live on when nobody reads what it prints any more: what it writes there fails then, and nothing else. It
// listens to the signal instead of ignoring it, since programs that it starts would ignore it, too.
func outlive() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// run executes one command line and returns the exit status. It is all of the
// command but the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return newApp(stdout, stderr).execute(ctx, args)
}

// execute executes one command line and returns the exit status.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	cmd, err := root.ExecuteContextC(ctx)
	a.JSON = a.JSON || !a.started && slices.Contains(args, "--json") // a flag before it may be wrong
	return a.finish(cmd, a.withLost(err))
}
