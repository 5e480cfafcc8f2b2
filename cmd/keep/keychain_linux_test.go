package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// startKeychain starts a Secret Service with a collection that is open, on a bus of its own.
// It returns the environment of programs that use it, and what ends it.
func startKeychain(tb *testing.T) (env []string, stop func()) {
	tb.Helper()
	for _, program := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			tb.Skip("no gnome-keyring or no D-Bus on this machine; test.sh installs them")
		}
	}
	home := shortDir(tb)
	env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_CACHE_HOME="+cacheHome(tb))
	cmd := exec.CommandContext(tb.Context(), "dbus-run-session", "--", "sh", "-c",
		`printf 'password\n' | gnome-keyring-daemon --unlock --components=secrets >&2; echo "$DBUS_SESSION_BUS_ADDRESS"; cat >/dev/null`)
	cmd.Env = env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		stdin.Close()
		_ = cmd.Wait() // it ends with its input
	})
	tb.Cleanup(stop)
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("no keychain: %v", err)
	}
	return append(env, "DBUS_SESSION_BUS_ADDRESS="+strings.TrimSpace(address)), stop
}

// The key is in the keychain of the system if keep.toml says so: one key, whoever makes it
// first; replaced without a moment in which anything cannot be opened, also by commands that
// are killed; and never made anew while the keychain cannot be asked.
func TestKeychain(t *testing.T) {
	t.Parallel()
	env, stop := startKeychain(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte("[accounts]\nkeychain = \"invoices\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(stdin string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
		cmd.Dir, cmd.Env, cmd.Stdin = dir, env, strings.NewReader(stdin)
		return cmd
	}
	keep := func(want int, says, stdin string, args ...string) string {
		t.Helper()
		cmd := command(stdin, args...)
		out, _ := cmd.CombinedOutput() // the status says it
		if status := cmd.ProcessState.ExitCode(); status != want || !strings.Contains(string(out), says) {
			t.Errorf("keep %s: status %d, want %d with %s: %s", strings.Join(args, " "), status, want, says, out)
		}
		return string(out)
	}
	keep(exit.Done, "", "", "db", "migrate")
	var first sync.WaitGroup
	for n := range 4 {
		first.Go(func() { keep(exit.Done, "is set", "value", "secrets", "set", fmt.Sprint("s", n)) })
	}
	first.Wait()
	before := keep(exit.Done, "age1", "", "accounts", "recipient")
	keep(exit.Done, `4 rows sealed with a new key, which is in "invoices" in the keychain`, "", "accounts", "rekey")
	if after := keep(exit.Done, "age1", "", "accounts", "recipient"); after == before {
		t.Error("the key is the one of before")
	}
	for n := range 4 {
		cmd := command("", "accounts", "rekey")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		killIn(cmd, ended, "", time.Duration(n+1)*20*time.Millisecond)
	}
	keep(exit.Done, "4 rows", "", "accounts", "rekey") // it opens all of them, or changes nothing
	files, err := filepath.Glob(filepath.Join(dir, "*key*"))
	if err != nil || len(files) > 0 {
		t.Errorf("beside the database there are %v, %v", files, err)
	}
	keep(exit.Done, "is connected", "a-key", "connect", "stripe", "--name", "shop")
	keep(exit.Done, `"status": "ok"`, "", "accounts", "--json")

	stop()
	keep(exit.Failed, "could not be read", "value", "secrets", "set", "other")
	keep(exit.Failed, "KEEP_KEY", "", "accounts", "rekey")
	keep(exit.Done, "could not be read", "", "accounts", "--json")
	for _, name := range []string{"status", "secrets", "runs"} {
		keep(exit.Done, "", "", name)
	}
	keep(exit.Done, "", "", "db", "check")
}
