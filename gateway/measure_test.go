//go:build linux

package gateway_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

var measure = flag.Bool("measure", false, "measure what the gateway costs, and hold it to its bounds")

// median returns the middle of n measured times.
func median(n int, f func(i int)) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		began := time.Now()
		f(i)
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[n/2]
}

// TestMeasure holds the gateway to its bounds: beside the two commits of a write, 1 ms at the median; 300 µs of a
// read; 200 MB for 200 sessions in front of 50 servers.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("measures, with -measure")
	}
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	quiet := slog.New(slog.DiscardHandler)
	g, err := gateway.New(t.Context(), db, gateway.Config{Servers: echoes(1), Rules: map[keep.ToolName]gateway.Rule{"echo0.read": {Read: true}}, Policy: testPolicy(), Alone: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	direct := mcp.NewServer(echoes(1)[0])
	defer direct.Close()
	agentIn, toGateway := io.Pipe()
	fromGateway, agentOut := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serveFront(t.Context(), g, "a", agentIn, agentOut) }()
	answers := bufio.NewReaderSize(fromGateway, 1<<20)
	call := func(tool string, i int) {
		fmt.Fprintf(toGateway, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo0__%s","arguments":{"n":%d}}}`+"\n", i+1, tool, i)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "done") {
			t.Fatalf("%s, %v", line, err)
		}
	}
	const n = 500
	straight := func(i int) {
		if _, err := direct.Call(t.Context(), "tools/call", fmt.Appendf(nil, `{"name":"read","arguments":{"n":%d}}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	call("write", n)
	straight(n)
	// In turns, so that what else the machine does is in all of them.
	var base, commit, read, write []time.Duration
	for range 5 {
		base = append(base, median(n/5, straight))
		commit = append(commit, median(n/5, func(i int) {
			err := db.Commit(t.Context(), keep.Commit{Workflow: keep.DirectWorkflow, At: time.Now(), Changes: []keep.Change{
				keep.SetKV{Producer: "measure", Key: "k", Value: fmt.Appendf(nil, `"%d %s"`, i, strings.Repeat("x", 1000))}}})
			if err != nil {
				t.Fatal(err)
			}
		}))
		read = append(read, median(n/5, func(i int) { call("read", i) }))
		turn := len(write)
		write = append(write, median(n/5, func(i int) { call("write", n+1+turn*n+i) }))
	}
	best := func(all []time.Duration) time.Duration { slices.Sort(all); return all[len(all)/2] }
	reads, writes := best(read)-best(base), best(write)-best(base)-2*best(commit)
	t.Logf("a call straight %v, a commit %v; through the gateway: a read %v (+%v), a write %v (two commits +%v)",
		best(base), best(commit), best(read), reads, best(write), writes)
	if reads > 300*time.Microsecond || writes > time.Millisecond {
		t.Errorf("a read adds %v, want at most 300µs; a write %v beside its commits, want at most 1ms", reads, writes)
	}
	toGateway.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	t.Run("memory", func(t *testing.T) {
		url, pid, stop := startMeasured(t, setup{Dir: t.TempDir(), Echoes: 50})
		defer stop()
		for range 200 {
			a := newAgent(t, url, "ann")
			a.begin()
			if r, _ := a.send("tools/list", `{}`, nil); len(r.Result.Tools) != 101 {
				t.Fatalf("%d tools", len(r.Result.Tools))
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			req.Header = http.Header{"Authorization": {"Bearer " + agentTokens["ann"]}, "Mcp-Session-Id": {a.session}, "Accept": {"text/event-stream"}}
			resp, err := a.client.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", resp, err)
			}
			defer resp.Body.Close()
			if r := a.create2("echo7__write"); r.state() != "applied" {
				t.Fatalf("%s", r.raw)
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		var kb int
		fmt.Sscan(rest, &kb)
		t.Logf("200 sessions with a stream each, 50 servers: %d MB resident", kb>>10)
		if kb == 0 || kb>>10 >= 200 {
			t.Errorf("%d MB, want less than 200", kb>>10)
		}
	})
}

// create2 calls a tool with arguments of this session alone.
func (a *httpAgent) create2(tool string) reply {
	a.t.Helper()
	r, _ := a.send("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"session":%q}}`, tool, a.session), nil)
	return r
}
