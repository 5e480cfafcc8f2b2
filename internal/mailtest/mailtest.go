// Package mailtest starts a real Dovecot and a real Postfix for tests: one that takes
// mails by SMTP, and one that shows the mailboxes by IMAP. They are children of the test,
// on the loopback, with a configuration and a directory of their own; the system's mail
// is not touched. A test without them, or not run by root as which Postfix must start, is
// skipped with a line that says so.
package mailtest

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/internal/testserver"
)

// Domains of users. Mails from users of Filed are put into their folder Sent by the
// server; mails from others are not.
const (
	Filed   = "filed.example"
	Unfiled = "plain.example"
)

// Password is that of every user.
const Password = "correct-horse-7"

// A Server is a running pair that belongs to this process.
type Server struct {
	SMTP, SMTPS string // host:port; SMTP has STARTTLS
	IMAP, IMAPS string
	CA          string // PEM file of the certificate of all of them

	ports []*port.Port
	dir   string
	uid   int
	gid   int
	cmds  []*exec.Cmd

	issuer *httptest.Server // says whose an access token is

	mu     sync.Mutex
	users  int
	tokens map[string]string // users by the access tokens that are good
}

// ErrMissing is returned when the machine has no Dovecot or no Postfix.
var ErrMissing = errors.New("no Dovecot or no Postfix on this machine, or not root")

var shared = testserver.Shared[*Server]{Start: Start, Missing: ErrMissing}

// Main runs the tests of a package and then stops the servers, if they were started.
// TestMain calls it.
func Main(m *testing.M) int { return shared.Main(m) }

// Shared returns the servers of the test binary.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s := shared.Get(tb)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s", s.Log())
		}
	})
	return s
}

// Start starts both servers.
func Start() (*Server, error) {
	dovecot, err1 := find("dovecot", "/usr/sbin/dovecot")
	_, err2 := find("postfix", "/usr/sbin/postfix")
	nobody, err3 := user.Lookup("nobody")
	if err := errors.Join(err1, err2, err3); err != nil || os.Getuid() != 0 {
		return nil, errors.Join(ErrMissing, err)
	}
	dir, err := os.MkdirTemp("", "mailtest")
	if err != nil {
		return nil, err
	}
	s := &Server{tokens: map[string]string{}, dir: dir, CA: filepath.Join(dir, "cert.pem")}
	s.issuer = httptest.NewServer(http.HandlerFunc(s.introspect))
	s.uid, _ = strconv.Atoi(nobody.Uid)
	s.gid, _ = strconv.Atoi(nobody.Gid)
	if err := s.start(dovecot); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// find returns a program that may not be in PATH.
func find(name, path string) (string, error) {
	if found, err := exec.LookPath(name); err == nil {
		return found, nil
	}
	_, err := os.Stat(path)
	return path, err
}

func (s *Server) start(dovecot string) error {
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"mail", "run", "state", "postfix", "queue", "data"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chown(filepath.Join(s.dir, "mail"), s.uid, s.gid); err != nil {
		return err
	}
	if err := writeCertificate(s.CA, filepath.Join(s.dir, "key.pem")); err != nil {
		return err
	}
	if err := s.holdPorts(); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	return s.run(dovecot)
}

// holdPorts finds four that are free, and holds them until Stop.
func (s *Server) holdPorts() error {
	for _, addr := range []*string{&s.SMTP, &s.SMTPS, &s.IMAP, &s.IMAPS} {
		held, err := port.Hold()
		if err != nil {
			return err
		}
		*addr = held.Addr()
		s.ports = append(s.ports, held)
	}
	return nil
}

// configure writes the configurations.
func (s *Server) configure() error {
	for name, text := range map[string]string{
		"dovecot.conf": dovecotConf, "oauth2.conf": oauth2Conf, "postfix/main.cf": mainCF, "postfix/master.cf": masterCF,
		"postfix/boxes": boxes(), "postfix/bcc": bcc, "postfix/access": access,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.fill(text)), 0o644); err != nil {
			return err
		}
	}
	if u, err := user.Lookup("postfix"); err == nil {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(filepath.Join(s.dir, "data"), uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the directory, the ports and the user into a configuration.
func (s *Server) fill(text string) string {
	portOf := func(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }
	return strings.NewReplacer("@DIR@", s.dir, "@SMTP@", portOf(s.SMTP), "@SMTPS@", portOf(s.SMTPS), "@IMAP@", portOf(s.IMAP), "@IMAPS@", portOf(s.IMAPS),
		"@UID@", strconv.Itoa(s.uid), "@GID@", strconv.Itoa(s.gid), "@ISSUER@", s.issuer.URL, "@PASSWORD@", Password, "@FILED@", regexp.QuoteMeta(Filed),
		"@DOMAINS@", Filed+", "+Unfiled).Replace(text)
}

// Allow makes an access token good for a user, who logs in with XOAUTH2, or for nobody if
// user is empty.
func (s *Server) Allow(token, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = user
}

// introspect says whose an access token is (RFC 7662).
func (s *Server) introspect(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	user := s.tokens[r.PostFormValue("token")]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"active": user != "", "email": user}) // Dovecot refuses what it cannot read
}
