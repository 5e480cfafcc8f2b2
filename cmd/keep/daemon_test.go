//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"

	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
)

// A daemon that ends between a request and its answer is asked again, or the file
// is: what was asked for is done once, whether it was done before or not.
func TestDaemonEndsBeforeItAnswers(t *testing.T) {
	for _, done := range []bool{false, true} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("done=%t,back=%t", done, back), func(t *testing.T) {
				_, p := newPlaces(t)
				var cut atomic.Bool
				p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					if r.Method != http.MethodPost || !cut.CompareAndSwap(false, true) {
						next.ServeHTTP(w, r)
						return
					}
					if done {
						next.ServeHTTP(httptest.NewRecorder(), r)
					}
					if !back {
						p.gone()
					}
					panic(http.ErrAbortHandler) // closes the connection
				}
				// A second time it would be refused: the item is not finished then.
				out := p.must(0, "items", "reprocess", "remind", "a", "--yes")
				if !strings.Contains(out, " done ") || !cut.Load() {
					t.Errorf("reprocess: %s", out)
				}
				if out := p.must(0, "items", "show", "remind", "a", "--json"); !strings.Contains(out, `"attempt": 2`) {
					t.Errorf("the item after it: %s", out)
				}
				if o := p.keep("runs"); o.Status != 0 || o.ThroughHost != back {
					t.Errorf("the command after it: %+v", o)
				}
			})
		}
	}
}

// A deploy whose answer is lost is sent again, and finds its script current: it says so. Where somebody deployed
// another script, that is not replaced.
func TestDeployLosesItsAnswer(t *testing.T) {
	const quiet = `export default Keep.workflow({ name: "quiet", topics: { t: {} }, producers: { async tick(ctx) { %s } } });`
	for _, back := range []bool{false, true} {
		for _, other := range []bool{false, true} {
			t.Run(fmt.Sprintf("back=%t,other=%t", back, other), func(t *testing.T) {
				_, p := newPlaces(t)
				file := filepath.Join(p.dir, "quiet.js")
				write := func(body string) {
					t.Helper()
					if err := os.WriteFile(file, fmt.Appendf(nil, quiet, body), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write(`ctx.log("mine");`)
				var cut atomic.Bool
				p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					if r.Method != http.MethodPut || !cut.CompareAndSwap(false, true) {
						next.ServeHTTP(w, r)
						return
					}
					next.ServeHTTP(httptest.NewRecorder(), r)
					if other {
						body := strings.NewReader(fmt.Sprintf(`{"file":"quiet.js","source":%q}`, fmt.Sprintf(quiet, `ctx.log("theirs");`)))
						theirs := httptest.NewRequestWithContext(r.Context(), http.MethodPut, r.URL.String(), body)
						theirs.Header = http.Header{"If-Match": {"*"}, "Content-Type": {"application/json"}}
						next.ServeHTTP(httptest.NewRecorder(), theirs)
					}
					if !back {
						p.gone()
					}
					panic(http.ErrAbortHandler) // closes the connection
				}
				o := p.keep("deploy", "quiet.js")
				if !cut.Load() {
					t.Error("the deploy was not cut")
				}
				if other {
					if o.Status == 0 || !strings.Contains(o.Talk, "somebody else deployed it meanwhile") || !strings.Contains(o.Talk, "3.0") {
						t.Errorf("beside another deploy: %+v", o)
					}
				} else if o.Status != 0 || !strings.Contains(o.Out, "quiet     2.0      yes") {
					t.Errorf("deploy: %+v", o)
				}
			})
		}
	}
}

// A change that was begun, and whose end nobody knows, is not made again.
func TestDaemonEndsWhileItWorks(t *testing.T) {
	_, p := newPlaces(t)
	ref := p.one("reference", map[string]string{"key": "k1"}, "keys")
	p.between = p.diesAtWork()
	o := p.keep("keys", "forget", ref, "--yes")
	if o.Status != exit.Failed || !strings.Contains(o.Talk, "whether it had done this is not known; look first") {
		t.Errorf("forget: %+v", o)
	}
}

// diesAtWork returns what stands before a daemon whose process ends when it has begun a change.
func (p *place) diesAtWork() func(http.ResponseWriter, *http.Request, http.Handler) {
	began, release := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	p.t.Cleanup(func() { close(release) })
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		p.clock = func() time.Time { // which the daemon reads before it acts
			begin()
			<-release
			return p.now
		}
		go next.ServeHTTP(httptest.NewRecorder(), r.Clone(context.WithoutCancel(r.Context())))
		<-began
		p.gone()
		panic(http.ErrAbortHandler)
	}
}

