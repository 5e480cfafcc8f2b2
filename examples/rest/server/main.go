// Command server is a small JSON API to try Keep on. It keeps everything in
// memory and listens on loopback only.
//
//	GET  /signups                  people who asked for an account
//	GET  /contacts?request=ID      contacts, those made by one request if given
//	POST /contacts                 makes a contact, each time that it is asked to
//	GET  /messages                 messages that were sent
//	POST /messages                 sends a message, once for each Idempotency-Key
//	GET  /mail?query=Q             mails, for ../../s3
//
// POST /contacts remembers the X-Request-Id of a request, and that is all it
// does with it: whoever sends a request again gets a second contact. POST
// /messages takes a request with a known key for the same one.
//
// With -silent N the server does what the first N POST requests ask for and
// then doesn't answer, as a service does whose answer is lost on the way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx is done and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:9000", "listen on this loopback `address`")
	silent := flags.Int("silent", 0, "do what the first `N` POST requests ask for, and don't answer")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := serve(ctx, *addr, newAPI(*silent, stdout), stdout); err != nil {
		fmt.Fprintln(stderr, "server:", err)
		return 1
	}
	return 0
}

// serve says where it listens, and answers until ctx is done.
func serve(ctx context.Context, addr string, h http.Handler, stdout io.Writer) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address such as 127.0.0.1:9000", addr)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", l.Addr())
	srv := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
