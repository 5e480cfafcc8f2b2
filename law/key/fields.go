package key

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// A Field is one header or trailer line.
type Field struct {
	Name    string
	Value   string
	Trailer bool // it comes after the body
}

// errFields is returned for bytes that EncodeFields did not make.
var errFields = errors.New("key record: damaged header")

// EncodeFields returns fields as a record keeps them, in their order, whatever
// bytes they have.
func EncodeFields(fields []Field) []byte {
	n := 1
	for _, f := range fields {
		n += len(f.Name) + len(f.Value) + 11
	}
	b := make([]byte, 0, n)
	b = append(b, 1) // version of the form
	for _, f := range fields {
		kind := byte(0)
		if f.Trailer {
			kind = 1
		}
		b = append(b, kind)
		b = binary.AppendUvarint(b, uint64(len(f.Name)))
		b = append(b, f.Name...)
		b = binary.AppendUvarint(b, uint64(len(f.Value)))
		b = append(b, f.Value...)
	}
	return b
}

// DecodeFields is the opposite of EncodeFields. No bytes are no fields.
func DecodeFields(b []byte) ([]Field, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != 1 {
		return nil, errFields
	}
	var fields []Field
	for b = b[1:]; len(b) > 0; {
		f := Field{Trailer: b[0] == 1}
		var ok bool
		if f.Name, b, ok = cutText(b[1:]); !ok {
			return nil, errFields
		}
		if f.Value, b, ok = cutText(b); !ok {
			return nil, errFields
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func cutText(b []byte) (text string, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return "", nil, false
	}
	b = b[size:]
	return string(b[:n]), b[n:], true
}

// private are the fields that are never kept. They belong to one connection, or
// to one person: a replay must not log somebody in.
var private = []string{
	"Authentication-Info", "Authorization", "Connection", "Content-Length", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization",
	"Proxy-Connection", "Set-Cookie", "Set-Cookie2", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "Www-Authenticate",
}

// Kept reports whether a field of an answer is kept. Connection is the answer's
// Connection header, whose names belong to one connection too.
func Kept(name string, connection []string) bool {
	if slices.ContainsFunc(private, func(p string) bool { return len(p) == len(name) && strings.EqualFold(p, name) }) {
		return false
	}
	for _, line := range connection {
		for hop := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(hop), name) {
				return false
			}
		}
	}
	return true
}
