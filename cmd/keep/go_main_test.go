package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/postgres"
)

// goMain is a program that deploys a workflow written in Go at its start, and works until it is
// told to stop. Its build is what its first argument says.
func goMain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := goProgram(ctx, os.Args[1], os.Getenv("GO_PROGRAM_DB")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func goProgram(ctx context.Context, build, url string) (err error) {
	db := postgres.New(url, postgres.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	h, err := host.Open(ctx, db, host.Config{Name: build, Build: build, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	w, err := h.LoadGo(&handler.Workflow{Name: "reminders", Topics: []keep.TopicName{"done"}, Handlers: []handler.Handler{
		handler.Producer{Name: "look", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, in *handler.Ingress) error {
			return in.Publish(ctx, "done", handler.Message{ID: keep.MessageID(build)})
		}},
	}})
	if err != nil {
		return err
	}
	if _, err := h.Deploy(ctx, w); err != nil {
		return err
	}
	return h.Run(ctx)
}
