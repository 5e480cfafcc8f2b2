package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A screen is a pseudo-terminal with one process on it.
type screen struct {
	testing.TB
	us, it *os.File // the two ends
	cmd    *exec.Cmd
	shown  strings.Builder
}

// onScreen starts a command on a terminal of its own.
func onScreen(tb testing.TB, cmd *exec.Cmd) *screen {
	tb.Helper()
	us, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { us.Close() })
	n, err := unix.IoctlGetInt(int(us.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(us.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	it, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { it.Close() })
	cmd.Stdin, cmd.Stdout, cmd.Stderr = it, it, it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return &screen{TB: tb, us: us, it: it, cmd: cmd}
}

// sees waits until the screen shows a text.
func (s *screen) sees(want string) {
	s.Helper()
	late := time.AfterFunc(30*time.Second, func() { // a terminal without a process ends the read
		s.cmd.Process.Kill()
		s.it.Close()
	})
	defer late.Stop()
	for buf := make([]byte, 1024); !strings.Contains(s.shown.String(), want); {
		n, err := s.us.Read(buf)
		if err != nil {
			s.Fatalf("%v; the screen shows %q, want %q", err, s.shown.String(), want)
		}
		s.shown.Write(buf[:n])
	}
}

// types types a text.
func (s *screen) types(text string) {
	s.Helper()
	if _, err := s.us.WriteString(text); err != nil {
		s.Fatal(err)
	}
}

// ends waits for the process, and returns its status. The terminal shows what is typed then.
func (s *screen) ends() int {
	s.Helper()
	_ = s.cmd.Wait() // the status says it
	modes, err := unix.IoctlGetTermios(int(s.it.Fd()), unix.TCGETS)
	if err != nil {
		s.Fatal(err)
	}
	if modes.Lflag&unix.ECHO == 0 || modes.Lflag&unix.ICANON == 0 || modes.Lflag&unix.ISIG == 0 || modes.Oflag&unix.OPOST == 0 {
		s.Errorf("the terminal is left without echo: %+v", modes)
	}
	return s.cmd.ProcessState.ExitCode()
}

// A key, a password, a secret and a passphrase are typed without being shown, from the moment
// at which they are asked for. Ctrl-C and a signal end the question at once, store nothing, and leave a
// terminal that shows what is typed.
func TestTypedWithoutEcho(t *testing.T) {
	t.Parallel()
	s := sealedDir{t, t.TempDir()}
	s.must("keep db migrate")
	on := func(args ...string) *screen {
		cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TERM=xterm", "XDG_CACHE_HOME="+cacheHome(t))
		return onScreen(t, cmd)
	}
	told := on("connect", "stripe", "--name", "shop")
	told.sees("Credential of Stripe (bearer): ")
	told.types("canary-of-a-key")
	if err := told.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := told.ends(); status == exit.Done || strings.Contains(told.shown.String(), "canary") {
		t.Errorf("a signal: status %d: %q", status, told.shown.String())
	}
	for _, c := range []struct{ command, asks, typed, says string }{
		{"connect stripe --name shop", "Credential of Stripe (bearer): ", "canary-of-a-key", "Account shop of Stripe is connected"},
		{"connect stripe --token --name other", "Credential of Stripe (bearer): ", "canary-of-a-token", "Account other of Stripe is connected"},
		{"connect gmail --token --name mail", "Credential of Gmail (oauth2): ", "canary-app-password", "Account mail of Gmail is connected"},
		{"secrets set crm", "Value of crm: ", "canary-of-a-secret", "Secret crm is set."},
		{"accounts export shop --out shop.age", "Passphrase for the file: ", "canary-passphrase", ""},
		{"accounts import shop.age --replace", "Passphrase of the file: ", "canary-passphrase", "Account shop is stored."},
	} {
		again := on(strings.Fields(c.command)...)
		again.sees(c.asks)
		again.types(c.typed + "\x03")
		if status := again.ends(); status == exit.Done || strings.Contains(again.shown.String(), "canary") {
			t.Fatalf("%s, and Ctrl-C: status %d: %q", c.command, status, again.shown.String())
		}
		p := on(strings.Fields(c.command)...)
		p.sees(c.asks)
		p.types(c.typed + "\r")
		if c.says != "" {
			p.sees(c.says)
		}
		if status := p.ends(); status != exit.Done || strings.Contains(p.shown.String(), "canary") {
			t.Fatalf("%s: status %d: %q", c.command, status, p.shown.String())
		}
	}
	if out := s.must("keep accounts --json"); strings.Count(out, `"generation": 1`) != 2 || strings.Count(out, `"generation": 2`) != 1 {
		t.Errorf("what was interrupted was stored: %s", out)
	}
	if out := s.must("keep accounts export shop --out again.age <<.\ncanary-passphrase\n.\nkeep accounts import again.age --replace <<.\ncanary-passphrase\n.\n"); !strings.Contains(out, "is stored") {
		t.Errorf("the passphrase that was typed opens nothing: %s", out)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "shop.age")); err != nil {
		t.Error(err)
	}
}
