package mail_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/connector/mail"
)

// A write writes what a server says to a client. tag is that of the command. After an error the
// server ends the session.
type write func(w io.Writer, tag string) error

// enough is how much an endless answer has, so that a client without bounds fails its test and leaves
// the machine in order.
const enough = 64 << 20

var errEnough = errors.New("the client reads as much as there is")

// lines writes text, in which $ is the tag.
func lines(text string) write {
	return func(w io.Writer, tag string) error {
		_, err := io.WriteString(w, strings.ReplaceAll(text, "$", tag))
		return err
	}
}

// endless writes head once, and then the rest again and again.
func endless(head, rest string) write {
	many := strings.Repeat(rest, 1+4096/len(rest))
	return func(w io.Writer, tag string) error {
		if err := lines(head)(w, tag); err != nil {
			return err
		}
		for range enough / len(many) {
			if _, err := io.WriteString(w, many); err != nil {
				return err
			}
		}
		return errEnough
	}
}

// A scripted is a mail server on the loopback that does what the tools need, for one user who has
// one mail, and answers some commands otherwise.
type scripted struct {
	addr    string
	instead map[string]write // by command; "*" is the greeting
	tls     *tls.Config      // nil: there is no STARTTLS
	asked   atomic.Int64     // commands that were answered otherwise

	mu       sync.Mutex
	sessions int
	changed  *sync.Cond // sessions did
}

// serve begins to serve sessions.
func serve(t *testing.T, s *scripted, session func(*scripted, net.Conn)) *scripted {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr, s.changed = ln.Addr().String(), sync.NewCond(&s.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.count(1)
			wg.Go(func() {
				defer s.count(-1)
				defer conn.Close()
				session(s, conn)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return s
}

func (s *scripted) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions += n
	s.changed.Broadcast()
}

// over waits until each session has been ended by its client.
func (s *scripted) over(t *testing.T, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.count(0) })()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sessions > 0 && ctx.Err() == nil {
		s.changed.Wait()
	}
	if s.sessions > 0 {
		t.Fatalf("%s: the client left %d sessions open", what, s.sessions)
	}
}

// otherwise answers a command if there is an answer of the test. It ends the session if the
// answer could not be finished.
func (s *scripted) otherwise(conn net.Conn, command, tag string) bool {
	answer := s.instead[command]
	if answer == nil {
		return false
	}
	s.asked.Add(1)
	if answer(conn, tag) != nil {
		conn.Close()
	}
	return true
}

var (
	section = regexp.MustCompile(`BODY\.PEEK(\[[^\]]*\])(<0)?`)
	literal = regexp.MustCompile(`\{(\d+)\}$`)
)

// imapSession is one session of the IMAP server.
func imapSession(s *scripted, conn net.Conn) {
	r := bufio.NewReader(conn)
	if !s.otherwise(conn, "*", "*") {
		fmt.Fprint(conn, "* OK [CAPABILITY IMAP4rev1 SASL-IR STARTTLS AUTH=PLAIN] hello\r\n")
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		tag, rest, _ := strings.Cut(line, " ")
		command, args, _ := strings.Cut(strings.TrimPrefix(rest, "UID "), " ")
		if m := literal.FindStringSubmatch(line); m != nil {
			fmt.Fprint(conn, "+ go\r\n")
			n, _ := strconv.Atoi(m[1])
			io.CopyN(io.Discard, r, int64(n)+2)
		}
		if command == "IDLE" {
			fmt.Fprint(conn, "+ idling\r\n")
		}
		switch {
		case s.otherwise(conn, command, tag):
			fmt.Fprintf(conn, "%s OK done\r\n", tag)
		case command == "STARTTLS":
			fmt.Fprintf(conn, "%s OK begin\r\n", tag)
			conn = tls.Server(conn, s.tls)
			r = bufio.NewReader(conn)
		default:
			fmt.Fprint(conn, imapAnswer(command, args)+tag+" OK "+imapCode(command)+"done\r\n")
		}
	}
}

// imapAnswer is what an honest server says before it says OK.
func imapAnswer(command, args string) string {
	switch command {
	case "CAPABILITY":
		return "* CAPABILITY IMAP4rev1 IDLE MOVE UIDPLUS\r\n"
	case "LIST":
		return "* LIST () \"/\" INBOX\r\n"
	case "SELECT", "EXAMINE":
		return "* 1 EXISTS\r\n* OK [UIDVALIDITY 7] valid\r\n* OK [UIDNEXT 2] next\r\n"
	case "SEARCH":
		return "* SEARCH 1\r\n"
	case "FETCH":
		return "* 1 FETCH (UID 1 FLAGS () RFC822.SIZE 35" + imapSection(args, "{35}\r\nMessage-ID: <other@example.com>\r\n\r\n") + ")\r\n"
	}
	return ""
}

// imapSection is the section that args ask for, with its text; nothing if they ask for none.
func imapSection(args, text string) string {
	m := section.FindStringSubmatch(args)
	switch {
	case m == nil:
		return ""
	case m[2] != "":
		return " BODY" + m[1] + "<0> " + text
	}
	return " BODY" + m[1] + " " + text
}

// imapCode is what an honest server says of what a command did.
func imapCode(command string) string {
	return map[string]string{"AUTHENTICATE": "[CAPABILITY IMAP4rev1 IDLE MOVE UIDPLUS] ", "MOVE": "[COPYUID 7 1 9] ", "APPEND": "[APPENDUID 7 9] "}[command]
}

// smtpSession is one session of the SMTP server. The command of what ends a mail is ".".
func smtpSession(s *scripted, conn net.Conn) {
	r := bufio.NewReader(conn)
	answer := func(command, honest string) {
		if !s.otherwise(conn, command, "") {
			fmt.Fprint(conn, honest+"\r\n")
		}
	}
	answer("*", "220 hello")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		command, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if command != "DATA" {
			answer(command, "250 fine")
			continue
		}
		answer(command, "354 go")
		for line != ".\r\n" && err == nil {
			line, err = r.ReadString('\n')
		}
		answer(".", "250 taken")
	}
}

// cfg is a connection to the server, by IMAP or by SMTP.
func (s *scripted) cfg(t *testing.T) mail.Config {
	c := mail.Config{SMTP: "smtp://" + s.addr, IMAP: "imap://" + s.addr, TLS: "none", User: "ann", Password: "s3cr3t",
		From: "ann@example.com", Sent: "Sent", SettleAfter: &settled}
	if s.tls != nil {
		c.TLS, c.CA = "", filepath.Join(t.TempDir(), "ca.pem")
		block := &pem.Block{Type: "CERTIFICATE", Bytes: s.tls.Certificates[0].Certificate[0]}
		if err := os.WriteFile(c.CA, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// certificate is a configuration of a server on the loopback.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}
