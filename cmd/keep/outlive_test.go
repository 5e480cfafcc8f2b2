//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A host whose log nobody reads any more, and a gateway whose client is gone, end in an orderly way: calls that are out, also those of
// other agents, are waited for.
func TestHostsOutliveTheirReaders(t *testing.T) {
	t.Parallel()
	process := func(dir string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
		return cmd
	}
	signaled := func(cmd *exec.Cmd) string {
		_ = cmd.Wait() // the state says it
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signaled() {
			return cmd.ProcessState.String()
		}
		return ""
	}
	dir := t.TempDir()
	put(t, dir, "keep.toml", "db = \"keep.db\"\n")
	serve := process(dir, "serve", "--listen", "off")
	log, err := serve.StderrPipe()
	noError(t, err)
	noError(t, serve.Start())
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		noError(t, err)
		if strings.HasPrefix(line, "Serving") {
			break
		}
	}
	noError(t, log.Close())
	noError(t, serve.Process.Signal(syscall.SIGTERM))
	if how := signaled(serve); how != "" || serve.ProcessState.ExitCode() != 0 {
		t.Errorf("keep serve ended by %s, status %d", how, serve.ProcessState.ExitCode())
	}

	dir = t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", newShelf(t, makes{}).url))
	gateway := process(dir, "gateway")
	in, err := gateway.StdinPipe()
	noError(t, err)
	out, err := gateway.StdoutPipe()
	noError(t, err)
	noError(t, gateway.Start())
	lines := bufio.NewReader(out)
	ask := func(id int) {
		t.Helper()
		_, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n", id)
		noError(t, err)
	}
	ask(1)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"id":1`) {
		t.Fatalf("%v: %s", err, line)
	}
	noError(t, out.Close())
	ask(2)
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":3,"method":"ping"}`+"\n")
	noError(t, err)
	noError(t, in.Close())
	if how := signaled(gateway); how != "" {
		t.Errorf("keep gateway ended by %s", how)
	}
}
