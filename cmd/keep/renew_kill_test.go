//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/pgtest"
)

var renewals = flag.Int("renewals", 12, "how many refreshes TestRenewKilled makes, of each kind of server")

// renewHosts is how many processes renew one account at the same time.
const renewHosts = 3

// renewTTL is the lease of the account, and renewPatience is less than the part of it for
// which a host waits for an answer.
const (
	renewTTL      = 2 * time.Second
	renewPatience = renewTTL / 2
)

// A renewStorm is one account on a Postgres, hosts that renew it all the time, and who
// kills them.
type renewStorm struct {
	*testing.T
	server *rotating
	dir    string
	rng    *rand.Rand

	mu        sync.Mutex // protects the fields below
	renewers  map[string]*renewer
	calm      bool // a renewal succeeded since the last kill
	kills     map[string]int
	questions int
	failed    map[string]int // what processes said that were not killed and did not renew
	person    sync.Mutex     // connects the account again
}

// A renewer is one process of keep accounts renew.
type renewer struct {
	cmd    *exec.Cmd
	point  string        // at which it is killed; empty: nowhere
	after  time.Duration // of the start or of the answer
	ended  chan struct{}
	killed time.Time // zero: it was not
	begun  time.Time
}

// Three hosts renew one account on one Postgres, at a server that rotates refresh tokens
// and revokes all of them when one is used again; they are killed with kill -9 at random
// points. Where the server takes the old token once more, no account is lost. Where it
// does not, each answer that died with its host is one question. No token is spent by two
// hosts unless the first one was killed before.
func TestRenewKilled(t *testing.T) {
	t.Parallel()
	for _, grace := range []bool{true, false} {
		t.Run(fmt.Sprintf("grace=%v", grace), func(t *testing.T) {
			t.Parallel()
			s := newRenewStorm(t, grace)
			s.connect()
			var hosts sync.WaitGroup
			begun := time.Now()
			for h := range renewHosts {
				rng := rand.New(rand.NewPCG(uint64(h), 15))
				hosts.Go(func() { s.host(h, rng) })
			}
			hosts.Wait()
			s.judge()
			t.Logf("%d refreshes in %s; killed %v, questions %d, other ends %v", s.server.refreshes(), time.Since(begun).Round(time.Second), s.kills, s.questions, s.failed)
		})
	}
}

