package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// A shop is an HTTP service on this machine that answers at once, or loses every
// answer after the effect and can be asked for it.
type shop struct {
	*httptest.Server
	loses bool

	mu   sync.Mutex           // protects lost
	lost map[string]time.Time // when the answer about a thing was lost
}

func openShop(loses bool) *shop {
	s := &shop{loses: loses, lost: make(map[string]time.Time)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /things", s.create)
	mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":%q}`, r.PathValue("id"))
	})
	s.Server = httptest.NewServer(mux)
	return s
}

func (s *shop) create(w http.ResponseWriter, r *http.Request) {
	var thing struct{ ID string }
	if err := json.NewDecoder(r.Body).Decode(&thing); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.loses {
		s.mu.Lock()
		s.lost[thing.ID] = time.Now()
		s.mu.Unlock()
		panic(http.ErrAbortHandler) // cuts the connection
	}
	fmt.Fprintf(w, `{"id":%q}`, thing.ID)
}

// connection returns a connection to the shop, level C.
func (s *shop) connection() (connector.Connection, error) {
	c, err := httpapi.New("svc", httpapi.Config{BaseURL: s.URL, Tools: map[string]httpapi.Tool{
		"create": {Effect: connector.Mutate, Path: "/things", Identity: []string{"id"}, Reconcile: &httpapi.Reconcile{Path: "/things/{id}"}},
	}})
	if err != nil {
		return connector.Connection{}, err
	}
	return *c, nil
}

// A stopwatch is a store that measures commits, and when calls become certain.
type stopwatch struct {
	*counter

	mu      sync.Mutex // protects the fields below
	spent   time.Duration
	certain map[string]time.Time // when it was on disk that a call was applied, by id
}

// Commit measures, and passes on.
func (s *stopwatch) Commit(ctx context.Context, k keep.Commit) error {
	start := time.Now()
	err := s.counter.Commit(ctx, k)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent += now.Sub(start)
	for _, change := range k.Changes {
		if m, ok := change.(keep.PutMutation); ok && m.Mutation.State == keep.Applied {
			s.certain[idOf(m.Mutation)] = now
		}
	}
	return err
}

// idOf returns the id that a call was about.
func idOf(m keep.Mutation) string {
	var identity struct{ ID string }
	_ = json.Unmarshal(m.Identity, &identity)
	return identity.ID
}

// openShopBench returns a host with one workflow whose calls go to a shop.
func openShopBench(ctx context.Context, dir string, s *shop) (*bench, *stopwatch, error) {
	conn, err := s.connection()
	if err != nil {
		return nil, nil, err
	}
	watch := &stopwatch{certain: make(map[string]time.Time)}
	b := &bench{dir: dir, connection: &conn, last: make(map[keep.WorkflowName]time.Time)}
	b.wrap = func(c *counter) hostStore { watch.counter = c; return watch }
	if err := b.open(ctx); err != nil {
		return nil, nil, err
	}
	return b, watch, b.deploy(ctx, "shop", fmt.Sprintf(consumer, "shop"))
}

// certainty measures how long a lost answer keeps Keep in doubt: from the moment
// at which the service cuts the connection to the commit of what it said.
func certainty(ctx context.Context, dir string, calls int, out io.Writer) error {
	s := openShop(true)
	defer s.Close()
	b, watch, err := openShopBench(ctx, dir, s)
	if err != nil {
		return err
	}
	if err := b.seed(ctx, "in", calls); err != nil {
		return err
	}
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	var took []time.Duration
	for id, lost := range s.lost {
		took = append(took, watch.certain[id].Sub(lost))
	}
	if len(took) != calls {
		return fmt.Errorf("certainty: %d answers were lost, want %d", len(took), calls)
	}
	p50, p99 := percentiles(took)
	fmt.Fprintf(out, "from a lost answer to certainty on disk, %d calls over HTTP, a service that answers at once: p50 %s, p99 %s\n", calls, p50, p99)
	return b.close()
}

// overhead measures a call without Keep, and the same call in a run.
func overhead(ctx context.Context, dir string, calls int, out io.Writer) error {
	s := openShop(false)
	defer s.Close()
	bare, err := bareCalls(ctx, s, calls)
	if err != nil {
		return err
	}
	b, watch, err := openShopBench(ctx, dir, s)
	if err != nil {
		return err
	}
	if err := b.seed(ctx, "in", calls); err != nil {
		return err
	}
	wall, _, err := b.drain(ctx)
	if err != nil {
		return err
	}
	if len(watch.certain) != calls {
		return fmt.Errorf("overhead: %d calls were applied, want %d", len(watch.certain), calls)
	}
	n := time.Duration(calls)
	run, commits := wall/n, watch.spent/n
	fmt.Fprintf(out, "a call over HTTP, one after another, 1 KB: %s alone, %s in a run (%.1fx): %s more, of which the two commits %s\n",
		bare.Round(time.Microsecond), run.Round(time.Microsecond), float64(run)/float64(bare),
		(run - bare).Round(time.Microsecond), commits.Round(time.Microsecond))
	return b.close()
}

// bareCalls makes calls as the connector does, each on a connection of its own,
// and returns how long one takes.
func bareCalls(ctx context.Context, s *shop, calls int) (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	start := time.Now()
	for i := range calls {
		body := fmt.Sprintf(`{"id":"m%09d","text":%q}`, i, strings.Repeat("x", 1000))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/things", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(calls), nil
}

// percentiles returns the median and the 99th percentile.
func percentiles(took []time.Duration) (p50, p99 time.Duration) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	at := func(q float64) time.Duration {
		return took[int(q*float64(len(took)-1))].Round(10 * time.Microsecond)
	}
	return at(0.5), at(0.99)
}
