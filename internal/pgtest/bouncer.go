package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/keep-run/keep/internal/port"
)

// Bouncer starts a PgBouncer in transaction mode before the shared server, and
// returns what makes the URL of a database of that server one that goes through it.
// The test is skipped without a PgBouncer on the machine. It stops when the test ends.
func Bouncer(tb testing.TB) func(url string) string {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !exists(program) {
			tb.Skip("pgtest: no pgbouncer on this machine")
		}
	}
	server := shared.Get(tb)
	addr := port.Addr(tb)
	_, at, _ := net.SplitHostPort(addr)
	_, behind, _ := net.SplitHostPort(server.Addr)
	dir, err := os.MkdirTemp("", "bouncer")
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=keep\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 4\n", behind, at)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	cmd := exec.Command(program, config)
	server.owner.run(cmd)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = cmd.Wait() })
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		wg.Wait()
		os.RemoveAll(dir)
	})
	through := func(url string) string {
		return strings.Replace(url, server.Addr, addr, 1) + "&default_query_exec_mode=exec"
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, through(server.URL("postgres")))
		if err == nil {
			conn.Close(ctx)
			return through
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("pgtest: pgbouncer does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
