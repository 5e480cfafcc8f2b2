package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
)

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
		if subkey, err = canonical.Text(raw); err != nil {
			return nil, nil, "", fmt.Errorf("subkey: %w", err)
		}
		delete(all, "subkey")
	}
	some := make(map[string]json.RawMessage, len(names))
	for _, n := range names {
		if v, ok := all[n]; ok {
			some[n] = v
		}
	}
	if identity, err = canonical.Object(some); err != nil {
		return nil, nil, "", err
	}
	payload, err = canonical.Object(all)
	return identity, payload, subkey, err
}

// RunKey returns the key of a consumer's mutation. Every attempt of the chain
// has the same.
func RunKey(chain keep.RunID) keep.MutationKey {
	_, id, _ := strings.Cut(string(chain), "_")
	return keep.MutationKey("mut_" + id)
}

// An ItemCall is everything that makes a mutation inside an item the one it is.
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
