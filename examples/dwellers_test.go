package examples_test

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An agent whose answers get lost acts once: without the proxy it would act three
// times.
func TestDwellers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"server", "agent"} {
		if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "./dwellers/"+name).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %s", name, out)
		}
	}
	server := "http://" + started(t, exec.Command(filepath.Join(dir, "server"), "-listen", "127.0.0.1:0"), regexp.MustCompile(`^(\S+)$`), false)
	proxy := "http://" + started(t, exec.Command(program("keep"), "proxy", "--config", "dwellers/keep.toml", "--db", filepath.Join(dir, "keys.db"),
		"--upstream", server, "--listen", "127.0.0.1:0", "--admin-listen", "off"), regexp.MustCompile(`^keep proxy: (\S+) in front`), true)
	for _, test := range []struct{ url, count string }{{proxy, "20"}, {server, "80"}} {
		out, err := exec.Command(filepath.Join(dir, "agent"), "-url", test.url).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "20 actions, 60 requests") {
			t.Fatalf("agent: %v\n%s", err, out)
		}
		resp, err := http.Get(server + "/api/count")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := strings.TrimSpace(string(b)); got != test.count {
			t.Errorf("through %s: %s actions so far, want %s", test.url, got, test.count)
		}
	}
}

// started starts a program and returns what the first group of a line's pattern
// has, on stderr if talk, else on stdout.
func started(t *testing.T, cmd *exec.Cmd, line *regexp.Regexp, talk bool) string {
	t.Helper()
	pipe := cmd.StdoutPipe
	if talk {
		pipe = cmd.StderrPipe
	}
	out, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("%s ended without saying %s", cmd.Path, line)
	return ""
}
