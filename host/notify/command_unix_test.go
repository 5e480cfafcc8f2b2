//go:build unix

package notify_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
)

// command returns a command that runs a shell script in a directory of its own.
func command(t *testing.T, script string, log *bytes.Buffer, args ...string) (*notify.Command, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tell.sh"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := notify.NewCommand(append([]string{"./tell.sh"}, args...), dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

var message = notify.Message{ID: "esc_1", At: time.Unix(1_800_000_000, 0), Body: []byte(`{"data":"hunter2"}`)}

// A program gets the message on its input alone, and no secret of Keep's
// environment.
func TestCommandGetsTheMessageOnItsInput(t *testing.T) {
	t.Setenv("KEEP_SECRET_CRM", "hunter2")
	t.Setenv("TOKEN", "hunter2")
	var log bytes.Buffer
	c, dir := command(t, `cat > input; echo "$0 $@" > args; env > env; echo said something`, &log, "team", "two words")
	if err := c.Deliver(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	for file, check := range map[string]func(string) bool{
		"input": func(s string) bool { return s == string(message.Body) },
		"args":  func(s string) bool { return strings.HasSuffix(s, "/tell.sh team two words\n") },
		"env": func(s string) bool {
			return strings.Contains(s, "PATH=") && !strings.Contains(s, "hunter2") && !strings.Contains(s, "KEEP_")
		},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !check(string(text)) {
			t.Errorf("%s has %q, %v", file, text, err)
		}
	}
	if !strings.Contains(log.String(), `question=esc_1 output="said something\n"`) {
		t.Errorf("the log has %s", &log)
	}
}

func TestCommandThatFails(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	for script, want := range map[string]string{
		"echo the pager is off >&2; exit 3":              "tell.sh: exit status 3: the pager is off",
		"head -c 1000000 /dev/zero | tr '\\0' x; exit 1": "… (1000000 bytes)",
		"exit 1": "tell.sh: exit status 1",
	} {
		c, _ := command(t, script, &log)
		err := c.Deliver(t.Context(), message)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 5000 {
			t.Errorf("Deliver = %.200v, want %q", err, want)
		}
	}
	c, _ := command(t, "head -c 1000000 /dev/zero | tr '\\0' x", &log)
	if err := c.Deliver(t.Context(), message); err != nil || log.Len() > 6000 {
		t.Errorf("Deliver = %v, and the log has %d bytes", err, log.Len())
	}
	if _, err := notify.NewCommand(nil, "", nil); err == nil {
		t.Error("an empty command is not refused")
	}
}

// A program that hangs is killed at its time, with what it started.
func TestCommandThatHangs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c, dir := command(t, "sleep 1000 & echo $! > child.tmp; mv child.tmp child; wait", &log)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Deliver(ctx, message) }()
	pid := waitForPID(t, filepath.Join(dir, "child"))
	late := &keep.TimeoutError{Op: "notify", After: time.Second}
	cancel(late)
	if err := <-ended; !errors.Is(err, late) {
		t.Errorf("Deliver = %v, want %v", err, late)
	}
	eventually(t, "the child is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid) })
}

// isZombie reports whether a process is dead and nobody has asked for its status;
// in a container there may be no init that does.
func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func waitForPID(t *testing.T, file string) (pid int) {
	t.Helper()
	eventually(t, "the program has started", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// eventually waits for a fact.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}

// A program may leave another running that has its output, as a player of sounds, and has taken the message all the same.
func TestCommandThatLeavesAnother(t *testing.T) {
	var log bytes.Buffer
	c, dir := command(t, "sleep 600 & echo $! > left", &log)
	err := c.Deliver(t.Context(), message)
	left, unread := os.ReadFile(filepath.Join(dir, "left"))
	if unread != nil {
		t.Fatal(unread)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(left)))
	if killed := syscall.Kill(pid, syscall.SIGKILL); killed != nil {
		t.Errorf("what it left: %v", killed)
	}
	if err != nil {
		t.Errorf("status 0: %v", err)
	}
}
