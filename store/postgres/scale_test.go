package postgres_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

var (
	scaleHosts     = flag.Int("scale-hosts", 1000, "hosts of TestScale")
	scaleWorkflows = flag.Int("scale-workflows", 0, "workflows of TestScale, such as 1000000; zero: skip it")
)

// TestScale measures what docs/SCALING.md says: what hosts ask, at a size that no
// machine of ours has hosts for. The rows are real and the hosts are not.
//
//	go test ./store/postgres -run TestScale -v -scale-workflows 1000000
func TestScale(t *testing.T) {
	if *scaleWorkflows == 0 {
		t.Skip("no -scale-workflows given")
	}
	s := pgtest.StartDurable(t)
	db := openDB(t, s.URL("postgres"), postgres.Config{Host: true})
	heartbeat := func(id keep.HostID) func() error {
		return func() error {
			_, err := db.Heartbeat(t.Context(), keep.Host{ID: id, Name: "x"}, time.Hour)
			return err
		}
	}
	for i := range *scaleHosts {
		if err := heartbeat(host(i))(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO lease (workflow, n, deployed, host, epoch, since)
			SELECT 'w' || i, 0, TRUE, 'host' || i %% %d, 1, 1 FROM generate_series(1, %d) i`, *scaleHosts, *scaleWorkflows),
		`UPDATE host SET held = (SELECT count(*) FROM lease WHERE lease.host = host.id)`,
		fmt.Sprintf(`UPDATE meta SET value = '%d' WHERE name = 'workflows'`, *scaleWorkflows),
		`VACUUM ANALYZE`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	report := func(what string, times int, f func() error) {
		var took []time.Duration
		for range times {
			began := time.Now()
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%-40s p50 %8s  p99 %8s", what, took[times/2].Round(time.Microsecond), took[times*99/100].Round(time.Microsecond))
	}
	report("a heartbeat", 500, heartbeat(host(7)))
	report("a look", 500, func() error {
		_, err := db.Poll(t.Context(), host(7))
		return err
	})
	n := 0
	report("a commit under an epoch", 500, func() error {
		n++
		w := keep.WorkflowName(fmt.Sprint("w", n))
		ev := keep.Event{Workflow: w, Topic: "t", MessageID: "m", Status: keep.EventPending}
		return db.Commit(t.Context(), keep.Commit{Workflow: w, Epoch: 1, At: time.Now(), Changes: []keep.Change{keep.Publish{Event: ev}}})
	})
	if _, err := conn.Exec(t.Context(), `UPDATE host SET until = 1 WHERE id = 'host3'`); err != nil {
		t.Fatal(err)
	}
	report("a claim of 1,000 of a host that is gone", 1, func() error {
		got, err := db.Claim(t.Context(), host(7), 1000, nil)
		if err == nil && len(got) != min(1000, *scaleWorkflows / *scaleHosts) {
			err = fmt.Errorf("%d claimed", len(got))
		}
		return err
	})
}

func host(i int) keep.HostID { return keep.HostID(fmt.Sprint("host", i)) }

// What a host asks while nothing happens costs the server the same whatever the
// number of workflows, counted in blocks that are looked at and not in time.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db := openDB(t, url, postgres.Config{Host: true})
	for i := range 10 {
		if _, err := db.Heartbeat(t.Context(), keep.Host{ID: host(i), Name: "x"}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	var first int
	for _, workflows := range []int{100, 10_000} {
		exec(t, url, fmt.Sprintf(`INSERT INTO lease (workflow, n, deployed, host, epoch, since)
			SELECT 'w' || i, 0, TRUE, 'host' || i %% 10, 1, 1 FROM generate_series(1, %d) i ON CONFLICT DO NOTHING`, workflows))
		exec(t, url, `UPDATE host SET held = (SELECT count(*) FROM lease WHERE lease.host = host.id)`)
		exec(t, url, fmt.Sprintf(`UPDATE meta SET value = '%d' WHERE name = 'workflows'`, workflows))
		exec(t, url, `VACUUM ANALYZE host, lease, meta`)
		blocks, err := db.PulseBlocks(t.Context(), string(host(7)))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d workflows: a look touches %d blocks", workflows, blocks)
		if first == 0 {
			first = blocks
		}
		if blocks > first+5 { // an index that is a level deeper
			t.Errorf("a look touches %d blocks with %d workflows, and %d with 100", blocks, workflows, first)
		}
	}
}
