package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
)

const longListConfig = `[connections.svc]
connector = "http"
base_url  = "%s"
[connections.svc.tools.rows]
effect = "list"
path   = "/rows"
pages  = { style = "cursor", items = "$.rows", next = "$.next", param = "after" }
`

const longListScript = `export default Keep.workflow({ name: "copy", topics: { row: {} },
  producers: { async rows(ctx) {
    const page = await ctx.svc.rows({ limit: 500, cursor: (await ctx.kv.get("cursor")) ?? null });
    for (const row of page) await ctx.publish("row", { messageId: row.id, payload: row });
    await ctx.kv.set("cursor", page.next);
    return { more: page.truncated };
  } } });
`

// rowServer serves n rows of 1 KiB in pages of 100.
func rowServer(t *testing.T, n int) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _ := strconv.Atoi(r.URL.Query().Get("after")) // empty: 0
		page := map[string]any{"next": nil}
		var rows []any
		for i := first; i < min(n, first+100); i++ {
			rows = append(rows, map[string]any{"id": fmt.Sprintf("row-%d", i), "text": strings.Repeat("lorem ipsum ", 80)})
		}
		if page["rows"] = rows; first+100 < n {
			page["next"] = strconv.Itoa(first + 100)
		}
		answer(w, http.StatusOK, page)
	}))
	t.Cleanup(s.Close)
	return s
}

// copyRows runs a workflow that makes events of n rows, and returns the largest resident memory
// of its process, in bytes.
func copyRows(t *testing.T, n int) (peak int) {
	t.Helper()
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	for name, text := range map[string]string{"keep.toml": fmt.Sprintf(longListConfig, rowServer(t, n).URL), "copy.js": longListScript} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), d.bin, "run", ".")
	cmd.Dir, cmd.Env, cmd.Stderr = d.dir, d.env, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			var topics []api.Topic
			if jsonErr := json.Unmarshal([]byte(d.keep("topics", "--json")), &topics); err != nil || jsonErr != nil || len(topics) != 1 || topics[0].Pending != n {
				t.Fatalf("keep run: %v; topics %+v, %v; want %d events", err, topics, jsonErr, n)
			}
			return peak
		case <-tick.C:
			peak = max(peak, peakOf(cmd.Process.Pid))
		}
	}
}

// peakOf returns the largest resident memory of a process until now; 0: it has ended.
func peakOf(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		return 0
	}
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kib << 10
}

// A list of 10,000 rows in pages becomes events without being held as a whole: the process
// takes no more for it than for a fifth of it, but for garbage (law: bounded).
func TestLongListIsNotHeld(t *testing.T) {
	t.Parallel()
	short, long := copyRows(t, 2_000), copyRows(t, 10_000)
	t.Logf("%d MiB at most for 2,000 rows of 1 KiB, %d MiB for 10,000", short>>20, long>>20)
	if more := long - short; more > 48<<20 || long > 160<<20 {
		t.Errorf("10,000 rows took %d MiB, and 2,000 took %d", long>>20, short>>20)
	}
}
