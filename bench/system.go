package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// A system is what is measured.
type system struct {
	name     string
	module   string // whose version is printed
	postgres bool   // it works on Postgres; else on SQLite
	start    func(ctx context.Context, s spec, m *meter) (stop func() error, err error)
	recorded bool   // each call is durable before it is sent
	asked    bool   // the service is asked after doubt
	tuned    string // as its documentation says
	promises string
}

// systems are in the order of the table; the first is what others are compared with.
var systems = []system{
	{"keep-sqlite", "github.com/keep-run/keep", false, startKeep, true, true, "nothing",
		"each call is recorded before it is sent and asked about after doubt; scripts run in a sandbox"},
	{"keep-postgres", "github.com/keep-run/keep", true, startKeep, true, true, "nothing", "the same"},
	{"keep-go-sqlite", "github.com/keep-run/keep", false, startKeepGo, true, true, "nothing",
		"the same; handlers are Go functions in the program, as those of the others, in no sandbox"},
	{"keep-go-postgres", "github.com/keep-run/keep", true, startKeepGo, true, true, "nothing", "the same"},
	{"dbos-sqlite", "github.com/dbos-inc/dbos-transact-golang", false, startDBOS, false, false,
		"a handle with synchronous=FULL, as its own has NORMAL, which a power cut may undo",
		"a step is recorded after it ran: who dies between runs it again; the outside is not asked"},
	{"dbos-postgres", "github.com/dbos-inc/dbos-transact-golang", true, startDBOS, false, false,
		"a pool with a connection for each client, at most 32", "the same"},
	{"river-postgres", "github.com/riverqueue/river", true, startRiver, false, false,
		"MaxWorkers 64, FetchCooldown and FetchPollInterval 2 ms; a step completes its job and inserts the next one in one transaction",
		"a job may run more than once; what it did outside is not recorded before, and not asked about"},
	{"go-workflows-sqlite", "github.com/cschleiden/go-workflows", false, startGoWorkflows, false, false,
		"SingleWorkerMode, 4 pollers of each kind, polling every 2 ms",
		"an activity is recorded after it ran: who dies between runs it again; the outside is not asked"},
	{"go-workflows-postgres", "github.com/cschleiden/go-workflows", true, startGoWorkflows, false, false, "the same", "the same"},
}

// steps is how many durable steps a work has.
const steps = 3

// text is what works carry: 1 KB.
var text = strings.Repeat("x", 1000)

// A meter takes down when works are over. All methods are safe for concurrent use.
type meter struct {
	mu    sync.Mutex // protects all below
	on    bool
	began time.Time
	last  []time.Time // of each client
	took  []time.Duration
	works int
}

func newMeter(clients int) *meter { return &meter{last: make([]time.Time, clients)} }

// done says that a work of a client is over, and that it begins the next.
func (m *meter) done(client int) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if was := m.last[client]; m.on {
		m.works++
		if !was.IsZero() && !was.Before(m.began) {
			m.took = append(m.took, now.Sub(was))
		}
	}
	m.last[client] = now
}

// begin forgets what was measured so far.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on, m.began, m.took, m.works = true, time.Now(), nil, 0
}

// end stops measuring.
func (m *meter) end() (works int, wall, p50, p99 time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = false
	wall = time.Since(m.began)
	slices.Sort(m.took)
	if n := len(m.took); n > 0 {
		p50, p99 = m.took[n/2], m.took[n*99/100]
	}
	return m.works, wall, p50, p99
}
