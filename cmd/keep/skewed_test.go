package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// skewedMain is main on a machine whose clock is wrong by $CLOCK_OFF.
func skewedMain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	off, err := time.ParseDuration(os.Getenv("CLOCK_OFF"))
	if err != nil {
		panic(err)
	}
	a := newApp(os.Stdout, os.Stderr)
	a.Clock = func() time.Time { return time.Now().Add(off) }
	root := a.root()
	root.SetArgs(os.Args[1:])
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	os.Exit(a.finish(cmd, err))
}
