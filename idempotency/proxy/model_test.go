package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/idempotency/proxy"
)

// A backend does what it is asked, once per request that reaches it, and then fails as
// backends and the gateways in front of them do: before the effect or after it.
type backend struct {
	// mu protects the fields below.
	mu      sync.Mutex
	random  *rand.Rand
	effects map[string]int // by tenant, user, key and what was asked
}

// ServeHTTP authenticates, has the effect, and answers; or fails at some point.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	user, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	what := r.Host + " " + user + " " + r.Header.Get("Idempotency-Key") + " " + string(text)
	b.mu.Lock()
	fate := b.random.IntN(14)
	if fate >= 4 {
		b.effects[what]++
	}
	b.mu.Unlock()
	switch fate {
	case 0, 1, 2: // refused before the effect
		w.WriteHeader([]int{401, 403, 429}[fate])
	case 3, 4: // a gateway that did not pass it on, and one that did
		w.WriteHeader(503)
	case 5, 6:
		w.WriteHeader(502 + 2*(fate-5))
	case 7:
		panic(http.ErrAbortHandler)
	case 8: // the answer is half of one, and does not say so
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(buf, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"for\":")
			_ = buf.Flush()
			_ = conn.Close()
		}
	case 9:
		w.WriteHeader(500)
	default:
		w.WriteHeader(201)
		fmt.Fprint(w, what)
	}
}

// A client retries one request until he has an answer, in all the ways in which clients
// do that.
type client struct {
	user, host, key, text string
	renewed               int // times that the token was
}

// try sends the request once more, and returns status and body.
func (c *client) try(t *testing.T, random *rand.Rand, proxy string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", proxy+"/orders", bufio.NewReader(strings.NewReader(c.text)))
	if err != nil {
		t.Fatal(err)
	}
	if random.IntN(4) == 0 {
		c.renewed++
	}
	r.Host = c.host
	r.ContentLength = int64(len(c.text))
	r.Header.Set("Idempotency-Key", c.key)
	r.Header.Set("X-Subject", c.user)
	r.Header.Set("Authorization", fmt.Sprintf("Bearer %s.%d", c.user, c.renewed))
	switch random.IntN(6) {
	case 0: // the same host, as others write it
		r.Host = strings.ToUpper(c.host) + ":443"
	case 1: // the key as a structured string
		r.Header.Set("Idempotency-Key", strconv.Quote(c.key))
	case 2: // signs each request, and can't be told from others
		r.Header.Set("Authorization", fmt.Sprintf("Signature nonce=%d", random.Int()))
	case 3:
		r.Header.Set("Connection", "Idempotency-Key")
	}
	resp, err := plain.RoundTrip(r)
	if err != nil {
		return 0, "" // cut
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

// TestClientsAndBackends is a model of both ends: clients of several tenants and users,
// who share keys, renew tokens, sign, write hosts in other ways and retry whatever they
// get, before a backend that fails after its effect. No request may have two effects, and
// nobody may see what belongs to another. make torture takes it further.
// Law: once, doubt-is-not-failure.
func TestClientsAndBackends(t *testing.T) {
	t.Parallel()
	worlds := 6
	if n, err := strconv.Atoi(os.Getenv("KEEP_TORTURE_CYCLES")); err == nil {
		worlds = n
	}
	for _, caller := range []string{"", "header:X-Subject"} {
		for range worlds {
			seed := rand.Uint64()
			if problem := liveModel(t, caller, seed); problem != "" {
				t.Fatalf("caller %q, seed %d: %s", caller, seed, problem)
			}
		}
	}
}

// liveModel lives through one world and returns what broke a law.
func liveModel(t *testing.T, caller string, seed uint64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	b := &backend{random: rand.New(rand.NewPCG(seed, 2)), effects: make(map[string]int)}
	up := upstream(t, b.ServeHTTP)
	front, _, _ := front(t, up.URL, func(c *proxy.Config) { c.Routes = []proxy.Route{{Caller: caller}} })
	var clients []*client
	for _, host := range []string{"a.example", "b.example"} {
		for _, user := range []string{"ada", "bob"} {
			for n := range 6 {
				clients = append(clients, &client{user: user, host: host, key: fmt.Sprint("k", n), text: user + fmt.Sprint(" wants ", n)})
			}
		}
	}
	for range 8 * len(clients) {
		c := clients[random.IntN(len(clients))]
		status, body := c.try(t, random, front.URL)
		own := strings.HasPrefix(strings.ToLower(body), c.host) && strings.HasSuffix(body, c.text)
		if status == 201 && !own && body != `{"for":` {
			return fmt.Sprintf("%s of %s got %s", c.user, c.host, body)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	effects := make(map[string]int)
	for what, n := range b.effects {
		effects[canonicalWhat(what)] += n
	}
	for what, n := range effects {
		if n > 1 {
			return fmt.Sprintf("%s happened %d times", what, n)
		}
	}
	if len(effects) == 0 {
		return "nothing happened: the model tries nothing"
	}
	return ""
}

// canonicalWhat returns what was asked, whatever the host was written like and whoever
// signed it.
func canonicalWhat(what string) string {
	words := strings.SplitN(what, " ", 4)
	return strings.TrimSuffix(strings.ToLower(words[0]), ":443") + " " + words[2] + " " + words[3]
}