func newRenewStorm(t *testing.T, grace bool) *renewStorm {
	s := &renewStorm{T: t, server: newRotating(t, grace), dir: t.TempDir(), renewers: map[string]*renewer{}, calm: true, kills: map[string]int{}, failed: map[string]int{}}
	s.server.at = s.at
	toml := fmt.Sprintf("db = %q\n[policy]\nlease = { ttl = %q }\n[connections.diary]\nconnector = \"diary\"\naccount = \"diary\"\n\n[packs.diary]\nclient_id = \"${env:RENEW_AS}\"\n", pgtest.URL(t), renewTTL)
	for name, text := range map[string]string{"packs/diary.toml": diaryPack(s.server.URL, s.server.URL, ""), "keep.toml": toml} {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// command returns the real command, which the server knows by a name.
func (s *renewStorm) command(as string, args ...string) *exec.Cmd {
	cmd := exec.Command(buildKeep(s.T), args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "RENEW_AS="+as)
	return cmd
}

// connect connects the account, as a person does.
func (s *renewStorm) connect() {
	cmd := s.command("person", "connect", "diary", "--no-browser", "--json")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Error(err)
		return
	}
	from := bufio.NewReader(said)
	line, _ := from.ReadBytes('\n')
	var shown struct{ Open string }
	if err := json.Unmarshal(line, &shown); err != nil {
		s.Errorf("keep connect printed %q", line)
	} else if resp, err := http.Get(shown.Open); err != nil {
		s.Error(err)
	} else {
		resp.Body.Close()
	}
	_, _ = io.Copy(io.Discard, from)
	if err := cmd.Wait(); err != nil {
		s.Errorf("keep connect: %v", err)
	}
}

// account returns the account as a person sees it.
func (s *renewStorm) account() (a api.AccountDetail) {
	out, err := s.command("person", "accounts", "show", "diary", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		s.Errorf("keep accounts show: %v\n%s", err, out)
	}
	return a
}

// host renews the account again and again, each time with a new process.
func (s *renewStorm) host(h int, rng *rand.Rand) {
	for n := 0; s.server.refreshes() < *renewals && !s.Failed(); n++ {
		as := fmt.Sprintf("host-%d-%d", h, n)
		r := &renewer{cmd: s.command(as, "accounts", "renew", "diary"), ended: make(chan struct{}), begun: time.Now()}
		if rng.IntN(4) == 0 {
			r.point = []string{string(refreshArrived), string(refreshDone), string(refreshAnswered), "at any time"}[rng.IntN(4)]
			r.after = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
			if r.point == "at any time" {
				r.after *= 10
			}
		}
		s.run(as, r)
	}
}

// run runs one process to its end.
func (s *renewStorm) run(as string, r *renewer) {
	var out strings.Builder
	r.cmd.Stdout, r.cmd.Stderr = &out, &out
	s.mu.Lock() // it is killed only when it was started
	s.renewers[as] = r
	err := r.cmd.Start()
	s.mu.Unlock()
	if err != nil {
		s.Error(err)
		return
	}
	if r.point == "at any time" {
		timer := time.AfterFunc(r.after, func() { s.kill(r) })
		defer timer.Stop()
	}
	err = r.cmd.Wait()
	close(r.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status := r.cmd.ProcessState.ExitCode(); {
	case !r.killed.IsZero():
	case err == nil:
		s.calm = s.calm || !s.killedSince(r.begun)
	case status == exit.NeedsPerson:
		s.mu.Unlock()
		s.ask()
		s.mu.Lock()
	default:
		s.failed[strings.TrimSpace(out.String())]++
	}
}

// killedSince reports whether a process was killed since then. The caller holds mu.
func (s *renewStorm) killedSince(then time.Time) bool {
	for _, r := range s.renewers {
		if r.killed.After(then) {
			return true
		}
	}
	return false
}

// ask is a person who finds that the account must be connected again, and does it.
func (s *renewStorm) ask() {
	s.person.Lock()
	defer s.person.Unlock()
	a := s.account()
	if a.Status != keep.AccountNeedsReconnect {
		return // it was done meanwhile
	}
	requests, lost := 0, 0
	for _, r := range a.Refreshes {
		if r.Generation == a.Generation {
			requests++
			if r.State != keep.RefreshRefused {
				lost++
			}
		}
	}
	if requests < 2 || lost == 0 {
		s.Errorf("a person is asked after %d requests, of which %d were lost: %+v", requests, lost, a.Refreshes)
	}
	s.mu.Lock()
	s.questions, s.calm = s.questions+1, true
	s.mu.Unlock()
	s.connect()
}

// at kills the process of a request where it is to be killed.
func (s *renewStorm) at(by string, p refreshPoint) bool {
	s.mu.Lock()
	r := s.renewers[by]
	s.mu.Unlock()
	if r == nil || r.point != string(p) {
		return true
	}
	if p == refreshAnswered {
		time.AfterFunc(r.after, func() { s.kill(r) })
		return true
	}
	if !s.kill(r) {
		return true
	}
	<-r.ended
	return p == refreshArrived && r.after%2 == 0 // a request may be performed although nobody waits for it
}

// kill kills a process with kill -9, and reports whether it did. Where the server has
// grace, one request of a generation is lost and not two: then a person is asked anywhere.
func (s *renewStorm) kill(r *renewer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-r.ended:
		return false
	default:
	}
	if s.server.grace && !s.calm || r.cmd.Process.Kill() != nil {
		return false
	}
	r.killed, s.calm = time.Now(), false
	s.kills[r.point]++
	return true
}

// judge compares what happened at the server with what was allowed.
func (s *renewStorm) judge() {
	for until := time.Now().Add(time.Minute); ; { // a host that was killed may have the account for a while
		cmd := s.command("person", "accounts", "renew", "diary")
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != exit.NeedsPerson && time.Now().Before(until) {
			continue
		}
		if err != nil {
			s.ask()
			if s.server.grace || s.questions == 0 {
				s.Errorf("at the end: %v: %s", err, out)
			}
		}
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	type token struct{ family, n int }
	before := map[token]spending{}
	revoked, over := map[int]bool{}, map[token]bool{}
	for _, use := range s.server.spent {
		k := token{use.family, use.n}
		first, known := before[k]
		switch r := s.renewers[first.by]; {
		case use.n < 0:
			s.Errorf("a token came that was never given: %+v", use)
		case over[k]:
			s.Errorf("token %d of family %d was sent after it was refused for good", use.n, use.family)
		case known && first.by == use.by && use.at.Sub(first.at) > renewPatience:
			// it waited for the answer as long as its lease allows
		case known && (r == nil || r.killed.IsZero() || r.killed.After(use.at)):
			s.Errorf("token %d of family %d was sent by %s, which lives, and by %s", use.n, use.family, first.by, use.by)
		}
		by := s.renewers[use.by]
		heard := by != nil && by.killed.IsZero() // a refusal that died with its host is as a lost answer
		over[k], before[k] = known && use.refused && heard, use
		revoked[use.family] = revoked[use.family] || use.refused
	}
	families := 0
	for _, r := range revoked {
		if r {
			families++
		}
	}
	if s.server.grace && s.questions+families > 0 {
		s.Errorf("%d questions, and %d families of tokens were revoked, although the old token is taken", s.questions, families)
	}
	if s.questions < families {
		s.Errorf("%d questions, but %d families of tokens were revoked", s.questions, families)
	}
}
