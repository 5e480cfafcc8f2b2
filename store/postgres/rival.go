package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// An identity is the one thing that commits of different workflows compare. So whoever
// is to be alone with it locks it until his commit is over, after the rows of lease, and
// reads then: a statement of its own sees what was committed before the lock was had.

// identityHash is what the index of identities has, besides the tool.
func identityHash(identity []byte) []byte {
	sum := sha256.Sum256(identity)
	return sum[:]
}

// identityLock names an identity of a tool for pg_advisory_xact_lock. Two that share a name wait
// for each other without need.
func identityLock(tool keep.ToolName, u keep.Unlike) int64 {
	sum := sha256.Sum256([]byte("unlike\x00" + string(tool) + "\x00" + u.Subkey + "\x00" + string(u.Identity)))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// addUnlike adds what must be locked and read for a call that is to be made once.
func (r *readSet) addUnlike(u keep.Unlike) {
	for _, tool := range u.Tools {
		r.identityLocks = append(r.identityLocks, identityLock(tool, u))
		r.identityTools = append(r.identityTools, text(string(tool)))
		r.identityHashes = append(r.identityHashes, hex.EncodeToString(identityHash(u.Identity)))
		r.identitySubkeys = append(r.identitySubkeys, text(u.Subkey))
	}
}

// queueLocks locks the identities, in the order of their names, so that two groups never
// wait for each other.
func (r *readSet) queueLocks(b *pgx.Batch) {
	slices.Sort(r.identityLocks)
	for _, id := range slices.Compact(r.identityLocks) {
		b.Queue(`SELECT pg_advisory_xact_lock($1)`, id)
	}
}

// mayRival is keep.MutationState.Rivals.
const mayRival = `state <> 'failed' AND state <> 'skipped'`

var rivalFacts = `SELECT m.tool, m.identity, m.subkey, m.key FROM ` + elements(`tool text, hash text, subkey text`) + `
	  JOIN mutation m ON m.tool = v.tool AND sha256(m.identity) = decode(v.hash, 'hex') AND m.subkey = v.subkey AND ` + mayRival + `
	 ORDER BY m.n, m.workflow`

func (s *snapshot) scanRival(row pgx.CollectableRow) error {
	var k commit.IdentityKey
	var key keep.MutationKey
	var identity []byte
	err := row.Scan(into(&k.Tool), &identity, into(&k.Subkey), into(&key))
	k.Identity = string(identity)
	s.AddRival(k, key)
	return err
}

// settingLock is identityLock for a call that sets something, whatever its subkey.
func settingLock(tool keep.ToolName, s keep.Setting) int64 {
	sum := sha256.Sum256([]byte("setting\x00" + string(tool) + "\x00" + string(s.Identity)))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// addSetting adds what must be locked and read for a call that sets something.
func (r *readSet) addSetting(s keep.Setting, at time.Time) {
	for _, tool := range s.Tools {
		name, hash := text(string(tool)), hex.EncodeToString(identityHash(s.Identity))
		r.identityLocks = append(r.identityLocks, settingLock(tool, s))
		r.setTools, r.setHashes = append(r.setTools, name), append(r.setHashes, hash)
		r.setAt = append(r.setAt, strconv.FormatInt(millis(at), 10))
		if !s.Since.IsZero() {
			r.againTools, r.againHashes = append(r.againTools, name), append(r.againHashes, hash)
			r.againSince = append(r.againSince, strconv.FormatInt(millis(s.Since), 10))
		}
	}
}

// What may keep a keep.Setting from being committed: records whose outcome is open, those that failed after a doubt and were made or
// changed later than it is now, as when the clock was set back, and, only for a call in doubt, those that were made since its attempt.
const (
	isOpen    = `state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND state <> 'applied'`
	isOfLater = `state = 'failed' AND doubted AND greatest(created_at, updated_at) > %s`
	madeSince = `state <> 'failed' AND (created_at >= %[1]s OR attempts > 1 AND updated_at >= %[1]s)`
)

const settingFacts = `SELECT m.tool, m.identity, m.key, m.payload_hash, m.state, m.attempts, m.created_at, m.updated_at, m.next_reconcile_at, m.call_deadline, m.doubted FROM `

var (
	openSettings = settingFacts + elements(`tool text, hash text`) + `
	  JOIN mutation m ON m.tool = v.tool AND sha256(m.identity) = decode(v.hash, 'hex') AND ` + isOpen
	failedSettings = settingFacts + elements(`tool text, hash text, at bigint`) + `
	  CROSS JOIN LATERAL (SELECT * FROM mutation WHERE tool = v.tool AND sha256(identity) = decode(v.hash, 'hex') AND ` + fmt.Sprintf(isOfLater, "v.at") + `
	   OFFSET 0) m` // looked up for each: joined, the whole index may be read
	laterSettings = settingFacts + elements(`tool text, hash text, since bigint`) + `
	  JOIN mutation m ON m.tool = v.tool AND sha256(m.identity) = decode(v.hash, 'hex') AND ` + fmt.Sprintf(madeSince, "v.since")
)

func (s *snapshot) scanSetting(row pgx.CollectableRow) error {
	var k commit.SettingKey
	var m keep.Mutation
	var identity []byte
	var created, updated, next, deadline int64
	err := row.Scan(into(&k.Tool), &identity, into(&m.Key), into(&m.PayloadHash), into(&m.State), &m.Attempts, &created, &updated, &next, &deadline, &m.Doubted)
	k.Identity = string(identity)
	m.CreatedAt, m.UpdatedAt, m.NextReconcileAt, m.CallDeadline = moment(created), moment(updated), moment(next), moment(deadline)
	s.AddSetting(k, m)
	return err
}
