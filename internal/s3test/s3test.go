// Package s3test starts a real S3 server for tests: versitygw, which test.sh builds once
// into the user's cache. A test without it is skipped with a line that says so.
package s3test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/internal/testserver"
)

// Version is the version of versitygw that test.sh builds.
const Version = "versitygw@v1.8.0"

// The credentials of the server, and its bucket.
const (
	AccessKey = "keep-test-access"
	SecretKey = "keep-test-secret-7"
	Bucket    = "things"
)

// A Server is a running versitygw that belongs to this process.
type Server struct {
	Addr string // host:port

	port *port.Port
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// ErrMissing is returned when the machine has no versitygw.
var ErrMissing = errors.New("no versitygw on this machine; test.sh builds it")

var shared = testserver.Shared[*Server]{Start: Start, Missing: ErrMissing}

// Main runs the tests of a package and then stops the server, if it was started. TestMain
// calls it.
func Main(m *testing.M) int { return shared.Main(m) }

// Shared returns the server of the test binary.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	return shared.Get(tb)
}

// program returns the server's program.
func program() (string, error) {
	if path, err := exec.LookPath("versitygw"); err == nil {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "keep-test", Version, "versitygw")
	if _, err := os.Stat(path); err != nil {
		return "", ErrMissing
	}
	return path, nil
}

// Start starts a server with one empty bucket.
func Start() (*Server, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "s3test")
	if err != nil {
		return nil, err
	}
	held, err := port.Hold()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: held.Addr(), port: held, dir: dir}
	for _, name := range []string{"root", "root/" + Bucket, "meta"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	// Metadata beside the objects, since not every file system has attributes.
	s.cmd = exec.Command(path, "--port", s.Addr, "--access", AccessKey, "--secret", SecretKey, "--quiet", "--keep-alive",
		"posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "root"))
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.ready(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("versitygw: %w: %s", err, s.log.String())
	}
	return s, nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for {
		resp, err := http.Get("http://" + s.Addr + "/")
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-end:
			return err
		case <-tick.C:
		}
	}
}

// Stop ends the server and removes what it keeps.
func (s *Server) Stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
	s.port.Release()
}

// Object returns the content of an object as it is on disk; false if there is none.
func (s *Server) Object(key string) (string, bool) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "root", Bucket, filepath.FromSlash(key)))
	return string(raw), err == nil
}

// Age makes an object one that was put before a time.
func (s *Server) Age(key string, made time.Time) error {
	return os.Chtimes(filepath.Join(s.dir, "root", Bucket, filepath.FromSlash(key)), made, made)
}
