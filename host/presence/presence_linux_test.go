package presence_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/presence"
)

// TestMain is also the process of a host: it announces itself, starts a child that
// outlives it, says so, and waits to be killed.
func TestMain(m *testing.M) {
	dir := os.Getenv("PRESENCE_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	d, err := presence.Open(dir)
	if err == nil {
		err = d.Announce("host_a")
	}
	child := exec.Command("cat") // until its stdin ends
	child.Stdin = os.Stdin
	if err == nil {
		err = child.Start()
	}
	fmt.Println(err)
	_ = child.Wait()
}

// process starts a host that has announced itself. Its child lives until end is called.
func process(t *testing.T, dir string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PRESENCE_DIR="+dir)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	t.Cleanup(func() { w.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF || said != "<nil>\n" {
		t.Fatalf("the process said %q, %v", said, err)
	}
	return cmd, func() { w.Close() }
}

func open(t *testing.T, dir string) *presence.Directory {
	t.Helper()
	d, err := presence.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A process has ended when it was killed, and not while it lives or is stopped; a child of
// it that lives is another process.
func TestEnded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	cmd, end := process(t, dir)
	defer end()
	d := open(t, dir)
	expect := func(when string, want ...keep.HostID) {
		t.Helper()
		if got := d.Ended(); !slices.Equal(got, want) {
			t.Errorf("%s: %v have ended, want %v", when, got, want)
		}
	}
	if err := d.Announce("host_b"); err != nil {
		t.Fatal(err)
	}
	expect("while both live")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process is not stopped: %v", err)
	}
	expect("while one is stopped")
	if other := open(t, dir).Ended(); len(other) != 0 {
		t.Errorf("for another directory of this process %v have ended", other)
	}
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	expect("after it was killed", "host_a")
	expect("again", "host_a")
	d.Forget("host_a")
	expect("when its leases were given back")
}

// A host that worked for days has ended as provably as any other. What is kept for a day is the file of one that was found to have.
func TestEndedAfterDays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	cmd, end := process(t, dir)
	defer end()
	file, old := filepath.Join(dir, "host_a.host"), time.Now().Add(-48*time.Hour)
	age := func() {
		t.Helper()
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	age() // it was announced then
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	d := open(t, dir)
	for range 2 {
		if got := d.Ended(); !slices.Equal(got, []keep.HostID{"host_a"}) {
			t.Fatalf("%v have ended, want the host", got)
		}
	}
	age() // it was found then, and is of no database here
	if got := d.Ended(); len(got) != 0 {
		t.Errorf("after a day %v have ended", got)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a day its file is there: %v", err)
	}
}

// What was copied, or says that it is of another boot, proves nothing.
func TestCopyProvesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	cmd, end := process(t, dir)
	defer end()
	text, err := os.ReadFile(filepath.Join(dir, "host_a.host"))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "hosts")
	d := open(t, copied)
	write := func(where, text string) {
		t.Helper()
		if err := os.WriteFile(where, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(copied, "host_a.host"), string(text)) // of a process that lives
	if got := d.Ended(); len(got) != 0 {
		t.Errorf("by a copy %v have ended", got)
	}
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	write(filepath.Join(dir, "host_a.host"), "0"+string(text)[1:])
	if string(text)[0] == '0' {
		write(filepath.Join(dir, "host_a.host"), "1"+string(text)[1:])
	}
	if got := open(t, dir).Ended(); len(got) != 0 {
		t.Errorf("by a file of another boot %v have ended", got)
	}
	write(filepath.Join(dir, "host_a.host"), string(text))
	if got := open(t, dir).Ended(); len(got) != 1 {
		t.Errorf("by the file itself %v have ended", got)
	}
}

// A directory to which others may write, a link, and what is no local file system prove
// nothing.
func TestPlacesThatProveNothing(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{shared, link, "/proc/self"} {
		if _, err := presence.Open(dir); !errors.Is(err, presence.ErrNoProof) {
			t.Errorf("Open(%s) = %v, want ErrNoProof", dir, err)
		}
	}
}
