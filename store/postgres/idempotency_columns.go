package postgres

import "github.com/keep-run/keep/law/key"

// columns are records turned on their side: one array for each column. A statement
// for many rows takes them as they are. It costs the server a third of as many
// statements for one row, which check their constraints anew each time.
type columns struct {
	id, alias, former, fingerprint, header, body                                        blobs
	host, key, caller, method, path, state, resolvedBy                                  strs
	atomic                                                                              bools
	version, doubts, status, token, leaseUntil, doubtAt, created, updated, expires, rev ints
}

// columnsOf turns records on their side.
func columnsOf(records []*key.Record) *columns {
	n := len(records)
	c := &columns{atomic: make(bools, n)}
	bytes, words, numbers := make(blobs, 6*n), make(strs, 7*n), make(ints, 10*n)
	for i, to := range []*blobs{&c.id, &c.alias, &c.former, &c.fingerprint, &c.header, &c.body} {
		*to = bytes[i*n : (i+1)*n]
	}
	for i, to := range []*strs{&c.host, &c.key, &c.caller, &c.method, &c.path, &c.state, &c.resolvedBy} {
		*to = words[i*n : (i+1)*n]
	}
	for i, to := range []*ints{&c.version, &c.doubts, &c.status, &c.token, &c.leaseUntil, &c.doubtAt, &c.created, &c.updated, &c.expires, &c.rev} {
		*to = numbers[i*n : (i+1)*n]
	}
	for i, r := range records {
		c.set(i, r)
	}
	return c
}

// set makes r the row i. It keeps what r points to.
func (c *columns) set(i int, r *key.Record) {
	c.id[i], c.former[i], c.fingerprint[i] = r.ID[:], r.Former[:], r.Fingerprint[:]
	if r.Alias != (key.ID{}) {
		c.alias[i] = r.Alias[:]
	}
	c.header[i], c.body[i] = orNull(r.Answer.Header), orNull(r.Answer.Body)
	c.host[i], c.key[i], c.caller[i], c.method[i], c.path[i] = r.Host, r.Key, r.Caller, r.Method, r.Path
	c.state[i], c.resolvedBy[i], c.atomic[i] = string(r.State), r.ResolvedBy, r.Atomic
	c.version[i], c.doubts[i], c.status[i], c.token[i], c.rev[i] = int64(r.Version), int64(r.Doubts), int64(r.Answer.Status), int64(r.Fence), r.Rev
	c.leaseUntil[i], c.doubtAt[i] = millis(r.LeaseUntil), millis(r.DoubtAt)
	c.created[i], c.updated[i], c.expires[i] = millis(r.CreatedAt), millis(r.UpdatedAt), millis(r.ExpiresAt)
}

// args are the arguments of insertKeys and updateKeys.
func (c *columns) args() []any {
	return []any{c.id, c.key, c.caller, c.method, c.path, c.fingerprint, c.state, c.atomic, c.token, c.doubts,
		c.leaseUntil, c.doubtAt, c.status, c.resolvedBy, c.created, c.updated, c.expires, c.header, c.body, c.rev,
		c.version, c.alias, c.host, c.former}
}

// rows is what the arguments are as a table.
const rows = `unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::boolean[],
		$9::bigint[], $10::integer[], $11::bigint[], $12::bigint[], $13::integer[], $14::text[], $15::bigint[], $16::bigint[],
		$17::bigint[], $18::bytea[], $19::bytea[], $20::bigint[], $21::integer[], $22::bytea[], $23::text[], $24::bytea[])
	AS r (id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev, version, alias, host, former)`

const (
	// noFormer says that r has no live row of version 1.
	noFormer = `NOT EXISTS (SELECT 1 FROM idempotency_key f WHERE f.id = r.former
		AND (f.state IN ('in_progress', 'unknown') OR f.state <> 'released' AND f.expires_at > r.updated_at))`

	// insertKeys adds those that have no row, neither one of theirs nor a live one
	// of version 1 nor a live one with their alias.
	insertKeys = `INSERT INTO idempotency_key (
		id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev, version, alias, host)
	SELECT id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
		resolved_by, created_at, updated_at, expires_at, header, body, rev + 1, version, alias, host FROM ` + rows + `
	WHERE ` + noFormer + `
	ON CONFLICT DO NOTHING`

	// updateKeys changes those whose row has their rev, and that have no live one of
	// version 1.
	updateKeys = `UPDATE idempotency_key k SET
		key = r.key, caller = r.caller, method = r.method, path = r.path, fingerprint = r.fingerprint, state = r.state,
		atomic = r.atomic, token = r.token, doubts = r.doubts, lease_until = r.lease_until, doubt_at = r.doubt_at,
		status = r.status, resolved_by = r.resolved_by, created_at = r.created_at, updated_at = r.updated_at,
		expires_at = r.expires_at, header = r.header, body = r.body, rev = r.rev + 1,
		version = r.version, alias = r.alias, host = r.host
	FROM ` + rows + `
	WHERE k.id = r.id AND k.rev = r.rev AND ` + noFormer
)