// What does not answer for the database costs no more than a word, and a word only
// if there is something to do about it.
func TestNoDaemon(t *testing.T) {
	p, _ := newPlaces(t)
	p.t.Chdir(p.dir)
	socket := filepath.Join(p.dir, "keep.db.sock")
	other := filepath.Join(p.dir, "other.db")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answer := func(v any) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v == nil {
				http.NotFound(w, r)
			} else if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	stop := make(chan struct{})
	for _, tt := range []struct {
		name    string
		handler http.Handler // nil: nobody listens
		mode    os.FileMode
		talk    string
	}{
		{"a socket that a dead daemon left", nil, 0o600, ""},
		{"a daemon of another database", answer(daemon.Identity{Version: buildinfo.Read().Version, DB: other}), 0o600, ""},
		{"a daemon of a database that is gone", answer(daemon.Identity{Version: buildinfo.Read().Version, DB: other + "x"}), 0o600, ""},
		{"an older Keep", answer(nil), 0o600, "is of an older version, or no Keep; the database is asked without it"},
		{"something else", answer("hello"), 0o600, "is of an older version, or no Keep; the database is asked without it"},
		{"a socket for everybody", answer(nil), 0o666, "others can open it too"},
		{"a daemon that hangs", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }), 0o600, "does not answer; the database is asked without it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			defer os.Remove(socket)
			if err := os.Chmod(socket, tt.mode); err != nil {
				t.Fatal(err)
			}
			if tt.handler == nil {
				l.Close()
			} else {
				s := &http.Server{Handler: tt.handler, ReadHeaderTimeout: time.Minute}
				go s.Serve(l)
				defer s.Close()
			}
			o := p.keep("workflows", "show", "mail")
			if o.Status != 0 || !strings.Contains(o.Out, "on mail/received") {
				t.Errorf("keep workflows show: %+v", o)
			}
			if tt.talk == "" && o.Talk != "" || !strings.Contains(o.Talk, tt.talk) {
				t.Errorf("it said %q, want %q", o.Talk, tt.talk)
			}
		})
	}
	close(stop)
}

// A daemon of another version is reported, and asked; what it does not know is said to
// be of this version.
func TestDaemonOfAnotherVersion(t *testing.T) {
	_, p := newPlaces(t)
	p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case r.URL.Path == daemon.IdentityPath:
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			var id daemon.Identity
			if err := json.Unmarshal(rec.Body.Bytes(), &id); err != nil {
				t.Error(err)
			}
			id.Version = "v0.1.2"
			if err := json.NewEncoder(w).Encode(id); err != nil {
				t.Error(err)
			}
		case strings.HasSuffix(r.URL.Path, "/status"):
			r.URL.Path += "-of-tomorrow"
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	}
	o := p.keep("workflows", "--json")
	if o.Status != 0 || !o.ThroughHost || !json.Valid([]byte(o.Out)) || !strings.Contains(o.Talk, "the running daemon is keep v0.1.2 (process ") {
		t.Errorf("keep workflows: %+v", o)
	}
	o = p.keep("status")
	if o.Status != exit.Failed || !strings.Contains(o.Talk, "does not know this command") || !strings.Contains(o.Talk, "restart it") {
		t.Errorf("keep status: %+v", o)
	}
}

// server.socket names the socket of any database, and is not asked about others.
func TestSocketOfTheConfiguration(t *testing.T) {
	p, _ := newPlaces(t)
	toml := filepath.Join(p.dir, "keep.toml")
	text, err := os.ReadFile(toml)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(string(text), "[server]\n", "[server]\nsocket = \"run.sock\"\n", 1)
	if err := os.WriteFile(toml, []byte(at), 0o600); err != nil {
		t.Fatal(err)
	}
	p.serve()
	if _, err := os.Lstat(filepath.Join(p.dir, "run.sock")); err != nil {
		t.Error(err)
	}
	if o := p.keep("runs"); o.Status != 0 || !o.ThroughHost {
		t.Errorf("keep runs: %+v", o)
	}
	if o := p.keep("runs", "--db", "other.db"); o.Status != exit.Unreachable || o.ThroughHost {
		t.Errorf("keep runs --db other.db: %+v", o)
	}
}

// Who runs a command is who decided, by either way.
func TestWhoDecides(t *testing.T) {
	without, with := newPlaces(t)
	id := without.one("id", map[string]string{"kind": "unknown_outcome"}, "inbox")
	for _, p := range []*place{without, with} {
		p.must(0, "inbox", "do", id, "skip", "--note", "seen")
		out := p.must(0, "inbox", "show", id, "--json")
		for _, part := range []string{`"by": "` + daemon.User() + `"`, `"from": "cli"`, `"note": "seen"`} {
			if !strings.Contains(out, part) {
				t.Errorf("%s\nlacks %s", out, part)
			}
		}
	}
}
