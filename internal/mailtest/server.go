package mailtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run starts the two programs and waits until they take connections.
func (s *Server) run(dovecot string) error {
	conf := filepath.Join(s.dir, "postfix")
	if out, err := exec.Command("postfix", "-c", conf, "check").CombinedOutput(); err != nil {
		return fmt.Errorf("postfix check: %w: %s", err, out)
	}
	for _, cmd := range []*exec.Cmd{
		exec.Command(dovecot, "-F", "-c", filepath.Join(s.dir, "dovecot.conf")),
		exec.Command("/usr/lib/postfix/sbin/master", "-c", conf, "-d"),
	} {
		group(cmd)
		var log bytes.Buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			return err
		}
		s.cmds = append(s.cmds, cmd)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, addr := range []string{s.SMTP, s.SMTPS, s.IMAP, s.IMAPS} {
		var err error
		if until(ctx, func() bool { err = s.greets(ctx, addr); return err == nil }) != nil {
			return fmt.Errorf("no server greets at %s: %w\n%s", addr, err, s.Log())
		}
	}
	return nil
}

// greets reports whether a server says something to who connects. That it listens is not enough:
// Postfix ends a connection as long as Dovecot, whom it asks about users, does not answer it.
func (s *Server) greets(ctx context.Context, addr string) error {
	var conn net.Conn
	var err error
	if addr == s.SMTPS || addr == s.IMAPS {
		conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// until asks again and again until f is true.
func until(ctx context.Context, f func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Stop ends the servers and removes their directory.
func (s *Server) Stop() {
	for _, cmd := range s.cmds {
		cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range s.cmds {
		timer := time.AfterFunc(5*time.Second, func() { killGroup(cmd) })
		cmd.Wait()
		timer.Stop()
		killGroup(cmd) // what the master left behind
	}
	s.issuer.Close()
	os.RemoveAll(s.dir)
	for _, held := range s.ports {
		held.Release()
	}
}

// Log returns what the servers wrote last.
func (s *Server) Log() string {
	var out strings.Builder
	for _, name := range []string{"dovecot.log", "postfix.log"} {
		raw, _ := os.ReadFile(filepath.Join(s.dir, name))
		fmt.Fprintf(&out, "%s:\n%s\n", name, raw[max(0, len(raw)-4000):])
	}
	return out.String()
}

// User returns the address of a new user of a domain, who logs in with Password.
func (s *Server) User(domain string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users++; s.users > maxUsers {
		panic("mailtest: too many users")
	}
	return fmt.Sprintf("u%d@%s", s.users, domain)
}

// Busy is a recipient whom the server refuses for a while; Unknown is one whom it
// refuses.
const (
	Busy    = "busy@" + Unfiled
	Unknown = "stranger@" + Unfiled
)

// Settle waits until every mail that the server took is delivered.
func (s *Server) Settle(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	quiet := 0
	err := until(ctx, func() bool {
		if quiet++; s.queued() > 0 {
			quiet = 0
		}
		return quiet > 10 // a mail is in no directory for a moment when it moves on
	})
	if err != nil {
		tb.Fatalf("mailtest: the queue is not empty: %v\n%s", err, s.Log())
	}
}

// queued counts the mails in the queues.
func (s *Server) queued() int {
	n := 0
	for _, queue := range []string{"incoming", "active", "maildrop", "deferred"} {
		filepath.WalkDir(filepath.Join(s.dir, "queue", queue), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				n++
			}
			return nil
		})
	}
	return n
}

// Mails returns the mails in a folder of a user, as they are on disk. The name of INBOX
// is empty.
func (s *Server) Mails(tb testing.TB, user, folder string) []string {
	tb.Helper()
	dir := filepath.Join(s.dir, "mail", user, "Maildir")
	if folder != "" {
		dir = filepath.Join(dir, "."+folder)
	}
	var out []string
	for _, part := range []string{"new", "cur"} {
		files, _ := os.ReadDir(filepath.Join(dir, part)) // none yet: no mail
		for _, f := range files {
			raw, err := os.ReadFile(filepath.Join(dir, part, f.Name()))
			if err == nil { // Dovecot renames them
				out = append(out, string(raw))
			}
		}
	}
	return out
}

// Count returns how many mails of a folder hold a text.
func (s *Server) Count(tb testing.TB, user, folder, text string) int {
	tb.Helper()
	n := 0
	for _, m := range s.Mails(tb, user, folder) {
		if strings.Contains(m, text) {
			n++
		}
	}
	return n
}

// Flagged returns how many mails of a folder hold a text and have the flag, which is F
// for flagged and S for seen.
func (s *Server) Flagged(tb testing.TB, user, folder, text, flag string) int {
	tb.Helper()
	dir := filepath.Join(s.dir, "mail", user, "Maildir", folder, "cur")
	files, _ := os.ReadDir(dir) // none yet: no mail
	n := 0
	for _, f := range files {
		_, flags, _ := strings.Cut(f.Name(), ":2,")
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err == nil && strings.Contains(string(raw), text) && strings.Contains(flags, flag) {
			n++
		}
	}
	return n
}

// Still waits until nothing changes any more in the mailbox of a user.
func (s *Server) Still(tb testing.TB, user string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	last, quiet := "", 0
	err := until(ctx, func() bool {
		now := s.listing(user)
		if quiet++; now != last {
			last, quiet = now, 0
		}
		return quiet > 8
	})
	if err != nil {
		tb.Fatalf("mailtest: the mailbox changes all the time: %v", err)
	}
}

func (s *Server) listing(user string) string {
	var out strings.Builder
	filepath.WalkDir(filepath.Join(s.dir, "mail", user), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			out.WriteString(path + "\n")
		}
		return nil
	})
	return out.String()
}

// Plant puts a mail into INBOX, as a server that took it from anywhere does.
func (s *Server) Plant(tb testing.TB, user, name string, mail []byte) {
	tb.Helper()
	dir := filepath.Join(s.dir, "mail", user)
	for _, d := range []string{dir, dir + "/Maildir", dir + "/Maildir/new", dir + "/Maildir/cur", dir + "/Maildir/tmp"} {
		if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
			tb.Fatal(err)
		}
		if err := os.Chown(d, s.uid, s.gid); err != nil {
			tb.Fatal(err)
		}
	}
	file := filepath.Join(dir, "Maildir/new", name)
	if err := os.WriteFile(file, mail, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chown(file, s.uid, s.gid); err != nil {
		tb.Fatal(err)
	}
}

// Renumber makes the server number a folder anew, as after a restore: its UIDVALIDITY
// changes.
func (s *Server) Renumber(tb testing.TB, user string) {
	tb.Helper()
	dir := filepath.Join(s.dir, "mail", user, "Maildir")
	files, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "dovecot") {
			os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	list := fmt.Sprintf("3 V%d N1000 G0123456789abcdef0123456789abcdef\n", 1<<30+len(files))
	file := filepath.Join(dir, "dovecot-uidlist")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chown(file, s.uid, s.gid); err != nil {
		tb.Fatal(err)
	}
}
