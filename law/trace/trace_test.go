package trace_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/trace"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// join joins the parts of a run.
func join(data ...[]byte) (trace.Trace, error) {
	var parts []keep.TracePart
	for _, d := range data {
		parts = append(parts, keep.TracePart{Data: d})
	}
	return trace.Join(parts)
}

func read(result string) trace.Entry {
	return trace.Entry{Phase: "prepare", What: trace.Read, Tool: "crm.show", Params: json.RawMessage(`{"id":1}`),
		Result: json.RawMessage(result), At: noon, MS: 1.5}
}

// What was added is read, over several parts, each entry once.
func TestParts(t *testing.T) {
	r := trace.NewRecorder(1 << 20)
	var parts [][]byte
	want := []trace.Entry{
		{Phase: "prepare", What: trace.Phase, At: noon, MS: 0.25, Script: &trace.Script{Clock: noon, Seed: []byte{1, 2, 255},
			In: trace.Digest([]byte("a")), Out: trace.Digest(nil), Published: "p", Stored: `"`}},
		read(`{"a":[1.0,"é"]}`),
		{Phase: "next", What: trace.Read, Tool: "kv.get", At: noon, Error: &keep.Failure{Class: keep.ClassTransient, Code: "http-503"}},
	}
	for _, e := range want {
		r.Add(e)
		if due := r.Due(); due != (e.What != trace.Phase) {
			t.Errorf("due is %v after a %s", due, e.What)
		}
		if e.What == trace.Phase {
			continue // it waits for the next part
		}
		part, mark := r.Part()
		again, _ := r.Part() // the commit failed: it is still there
		if !cmp.Equal(part, again) {
			t.Error("a part that was not stored is gone")
		}
		parts = append(parts, part)
		r.Stored(mark)
	}
	if part, _ := r.Part(); part != nil {
		t.Errorf("a part of nothing: %q", part)
	}
	got, err := join(parts...)
	if err != nil || got.Dropped != 0 {
		t.Fatalf("%d dropped, %v", got.Dropped, err)
	}
	if diff := cmp.Diff(want, got.Entries); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An entry that came while a part was being stored is in the next one.
func TestAddedMeanwhile(t *testing.T) {
	r := trace.NewRecorder(1 << 20)
	r.Add(read(`1`))
	first, mark := r.Part()
	r.Add(read(`2`))
	r.Stored(mark)
	second, _ := r.Part()
	got, err := join(first, second)
	if err != nil || len(got.Entries) != 2 || string(got.Entries[0].Result) != "1" || string(got.Entries[1].Result) != "2" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Over the limit results are left out first, then entries are only counted. It is never
// larger than the limit, and nothing is invented.
func TestLimit(t *testing.T) {
	check := func(limit uint16, sizes []uint16) bool {
		r := trace.NewRecorder(int(limit))
		for _, n := range sizes {
			r.Add(read(`"` + strings.Repeat("x", int(n%5000)) + `"`))
		}
		part, _ := r.Part()
		if part == nil {
			return len(sizes) == 0 || limit == 0
		}
		got, err := join(part)
		size := 0
		for _, e := range got.Entries {
			if e.Cut != (e.Result == nil) {
				return false
			}
			b, err := json.Marshal(e)
			if err != nil {
				return false
			}
			size += len(b)
		}
		return err == nil && len(got.Entries)+got.Dropped == len(sizes) && size <= int(limit)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
	var off *trace.Recorder = trace.NewRecorder(0)
	off.Add(read(`1`))
	if part, _ := off.Part(); part != nil || off.Due() {
		t.Error("a recorder of nothing has recorded")
	}
}

// A trace whose older parts were swept says so.
func TestGap(t *testing.T) {
	r := trace.NewRecorder(1 << 20)
	var parts [][]byte
	for range 3 {
		r.Add(read(`{"a":1}`))
		part, mark := r.Part()
		r.Stored(mark)
		parts = append(parts, part)
	}
	for _, tt := range []struct {
		parts [][]byte
		want  bool
	}{
		{parts, false}, {parts[:2], false}, {parts[1:], true}, {parts[2:], true}, {[][]byte{parts[0], parts[2]}, true},
		{append(slices.Clone(parts), parts...), false}, // a run that was executed again
		{append(slices.Clone(parts), parts[1]), true},
	} {
		if got, err := join(tt.parts...); err != nil || got.Gap != tt.want {
			t.Errorf("Join of %d parts: a gap %t, %v, want %t", len(tt.parts), got.Gap, err, tt.want)
		}
	}
}

// What is no part is refused.
func FuzzJoin(f *testing.F) {
	r := trace.NewRecorder(1 << 20)
	r.Add(read(`{"a":1}`))
	part, _ := r.Part()
	f.Add(part)
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = join(b) // it may be wrong; it must come to an end
	})
}

func BenchmarkPart(b *testing.B) {
	e := read(`{"rows":"` + strings.Repeat("customer 17 ", 170) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		r := trace.NewRecorder(256 << 10)
		r.Add(e)
		r.Part()
	}
}

// What an earlier version deflated is read.
func TestJoinDeflated(t *testing.T) {
	var b bytes.Buffer
	b.WriteByte(1)
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, `{"entries":[{"phase":"prepare","what":"read","tool":"crm.feed"}],"dropped":2}`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := join(b.Bytes())
	if err != nil || got.Dropped != 2 || len(got.Entries) != 1 || got.Entries[0].Tool != "crm.feed" {
		t.Errorf("Join: %+v, %v", got, err)
	}
}
