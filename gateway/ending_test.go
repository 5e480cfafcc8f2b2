package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// A session that ends while its client still sends waits for what it began, and nothing more.
func TestEndWhileFramesCome(t *testing.T) {
	t.Parallel()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g, err := gateway.New(t.Context(), db, gateway.Config{Alone: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		toGateway, in := io.Pipe()
		out, fromGateway := io.Pipe()
		go func() {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
					return
				}
			}
		}()
		go func() {
			answers := bufio.NewReader(out)
			for n := 0; ; n++ {
				if _, err := answers.ReadString('\n'); err != nil {
					return
				}
				if n == 2 {
					cancel()
				}
			}
		}()
		if err := g.ServeStdio(ctx, "a", toGateway, fromGateway); err != nil {
			t.Error(err)
		}
		toGateway.Close()
		fromGateway.Close()
		cancel()
	}
}
