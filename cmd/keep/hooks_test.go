//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/port"
)

const hookScript = `export default Keep.workflow({ name: "shop", topics: { paid: {} },
  producers: { never: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {} } } });`

const hookConfig = `[hooks.pay]
workflow = "shop"
topic    = "paid"
verify   = "token"
secret   = "${secret:pay}"
id       = "$.id"
`

// A hookedServe is a keep serve with a hook, which is killed and comes back.
type hookedServe struct {
	t         *testing.T
	dir, addr string
	process   serveProcess

	mu    sync.Mutex
	alive *sync.Cond // generation changed
	gen   int        // of processes
	gone  bool       // one did not start
}

func newHookedServe(t *testing.T, db string) *hookedServe {
	t.Helper()
	s := &hookedServe{t: t, dir: shortDir(t), addr: port.Addr(t)}
	s.alive = sync.NewCond(&s.mu)
	if err := os.Mkdir(filepath.Join(s.dir, ".secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"keep.toml": "db = \"" + db + "\"\n" + hookConfig, "shop.js": hookScript, ".secrets/pay": "tok"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(func() { s.process.kill() })
	return s
}

// start starts the process; from then on clients continue.
func (s *hookedServe) start() {
	cmd := exec.Command(buildKeep(s.t), "serve", ".", "--listen", s.addr)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(s.t))
	s.process = serveProcess{}
	err := s.process.start(cmd, "Serving ")
	if err != nil {
		s.t.Error(err)
	}
	var drained sync.WaitGroup
	stderr := s.process.stderr
	drained.Go(func() { io.Copy(io.Discard, stderr) }) // until the process ends
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen++
	s.gone = err != nil
	s.alive.Broadcast()
}

// deliver sends a delivery until it has an answer, and returns that.
func (s *hookedServe) deliver(client *http.Client, id string) (status int, body string) {
	for gen, failed := 0, 0; ; {
		s.mu.Lock()
		if gen != s.gen {
			gen, failed = s.gen, 0
		}
		gone := s.gone
		s.mu.Unlock()
		r, err := http.NewRequestWithContext(s.t.Context(), "POST", "http://"+s.addr+"/hooks/pay", strings.NewReader(fmt.Sprintf(`{"id": %q}`, id)))
		if err != nil {
			s.t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer tok")
		r.Header.Set("Content-Type", "application/json")
		res, err := client.Do(r)
		if err == nil {
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil && res.StatusCode != http.StatusServiceUnavailable {
				return res.StatusCode, string(text)
			}
			if err == nil {
				continue // it says: come again
			}
		}
		if s.t.Context().Err() != nil || gone {
			return 0, ""
		}
		client.CloseIdleConnections()
		if failed++; failed < 3 {
			continue // the connection may be one to the process before
		}
		s.mu.Lock()
		for s.gen == gen && !s.gone {
			s.alive.Wait() // the process is dead: until the next one is there
		}
		s.mu.Unlock()
	}
}

// TestHookKilled delivers one event a hundred times over five connections, and others once
// each, while the process is killed with SIGKILL. There is one event of each, and what was
// answered with 2xx is there. Law: nothing-lost, once.
func TestHookKilled(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		s := newHookedServe(t, db)
		const clients, each, kills = 5, 20, 5
		answered := make(chan struct{}, clients*each*2)
		var mu sync.Mutex
		fresh := map[string]int{} // answers that it is new, by id
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				transport := &http.Transport{MaxConnsPerHost: 1}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				for n := range each {
					for _, id := range []string{"one", fmt.Sprintf("c%d-%d", c, n)} {
						status, body := s.deliver(client, id)
						var got struct {
							ID       string `json:"message_id"`
							Repeated bool   `json:"repeated"`
						}
						if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got.ID != id {
							t.Errorf("%s: %d %s", id, status, body)
						}
						mu.Lock()
						n := fresh[id]
						if !got.Repeated {
							n++
						}
						fresh[id] = n
						mu.Unlock()
						answered <- struct{}{}
					}
				}
			})
		}
		for range kills {
			for range clients * each * 2 / (kills + 1) {
				<-answered
			}
			s.process.kill()
			s.start()
		}
		wg.Wait()
		ids := map[string]int{}
		for _, e := range s.events() {
			ids[string(e.MessageID)]++
			if e.CreatedBy == nil || *e.CreatedBy != "hook:pay" {
				t.Errorf("%s was created by %v", e.MessageID, e.CreatedBy)
			}
		}
		for id, n := range fresh {
			if ids[id] != 1 {
				t.Errorf("%s was answered with 200 and is %d events", id, ids[id])
			}
			if n > 1 {
				t.Errorf("%s was said to be new %d times", id, n)
			}
		}
		if len(ids) != clients*each+1 {
			t.Errorf("%d events, want %d", len(ids), clients*each+1)
		}
	})
}

// events returns all events of the database.
func (s *hookedServe) events() (list []api.Event) {
	s.t.Helper()
	cmd := exec.Command(buildKeep(s.t), "events", "--all", "--json")
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &list); err != nil {
		s.t.Fatal(err)
	}
	return list
}

// A running host takes hooks and their secrets from keep.toml, and keep hooks says what
// came, beside the host and after it.
func TestHooksReload(t *testing.T) {
	t.Parallel()
	s := newHookedServe(t, "keep.db")
	client := &http.Client{}
	hooks := func() (list []api.Hook) {
		t.Helper()
		cmd := exec.Command(buildKeep(t), "hooks", "--json")
		cmd.Dir = s.dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(s.dir, name)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	until := func(want int) {
		t.Helper()
		for t.Context().Err() == nil {
			if status, _ := s.deliver(client, "a"); status == want {
				return
			}
		}
	}
	until(200)
	write(".secrets/pay", "another")
	until(401)
	write(".secrets/pay", "tok")
	until(200)
	write("keep.toml", "db = \"keep.db\"\n")
	until(404)
	if got := hooks(); len(got) != 0 {
		t.Errorf("hooks that are not configured: %+v", got)
	}
	write("keep.toml", "db = \"keep.db\"\n"+hookConfig)
	until(200)
	live := hooks()
	if len(live) != 1 || live[0].Accepted != 1 || live[0].Repeated < 2 || live[0].Refused < 1 || live[0].LastRefusal == nil || live[0].URL != "http://"+s.addr+"/hooks/pay" {
		t.Errorf("beside the host: %+v", live)
	}
	if err := s.process.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.process.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s.process.cmd = nil
	if after := hooks(); len(after) != 1 || after[0].Accepted != live[0].Accepted || after[0].Repeated != live[0].Repeated || after[0].Refused != live[0].Refused {
		t.Errorf("after the host: %+v, want the counts of %+v", after, live)
	}
}
