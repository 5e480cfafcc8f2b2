package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A check that is stopped while it waits for the database does not pass: what it did not look at may be wrong.
func TestCheckThatIsStopped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		stop()
		conn.Close()
	}()
	t.Chdir(t.TempDir())
	put(t, ".", "keep.toml", fmt.Sprintf("db = \"postgres://u@%s/x?sslmode=disable\"\n", l.Addr()))
	put(t, ".", "w.js", `export default Keep.workflow({ name: "w", topics: {}, producers: { async poll(ctx) {} } });`)
	var out, talk bytes.Buffer
	if status := run(ctx, []string{"check", "."}, &out, &talk); status != exit.Failed || out.Len() > 0 || ctx.Err() == nil {
		t.Errorf("status %d, want %d; it was stopped: %v\n%s%s", status, exit.Failed, ctx.Err(), out.String(), talk.String())
	}
}
