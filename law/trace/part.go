package trace

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/keep-run/keep"
)

// A part begins with a byte that says how it is written. Each run waits until its parts are made and
// stored, so today's are short: how many entries were stored in the parts before it, how many were
// dropped, and the entries one after the other, which a block of S2 holds if they are not small.
// Versions before wrote {"entries":[…],"dropped":0,"after":0}, which took three times as much room.
const (
	jsonPlain    = 0
	jsonDeflated = 1
	jsonS2       = 2
	binaryPlain  = 3
	binaryS2     = 4

	small     = 1 << 9
	entrySize = 128      // about what an entry takes besides params and result
	maxPart   = 64 << 20 // how large a part may be when it is unpacked: far above any limit
)

// A part is what a part of a trace holds.
type part struct {
	Entries []Entry `json:"entries"`
	Dropped int     `json:"dropped"`
	After   int     `json:"after"` // entries in the parts before it; early versions wrote none
}

// pack returns the part of encoded entries.
func pack(entries []byte, dropped, after int) []byte {
	size, kind := len(entries), byte(binaryPlain)
	if size >= small {
		size, kind = s2.MaxEncodedLen(size), binaryS2
	}
	room := borrow()
	b := append(slices.Grow(*room, 1+2*binary.MaxVarintLen64+size), kind)
	b = binary.AppendUvarint(b, uint64(after))
	b = binary.AppendUvarint(b, uint64(dropped))
	if kind == binaryPlain {
		b = append(b, entries...)
	} else {
		b = b[:len(b)+len(s2.Encode(b[len(b):cap(b)], entries))]
	}
	defer giveBack(room, b)
	return bytes.Clone(b)
}

// spare has room for what is put together and then copied or forgotten.
var spare = sync.Pool{New: func() any { return new([]byte) }}

// borrow returns an empty slice, most likely with room.
func borrow() *[]byte { return spare.Get().(*[]byte) }

// giveBack lets others have the room of b, which began as *room, unless it is that of an unusual run.
func giveBack(room *[]byte, b []byte) {
	if cap(b) <= 1<<16 {
		*room = b[:0]
		spare.Put(room)
	}
}

// unpack returns what a part holds.
func unpack(p []byte) (part, error) {
	if len(p) == 0 {
		return part{}, errors.New("it is empty")
	}
	kind, p := p[0], p[1:]
	switch kind {
	case jsonPlain:
		return ofJSON(p, nil)
	case jsonDeflated:
		return ofJSON(io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(p)), maxPart)))
	case jsonS2:
		return ofJSON(unblock(p))
	case binaryPlain, binaryS2:
		d := decoder{b: p}
		after, dropped := d.uint(), d.uint()
		if kind == binaryS2 && d.err == nil {
			d.b, d.err = unblock(d.b)
		}
		got := part{Dropped: int(dropped), After: int(after)}
		for d.err == nil && len(d.b) > 0 {
			got.Entries = append(got.Entries, d.entry())
		}
		return got, d.err
	}
	return part{}, fmt.Errorf("it is written in a way (%d) that this version does not know", kind)
}

// ofJSON returns the part that a version before wrote.
func ofJSON(text []byte, err error) (got part, _ error) {
	if err != nil {
		return got, err
	}
	err = json.Unmarshal(text, &got)
	return got, err
}

// unblock returns what a block of S2 holds.
func unblock(b []byte) ([]byte, error) {
	if n, err := s2.DecodedLen(b); err != nil || n > maxPart {
		return nil, fmt.Errorf("it says that it holds %d bytes, and at most %d are believed: %w", n, maxPart, err)
	}
	return s2.Decode(nil, b)
}

// What an entry has besides its phase, what, and time. An entry begins with the sum of these.
const (
	hasTool = 1 << iota
	hasParams
	hasResult
	hasError
	isCut
	hasScript
	hasOddTime // it is not a whole number of microseconds that it took
)

