package transfer_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/testkit/storetest"
)

// benchEvents is how many events BenchmarkCopy moves.
const benchEvents = 1_000_000

// BenchmarkCopy moves a million events with payloads of 200 bytes. The peak of this
// process' memory is that of a copy, whatever the number of rows: compare with its
// peak before.
//
//	go test ./store/transfer -run '^$' -bench Copy -benchtime 1x -timeout 60m
func BenchmarkCopy(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes")
	}
	from, over, back := file(b), schema(b), file(b)
	db, closeDB := from.make(b)
	publish(b, db, benchEvents)
	if err := closeDB(); err != nil {
		b.Fatal(err)
	}
	for _, move := range []struct {
		name     string
		from, to place
	}{{"file to schema", from, over}, {"schema to file", over, back}} {
		b.Run(strings.ReplaceAll(move.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				before := peak(b)
				done, err := mover.Copy(ctx, move.from, move.to)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(done.Rows)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(before), "MB-peak-before")
				b.ReportMetric(float64(peak(b)), "MB-peak")
			}
		})
	}
}

// publish adds events, a thousand in each commit.
func publish(tb testing.TB, db store.Store, n int) {
	l := storetest.NewLoad("many", 1)
	if err := db.Commit(ctx, l.Deploy()); err != nil {
		tb.Fatal(err)
	}
	payload := []byte(`{"text":"` + strings.Repeat("x", 180) + `"}`)
	for i := 0; i < n; {
		c := keep.Commit{Workflow: l.Workflow, At: l.At}
		for range min(1000, n-i) {
			c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{Workflow: l.Workflow, Topic: "mail.received",
				MessageID: keep.MessageID(fmt.Sprint("m", i)), Payload: payload}})
			i++
		}
		if err := db.Commit(ctx, c); err != nil {
			tb.Fatal(err)
		}
	}
}

// peak returns the most memory that this process ever had, in MB.
func peak(tb testing.TB) (mb int) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skip("no /proc")
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(kb, &mb); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return mb / 1024
}
