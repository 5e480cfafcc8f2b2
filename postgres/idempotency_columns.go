package postgres

import "github.com/keep-run/keep/idempotency/key"

// columns are records turned on their side: one array for each column. A statement
// for many rows takes them as they are. It costs the server a third of as many
// statements for one row, which check their constraints anew each time.
type columns struct {
	id, fingerprint, header, body                              [][]byte
	key, caller, method, path, state, resolvedBy               []string
	atomic                                                     []bool
	doubts, status                                             []int
	token, leaseUntil, doubtAt, created, updated, expires, rev []int64
}

// add adds a record.
func (c *columns) add(r key.Record) {
	c.id = append(c.id, r.ID[:])
	c.key = append(c.key, r.Key)
	c.caller = append(c.caller, r.Caller)
	c.method = append(c.method, r.Method)
	c.path = append(c.path, r.Path)
	c.fingerprint = append(c.fingerprint, r.Fingerprint[:])
	c.state = append(c.state, string(r.State))
	c.atomic = append(c.atomic, r.Atomic)
	c.token = append(c.token, int64(r.Token))
	c.doubts = append(c.doubts, r.Doubts)
	c.leaseUntil = append(c.leaseUntil, millis(r.LeaseUntil))
	c.doubtAt = append(c.doubtAt, millis(r.DoubtAt))
	c.status = append(c.status, r.Answer.Status)
	c.resolvedBy = append(c.resolvedBy, r.ResolvedBy)
	c.created = append(c.created, millis(r.CreatedAt))
	c.updated = append(c.updated, millis(r.UpdatedAt))
	c.expires = append(c.expires, millis(r.ExpiresAt))
	c.header = append(c.header, orNull(r.Answer.Header))
	c.body = append(c.body, orNull(r.Answer.Body))
	c.rev = append(c.rev, r.Rev)
}

// args are the arguments of insertKeys and updateKeys.
func (c *columns) args() []any {
	return []any{c.id, c.key, c.caller, c.method, c.path, c.fingerprint, c.state, c.atomic, c.token, c.doubts,
		c.leaseUntil, c.doubtAt, c.status, c.resolvedBy, c.created, c.updated, c.expires, c.header, c.body, c.rev}
}

// rows is what the arguments are as a table.
const rows = `unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::boolean[],
		$9::bigint[], $10::integer[], $11::bigint[], $12::bigint[], $13::integer[], $14::text[], $15::bigint[], $16::bigint[],
		$17::bigint[], $18::bytea[], $19::bytea[], $20::bigint[])
	AS r (id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev)`

const (
	// insertKeys adds those that have no row.
	insertKeys = `INSERT INTO idempotency_key (
		id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev)
	SELECT id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev + 1 FROM ` + rows + `
	ON CONFLICT (id) DO NOTHING`

	// updateKeys changes those whose row has their rev.
	updateKeys = `UPDATE idempotency_key k SET
		key = r.key, caller = r.caller, method = r.method, path = r.path, fingerprint = r.fingerprint, state = r.state,
		atomic = r.atomic, token = r.token, doubts = r.doubts, lease_until = r.lease_until, doubt_at = r.doubt_at,
		status = r.status, resolved_by = r.resolved_by, created_at = r.created_at, updated_at = r.updated_at,
		expires_at = r.expires_at, header = r.header, body = r.body, rev = r.rev + 1
	FROM ` + rows + `
	WHERE k.id = r.id AND k.rev = r.rev`
)
