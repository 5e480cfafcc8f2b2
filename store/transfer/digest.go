package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"math/bits"
	"reflect"
	"time"

	"github.com/keep-run/keep"
)

// A Digest is what all records of a database add up to. It does not depend on where they
// are kept: records that have an order are hashed with their place in it, and hashes are
// summed, so that the order of all others makes no difference.
type Digest struct {
	sums []sum // one for each of Kinds
	hash hash.Hash
	buf  []byte
}

// A sum is the digest of one kind.
type sum struct {
	records int64
	total   [4]uint64 // of SHA-256, modulo 2^256; the first is the least significant
}

func newDigest() *Digest { return &Digest{sums: make([]sum, len(Kinds)), hash: sha256.New()} }

// add adds the next record, and returns about how many bytes it has.
func (d *Digest) add(r Record) int {
	i := KindOf(r)
	s := &d.sums[i]
	s.records++
	place := s.records
	if Kinds[i].named {
		place = 0
	}
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], uint64(place))
	d.buf = appendValue(d.buf, reflect.ValueOf(withoutNumbers(r)))
	d.hash.Reset()
	d.hash.Write([]byte(Kinds[i].Name))
	d.hash.Write(d.buf)
	var one [sha256.Size]byte
	d.hash.Sum(one[:0])
	var carry uint64
	for i := range s.total {
		s.total[i], carry = bits.Add64(s.total[i], binary.LittleEndian.Uint64(one[8*i:]), carry)
	}
	return len(d.buf)
}

// withoutNumbers returns r without what each database numbers in its own way.
func withoutNumbers(r Record) Record {
	switch r := r.(type) {
	case keep.Event:
		r.Seq = 0
		return r
	case Handler:
		r.IdleSeq = 0
		return r
	case Run:
		r.SeenSeq = 0
		return r
	}
	return r
}

var timeType = reflect.TypeFor[time.Time]()

// appendValue appends a value so that no two of a type have the same bytes.
func appendValue(b []byte, v reflect.Value) []byte {
	if v.Type() == timeType {
		return binary.BigEndian.AppendUint64(b, uint64(v.Interface().(time.Time).UnixMilli()))
	}
	switch v.Kind() {
	case reflect.String:
		b = binary.BigEndian.AppendUint64(b, uint64(v.Len()))
		return append(b, v.String()...)
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int64:
		return binary.BigEndian.AppendUint64(b, uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		return binary.BigEndian.AppendUint64(b, v.Uint())
	case reflect.Float64:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.BigEndian.AppendUint64(append(b, 1), uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	}
	panic("no record has a " + v.Type().String())
}

// DigestOf reads all records of a database.
func DigestOf(ctx context.Context, from Reader) (*Digest, error) {
	return digestOf(ctx, from, func(string, int64) {})
}

func digestOf(ctx context.Context, from Reader, tell func(kind string, records int64)) (*Digest, error) {
	d := newDigest()
	err := from.Records(ctx, func(r Record) error {
		d.add(r)
		i := KindOf(r)
		tell(Kinds[i].Name, d.sums[i].records)
		return nil
	})
	return d, err
}

// String returns the digest as 64 hex digits.
func (d *Digest) String() string {
	h := sha256.New()
	for i, s := range d.sums {
		fmt.Fprintf(h, "%s %d %x\n", Kinds[i].Name, s.records, s.total)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Records returns how many records there are of all kinds.
func (d *Digest) Records() (n int64) {
	for _, s := range d.sums {
		n += s.records
	}
	return n
}

// diff names a kind in which two digests differ, and how; empty if they are equal.
func (d *Digest) diff(other *Digest) string {
	for i, s := range d.sums {
		switch o := other.sums[i]; {
		case s.records != o.records:
			return fmt.Sprintf("%s has %d rows, not %d", Kinds[i].Name, s.records, o.records)
		case s != o:
			return fmt.Sprintf("the %d rows of %s are not the same", s.records, Kinds[i].Name)
		}
	}
	return ""
}
