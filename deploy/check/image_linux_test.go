package check

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nonroot is the user of the image.
const nonroot = 65532

// imageRoot makes what a container of the image sees: the command, a directory for the project, and
// what every container has. There is no shell, no library and no list of users.
func imageRoot(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	root := t.TempDir()
	for _, dir := range []string{root, filepath.Dir(root)} { // others have to get there
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"usr/bin", "var/lib/keep", "home/nonroot", "tmp", "dev", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"var/lib/keep", "home/nonroot", "tmp"} {
		if err := os.Chown(filepath.Join(root, dir), nonroot, nonroot); err != nil {
			t.Fatal(err)
		}
	}
	built, err := os.ReadFile(release(t)) // which may be of another file system
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "usr/bin/keep"), built, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	null, proc := filepath.Join(root, "dev/null"), filepath.Join(root, "proc")
	if err := errors.Join(syscall.Mknod(null, syscall.S_IFCHR|0o666, 1<<8|3), os.Chmod(null, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("proc", proc, "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(proc, 0); err != nil {
			t.Error(err)
		}
	})
	return root
}

// inside returns a command as the image runs it.
func inside(root string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/usr/bin/keep", Args: append([]string{"keep"}, args...), Dir: "/var/lib/keep",
		Env:         []string{"HOME=/home/nonroot", "PATH=/usr/bin"},
		SysProcAttr: &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nonroot, Gid: nonroot}},
	}
}

// What the Dockerfile starts works with nothing but the file: a project is made, tested and
// served, the health check answers, and SIGTERM ends it well.
func TestImage(t *testing.T) {
	text, err := os.ReadFile("../container/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`CMD ["/usr/bin/keep", "api", "GET", "/status"]`, `ENTRYPOINT ["/usr/bin/keep"]`, `CMD ["serve", "--log-format", "json"]`, "WORKDIR /var/lib/keep"} {
		if !strings.Contains(string(text), want) {
			t.Fatalf("the Dockerfile has no %s, which is what is tried here", want)
		}
	}
	root := imageRoot(t)
	for _, args := range [][]string{{"init"}, {"test"}, {"deploy", "."}} {
		if said, err := inside(root, args...).CombinedOutput(); err != nil {
			t.Fatalf("keep %v: %v\n%s", args, err, said)
		}
	}
	if said, err := inside(root, "api", "GET", "/status").CombinedOutput(); err == nil {
		t.Errorf("the health check passes before there is a daemon: %s", said)
	}
	serve := inside(root, "serve", "--log-format", "json")
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer serve.Process.Kill() //nolint:errcheck // it has ended
	lines, listens := bufio.NewScanner(log), false
	for !listens && lines.Scan() {
		listens = strings.Contains(lines.Text(), "http://127.0.0.1:")
	}
	if !listens {
		t.Fatal("keep serve did not say where it is")
	}
	said, err := inside(root, "api", "GET", "/status").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "{") {
		t.Errorf("the health check: %v %s", err, said)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to its end
		continue
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("keep serve ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("keep serve did not end")
	}
}