// append appends the entry as decoder.entry reads it.
func (e *Entry) append(b []byte) ([]byte, error) {
	var failure []byte
	if e.Error != nil {
		var err error
		if failure, err = json.Marshal(e.Error); err != nil {
			return b, err
		}
	}
	micros := math.Round(e.MS * 1000)
	odd := micros < 0 || micros > 1<<53 || micros/1000 != e.MS
	var has uint64
	for i, is := range []bool{e.Tool != "", e.Params != nil, e.Result != nil, e.Error != nil, e.Cut, e.Script != nil, odd} {
		if is {
			has |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, has)
	b = appendName(appendName(b, e.Phase), string(e.What))
	b = appendTime(b, e.At)
	if odd {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(e.MS))
	} else {
		b = binary.AppendUvarint(b, uint64(micros))
	}
	if e.Tool != "" {
		b = appendBytes(b, e.Tool)
	}
	if e.Params != nil {
		b = appendBytes(b, e.Params)
	}
	if e.Result != nil {
		b = appendBytes(b, e.Result)
	}
	if e.Error != nil {
		b = appendBytes(b, failure)
	}
	if s := e.Script; s != nil {
		b = appendBytes(appendTime(b, s.Clock), s.Seed)
		b = appendBytes(appendBytes(b, s.In), s.Out)
		b = appendBytes(appendBytes(b, s.Published), s.Stored)
	}
	return b, nil
}

// names are written as their place in this list, from 1 on; others are spelled. What has a place keeps it.
var names = []string{"prepare", "mutate", "next", "handler", "phase", "read", "call", "lookup", "wait",
	"preparing", "prepared", "mutating", "mutated", "emitting", "running"}

func appendName(b []byte, s string) []byte {
	if i := slices.Index(names, s); i >= 0 {
		return append(b, byte(i+1))
	}
	return appendBytes(append(b, 0), s)
}

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// A decoder reads entries from b. After an error it returns zero values.
type decoder struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early")

func (d *decoder) fail() { d.b, d.err = nil, errShort }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	var v []byte
	v, d.b = d.b[:n:n], d.b[n:]
	return v
}

func (d *decoder) name() string {
	i := d.uint()
	if i == 0 {
		return string(d.bytes(d.uint()))
	}
	if i > uint64(len(names)) {
		d.fail()
		return ""
	}
	return names[i-1]
}

func (d *decoder) time() time.Time {
	sec, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return time.Time{}
	}
	d.b = d.b[n:]
	nano := d.uint()
	if nano >= 1e9 {
		d.fail()
		return time.Time{}
	}
	return time.Unix(sec, int64(nano)).UTC()
}

func (d *decoder) json() json.RawMessage {
	v := d.bytes(d.uint())
	if d.err == nil && !json.Valid(v) {
		d.b, d.err = nil, errors.New("params or a result in it are not JSON")
	}
	return v
}

func (d *decoder) sum() Sum { return Sum(d.bytes(d.uint())) }

func (d *decoder) entry() (e Entry) {
	has := d.uint()
	e.Phase, e.What, e.At = d.name(), What(d.name()), d.time()
	if has&hasOddTime == 0 {
		e.MS = float64(d.uint()) / 1000
	} else if v := d.bytes(8); v != nil {
		e.MS = math.Float64frombits(binary.BigEndian.Uint64(v))
	}
	if has&hasTool != 0 {
		e.Tool = string(d.bytes(d.uint()))
	}
	if has&hasParams != 0 {
		e.Params = d.json()
	}
	if has&hasResult != 0 {
		e.Result = d.json()
	}
	if has&hasError != 0 {
		e.Error = new(keep.Failure)
		if text := d.bytes(d.uint()); d.err == nil {
			d.err = json.Unmarshal(text, e.Error)
		}
	}
	e.Cut = has&isCut != 0
	if has&hasScript != 0 {
		e.Script = &Script{Clock: d.time(), Seed: d.bytes(d.uint()), In: d.sum(), Out: d.sum(), Published: d.sum(), Stored: d.sum()}
	}
	return e
}
