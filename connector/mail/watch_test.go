package mail_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mail"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/mailtest"
)

var idleFor = flag.Duration("idle", 2*time.Second, "how long TestIdleCosts idles")

// watching waits for news of a connection until the test ends.
func watching(t *testing.T, conn *connector.Connection) (news <-chan struct{}, ended <-chan error) {
	t.Helper()
	heard, over := make(chan struct{}, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { over <- conn.Watch(ctx, func() { heard <- struct{}{} }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return heard, over
}

// idleBox returns a connection to the mailbox of a new user through a proxy, which shows how
// many connections there are.
func idleBox(t *testing.T) (s *mailtest.Server, user string, conn *connector.Connection, sessions func() int, cut func()) {
	t.Helper()
	s = mailtest.Shared(t)
	user = s.User(mailtest.Unfiled)
	plant(t, s, user, 0)
	p := proxy(t, s.IMAP)
	cfg := plain(s, user)
	cfg.IMAP = "imap://" + p.Addr()
	return s, user, open(t, cfg), p.Accepted, p.Down
}

func plant(t *testing.T, s *mailtest.Server, user string, n int) {
	t.Helper()
	s.Plant(t, user, fmt.Sprintf("17%08d.x.host", n), fmt.Appendf(nil, "Subject: n%d\r\nMessage-ID: <n%d@x>\r\n\r\nhello\r\n", n, n))
}

// A real server tells of a mail that comes, and of one that came between the search and the
// session. The session is one connection, and nothing else is told.
func TestIdle(t *testing.T) {
	t.Parallel()
	s, user, conn, sessions, cut := idleBox(t)
	read(t, conn, "search", `{}`)
	before := sessions()
	plant(t, s, user, 1)
	news, ended := watching(t, conn)
	<-news // came since the search
	for n := 2; n < 4; n++ {
		plant(t, s, user, n)
		select {
		case <-news:
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		}
	}
	if n := sessions() - before; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if len(news) > 0 {
		t.Error("something was told twice")
	}
	cut()
	if err := <-ended; err == nil {
		t.Error("a watch whose connection was cut ended without an error")
	}
}

// A box that has nothing new tells nothing, and the end of its context ends a watch.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	_, _, conn, _, _ := idleBox(t)
	read(t, conn, "search", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := conn.Watch(ctx, func() { t.Error("an unchanged box has news") }); err != nil {
		t.Errorf("the end of the context ended it with %v", err)
	}
}

// Idle names the folder, and may be switched off.
func TestIdleConfig(t *testing.T) {
	t.Parallel()
	for idle, want := range map[string]bool{"": true, "Work": true, "none": false} {
		conn, err := mail.New("mail", mail.Config{IMAP: "imaps://imap.example.com", User: "u", Password: "p", From: "ann@example.com", Idle: idle})
		if err != nil || (conn.Watch != nil) != want {
			t.Errorf("idle = %q: watched %t, %v", idle, conn.Watch != nil, err)
		}
	}
	if _, err := mail.New("mail", mail.Config{IMAP: "imaps://imap.example.com", User: "u", Password: "p", From: "ann@example.com", Idle: "a\nb"}); err == nil {
		t.Error("a folder with a line break is accepted")
	}
}

// Waiting for mails takes one connection and under 0.1 % of a processor (law: bounded). It is
// not parallel: what other tests use would count.
func TestIdleCosts(t *testing.T) {
	s, user, conn, sessions, _ := idleBox(t)
	read(t, conn, "search", `{}`)
	before := sessions()
	plant(t, s, user, 1)
	news, _ := watching(t, conn)
	<-news // it waits from here on
	limit := *idleFor/1000 + 5*time.Millisecond
	var used time.Duration
	for range 5 { // what tests before left to the collector counts, too
		start := cputime.Used()
		<-time.After(*idleFor)
		if used = cputime.Used() - start; used <= limit {
			break
		}
	}
	t.Logf("%v of processor time in %v of waiting: %.4f %%, %d connection", used, *idleFor, 100*used.Seconds()/idleFor.Seconds(), sessions()-before)
	if used > limit {
		t.Errorf("%v of processor time in %v, want at most %v", used, *idleFor, limit)
	}
	if n := sessions() - before; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
