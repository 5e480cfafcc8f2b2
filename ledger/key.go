package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/keep-run/keep"
)

// maxSafe is the largest integer that a JavaScript number holds exactly with
// both of its neighbours.
const maxSafe = 1<<53 - 1

// A NumberError is returned when params hold a number that JavaScript, and so
// RFC 8785, would round: two different ids could hash alike.
type NumberError struct{ Number string }

// Error names the number and what to write instead.
func (e *NumberError) Error() string {
	return fmt.Sprintf("the number %s is beyond 2^53 and would be rounded: pass it as a string", e.Number)
}

// Canonical returns params in the canonical form of RFC 8785: keys sorted, no
// white space, 1.0 written as 1. Strings are compared as they are: Unicode is
// not normalised, so two spellings of one letter are two identities. Numbers
// beyond 2^53 and duplicate keys are refused.
func Canonical(params []byte) ([]byte, error) {
	if len(bytes.TrimSpace(params)) == 0 {
		return []byte("null"), nil
	}
	if err := checkNumbers(params); err != nil {
		return nil, err
	}
	// The transformer wants an object or array at the top.
	out, err := jcs.Transform(append(append([]byte{'['}, params...), ']'))
	if err != nil {
		return nil, fmt.Errorf("canonicalise params: %w", err)
	}
	return out[1 : len(out)-1], nil
}

func checkNumbers(params []byte) error {
	dec := json.NewDecoder(bytes.NewReader(params))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read params: %w", err)
		}
		n, ok := tok.(json.Number)
		if !ok {
			continue
		}
		if f, err := strconv.ParseFloat(n.String(), 64); err != nil || math.Abs(f) > maxSafe {
			return &NumberError{n.String()}
		}
	}
}

// Hash returns the hex SHA-256 of b.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Identify splits params into the canonical identity, which holds only the
// named ones, and the subkey, which every mutate tool accepts and which is never
// sent. A name that params lack is absent from the identity too.
func Identify(params []byte, names []string) (identity, payload []byte, subkey string, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(params, &all); err != nil {
		return nil, nil, "", fmt.Errorf("params must be one object: %w", err)
	}
	if raw, ok := all["subkey"]; ok {
		if err := json.Unmarshal(raw, &subkey); err != nil {
			return nil, nil, "", fmt.Errorf("subkey must be a string: %w", err)
		}
		delete(all, "subkey")
	}
	some := make(map[string]json.RawMessage, len(names))
	for _, n := range names {
		if v, ok := all[n]; ok {
			some[n] = v
		}
	}
	if identity, err = canonicalMap(some); err != nil {
		return nil, nil, "", err
	}
	payload, err = canonicalMap(all)
	return identity, payload, subkey, err
}

// canonicalMap is Canonical of an object whose values are still as they came.
// Values that RFC 8785 would not change are not parsed again: params are mostly
// long strings, and this is on the path of every call.
func canonicalMap(m map[string]json.RawMessage) ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
	})
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("read params: %w", err)
		}
		for _, part := range [][]byte{key, m[name]} {
			if !plainString(part) {
				if part, err = Canonical(part); err != nil {
					return nil, err
				}
			}
			out = append(append(out, part...), ':')
		}
		out = out[:len(out)-1]
	}
	return append(out, '}'), nil
}

// plainString reports whether raw is a JSON string without escapes, and so
// canonical as it is.
func plainString(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) {
		return false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// RunKey returns the key of a consumer's mutation. Every attempt of the chain
// has the same.
func RunKey(chain keep.RunID) keep.MutationKey {
	_, id, _ := strings.Cut(string(chain), "_")
	return keep.MutationKey("mut_" + id)
}

// An ItemCall is everything that makes a mutation inside an item the one it is
// (S0 §14.3).
type ItemCall struct {
	Workflow keep.WorkflowName
	Item     string
	Attempt  int
	Tool     keep.ToolName // connection and operation
	Target   string
	Identity []byte // canonical
	Subkey   string
}

// ItemKey returns the key of a mutation inside an item: a hash over every field,
// each with its length, so that no two calls can be confused by shifting text
// from one field to the next.
func ItemKey(c ItemCall) keep.MutationKey {
	h := sha256.New()
	for _, part := range []string{string(c.Workflow), c.Item, strconv.Itoa(c.Attempt),
		string(c.Tool), c.Target, string(c.Identity), c.Subkey} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return keep.MutationKey("item_" + hex.EncodeToString(h.Sum(nil))[:40])
}

// Token returns the idempotency key that is sent to the service for a ledger
// key. It has the form of a UUID (RFC 9562, version 8), since many services
// insist on one. The salt separates databases: a test database must not be
// answered with what the production one did.
func Token(salt string, key keep.MutationKey) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(salt)) + ":" + salt + string(key)))
	b := sum[:16]
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
