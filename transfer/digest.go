package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math/bits"
)

// A Digest is what all rows of a database add up to. It does not depend on where they are
// kept: rows that have an order are hashed with their place in it, and hashes are
// summed, so that the order of all others, which each database sorts in its own way, makes no
// difference.
type Digest struct{ tables []Sum }

// A Sum is the digest of one table.
type Sum struct {
	Table string
	Rows  int64
	sum   [4]uint64 // of SHA-256, modulo 2^256; the first is the least significant
}

// A hasher adds up rows of one table.
type hasher struct {
	table  Table
	parent int // index of the parent's column, or -1
	sum    Sum
	place  int64 // of the last row, among all or those of its parent
	last   string
	hash   hash.Hash
	buf    []byte
}

func newHasher(t Table) *hasher {
	return &hasher{table: t, parent: t.Index(t.Parent), sum: Sum{Table: t.Name}, hash: sha256.New()}
}

// add adds the next row.
func (h *hasher) add(r Row) {
	switch {
	case h.table.Ordered:
		h.place++
	case h.parent >= 0:
		if parent := r[h.parent].(string); parent != h.last || h.place == 0 {
			h.place, h.last = 0, parent
		}
		h.place++
	}
	h.buf = binary.BigEndian.AppendUint64(h.buf[:0], uint64(h.place))
	for _, v := range r {
		h.buf = appendValue(h.buf, v)
	}
	h.hash.Reset()
	h.hash.Write([]byte(h.table.Name))
	h.hash.Write(h.buf)
	var one [sha256.Size]byte
	h.hash.Sum(one[:0])
	var carry uint64
	for i := range h.sum.sum {
		h.sum.sum[i], carry = bits.Add64(h.sum.sum[i], binary.LittleEndian.Uint64(one[8*i:]), carry)
	}
	h.sum.Rows++
}

// appendValue appends a value so that no two rows have the same bytes.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		b = binary.BigEndian.AppendUint64(append(b, 's'), uint64(len(v)))
		return append(b, v...)
	case []byte:
		if v == nil {
			return append(b, '-')
		}
		b = binary.BigEndian.AppendUint64(append(b, 'b'), uint64(len(v)))
		return append(b, v...)
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 'n'), uint64(v))
	case bool:
		if v {
			return append(b, 't')
		}
		return append(b, 'f')
	}
	panic(fmt.Sprintf("no row has a %T", v)) // a store that reads rows otherwise is broken
}

// DigestOf reads all rows of a database.
func DigestOf(ctx context.Context, from Reader) (d Digest, err error) {
	return digestOf(ctx, from, func(string, int64) {})
}

func digestOf(ctx context.Context, from Reader, tell func(table string, rows int64)) (d Digest, err error) {
	for _, t := range Tables {
		h := newHasher(t)
		err := from.Rows(ctx, t, func(r Row) error {
			h.add(r)
			tell(t.Name, h.sum.Rows)
			return nil
		})
		if err != nil {
			return d, fmt.Errorf("read %s: %w", t.Name, err)
		}
		d.tables = append(d.tables, h.sum)
	}
	return d, nil
}

// String returns the digest as 64 hex digits.
func (d Digest) String() string {
	h := sha256.New()
	for _, t := range d.tables {
		fmt.Fprintf(h, "%s %d %x\n", t.Table, t.Rows, t.sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Tables returns the sum of each table.
func (d Digest) Tables() []Sum { return d.tables }

// Rows returns how many rows there are in all tables.
func (d Digest) Rows() (n int64) {
	for _, t := range d.tables {
		n += t.Rows
	}
	return n
}

// diff names a table in which two digests differ, and how; empty if they are equal.
func (d Digest) diff(other Digest) string {
	for i, t := range d.tables {
		switch o := other.tables[i]; {
		case t.Rows != o.Rows:
			return fmt.Sprintf("%s has %d rows, not %d", t.Table, o.Rows, t.Rows)
		case t != o:
			return fmt.Sprintf("the %d rows of %s are not the same", t.Rows, t.Table)
		}
	}
	return ""
}
