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
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/s2"

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
			In: trace.Digest([]byte("a")), Out: trace.Digest[[]byte](), Published: "p", Stored: "\xff"}},
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

// everything has each field of an entry, full and empty.
var everything = []trace.Entry{
	{},
	{Phase: "prepare", What: trace.Phase, At: noon.Add(time.Nanosecond), MS: 1234.567},
	{Phase: "emitting", What: trace.Lookup, At: noon.Add(-1e6 * time.Hour), MS: 0.0001, Tool: "m\u202e.find", Params: json.RawMessage(`null`), Cut: true},
	{Phase: "a name of later", What: "another", At: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), MS: -1, Result: json.RawMessage(`[ 1 ]`)},
	{Phase: "mutate", What: trace.Phase, At: noon, MS: 1e300, Error: &keep.Failure{Class: keep.ClassLogic, Code: "x", Message: "\xff is no text"},
		Script: &trace.Script{}},
	{Phase: "next", What: trace.Phase, At: noon, MS: 3, Script: &trace.Script{Clock: noon, Seed: []byte{0, 1}, In: trace.Digest[[]byte](),
		Out: trace.Digest([]byte("out")), Published: "\x00", Stored: "longer than a sum is"}},
}

// Each entry is read as it was added.
func TestEntries(t *testing.T) {
	for _, e := range everything {
		r := trace.NewRecorder(1 << 20)
		r.Add(e)
		part, _ := r.Part()
		got, err := join(part)
		want := e
		want.At = e.At.UTC()
		if e.Error != nil {
			f := *e.Error
			f.Message = "\ufffd is no text" // as JSON has it
			want.Error = &f
		}
		if diff := cmp.Diff([]trace.Entry{want}, got.Entries, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
}

// A part that ends too early, wherever it does, is refused.
func TestShortPart(t *testing.T) {
	r := trace.NewRecorder(1 << 20)
	r.Add(everything[5])
	part, _ := r.Part()
	for n := range part {
		if n == 3 { // a part of no entries
			continue
		}
		if got, err := join(part[:n]); err == nil {
			t.Errorf("%d of %d bytes: %+v", n, len(part), got)
		}
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
	const least = 20 // bytes that a read takes besides its params and result
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
			size += len(e.Params) + len(e.Result) + least
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

// What is no part is refused, and what is one says the same when it is recorded again.
func FuzzJoin(f *testing.F) {
	r := trace.NewRecorder(1 << 20)
	r.Add(read(`{"a":1}`))
	part, mark := r.Part()
	f.Add(part)
	r.Stored(mark)
	for _, e := range everything {
		r.Add(e)
	}
	part, _ = r.Part()
	f.Add(part)
	f.Add([]byte("x"))
	f.Add([]byte("\x00" + `{"entries":[{"phase":"prepare","what":"phase","script":{"in":"AAAA"}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		was, err := join(b)
		if err != nil {
			return // it must come to an end
		}
		r := trace.NewRecorder(1 << 30)
		for _, e := range was.Entries {
			r.Add(e)
		}
		part, _ := r.Part()
		if part == nil {
			return
		}
		is, err := join(part)
		if diff := cmp.Diff(was.Entries, is.Entries, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); err != nil || diff != "" {
			t.Errorf("recorded again: %v, -want +got:\n%s", err, diff)
		}
	})
}

// BenchmarkRun records what a consumer run with 2 KB of reads and a payload of 1 KB sees, in the
// two parts of its two commits.
func BenchmarkRun(b *testing.B) {
	kilobyte := []byte(strings.Repeat("customer 17 ", 85))
	e := read(`{"rows":"` + strings.Repeat("customer 17 ", 170) + `"}`)
	phase := func(name string) trace.Entry {
		return trace.Entry{Phase: name, What: trace.Phase, At: noon, MS: 0.123, Script: &trace.Script{Clock: noon, Seed: kilobyte[:16],
			In: trace.Digest(kilobyte), Out: trace.Digest(kilobyte)}}
	}
	b.ReportAllocs()
	for b.Loop() {
		r := trace.NewRecorder(256 << 10)
		r.Begin(e)
		r.End(e)
		r.Add(phase("prepare"))
		r.Add(phase("mutate"))
		_, mark := r.Part()
		r.Stored(mark)
		r.Add(trace.Entry{Phase: "mutating", What: trace.Call, Tool: "bank.pay", Params: json.RawMessage(`"mut_01k9x"`), At: noon, MS: 1.5})
		r.Add(phase("next"))
		_, mark = r.Part()
		r.Stored(mark)
	}
}

// What earlier versions wrote is read.
func TestJoinOlder(t *testing.T) {
	const text = `{"entries":[{"phase":"prepare","what":"read","tool":"crm.feed","at":"2026-07-01T12:00:00Z","ms":0.5,"cut":true}],"dropped":2}`
	var deflated bytes.Buffer
	w, err := flate.NewWriter(&deflated, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := trace.Trace{Entries: []trace.Entry{{Phase: "prepare", What: trace.Read, Tool: "crm.feed", At: noon, MS: 0.5, Cut: true}}, Dropped: 2}
	for kind, body := range []string{text, deflated.String(), string(s2.Encode(nil, []byte(text)))} {
		got, err := join(append([]byte{byte(kind)}, body...))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("kind %d: %v, -want +got:\n%s", kind, err, diff)
		}
	}
}
