//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency/acceptance"
)

// The whole of it as a user has it: keep idempotency test, with a description that
// can kill and restart, asks keep proxy, on both stores.
func TestIdempotencyTestOfTheProxy(t *testing.T) {
	t.Parallel()
	// Ten requests at once must end before the lease of one of them does, on a busy machine too.
	const lease = 2 * time.Second
	onBothStores(t, func(t *testing.T, db string) {
		up := httptest.NewServer(new(acceptance.Backend))
		defer up.Close()
		// Where it listened once it listens again after each kill.
		first := startProxy(t, db, up.URL, "")
		first.kill()
		listen, admin := strings.TrimPrefix(first.url, "http://"), strings.TrimPrefix(first.admin, "http://")
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		write("keep.toml", fmt.Sprintf("db = %q\n[proxy]\nupstream = %q\nlisten = %q\nadmin_listen = %q\nlease = '%s'\nadmin_token = 't'\n", db, up.URL, listen, admin, lease), 0o600)
		// What a service manager does: start it again when it died.
		write("supervise.sh", "while :; do\n"+buildKeep(t)+" proxy & echo $! > new && mv new pid\nwait $!\ndone\n", 0o700)
		write("target.toml", fmt.Sprintf(`
body = '{"n":"{n}"}'
body_limit = 1048576
response_limit = 8388608
programmable = true
restart = "kill -9 $(cat pid)"
lease = "%s"
admin = "http://%s"
admin_token = "t"
[headers]
Authorization = "Bearer a"
[other_caller]
Authorization = "Bearer b"
`, lease, admin), 0o600)
		supervisor := exec.Command("sh", "supervise.sh")
		supervisor.Dir, supervisor.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
		if err := supervisor.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-supervisor.Process.Pid, syscall.SIGKILL) // with the proxy
			_ = supervisor.Wait()
		})
		awaitProxy(t, "http://"+listen)
		status, out, said := keepIn(t, dir, "idempotency", "test", "http://"+listen+"/orders", "--describe", "target.toml", "--json")
		var results []acceptance.Result
		if err := json.Unmarshal([]byte(out), &results); err != nil {
			t.Fatalf("%v: %s%s", err, out, said)
		}
		passed := 0
		for _, r := range results {
			switch {
			case r.Passed:
				passed++
			case r.Skipped == "" || !strings.Contains(r.Skipped, "store_down"):
				t.Errorf("%s: %s: %s%s", r.Group, r.Name, r.Problem, r.Skipped)
			}
		}
		if status != 0 || passed < 140 {
			t.Errorf("status %d, %d passed: %s", status, passed, said)
		}
	})
}

// awaitProxy waits until a proxy answers.
func awaitProxy(t testing.TB, url string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		status, problem := try(newTransport(t), url, "first")
		if status != 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatal(problem)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			return
		}
	}
}
