package sqldb

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A postgresEngine is a Postgres database, with a few idle connections.
type postgresEngine struct {
	config *pgx.ConnConfig
	idle   chan *pgx.Conn
}

// newPostgres reads the URL. It does not connect.
func newPostgres(url string) (*postgresEngine, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// The error would quote the URL.
		return nil, errors.New("is not a Postgres URL")
	}
	// Text both ways, and no statements that a pooler could lose.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.RuntimeParams["timezone"] = "UTC"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "keep"
	}
	return &postgresEngine{config: cfg, idle: make(chan *pgx.Conn, maxIdle)}, nil
}

// close ends the idle connections.
func (e *postgresEngine) close() error {
	for {
		select {
		case c := <-e.idle:
			c.Close(context.Background())
		default:
			return nil
		}
	}
}

// rollbackTimeout is how long the connection of a call that failed is worth
// saving.
const rollbackTimeout = 2 * time.Second

// The server ends what a lost host leaves open.
const beginLimits = "; SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL statement_timeout = '10min'"

// begin takes an idle connection, or makes one. An idle one may be dead, so a
// BEGIN that fails on it is tried once more on a new one: nothing was changed.
func (e *postgresEngine) begin(ctx context.Context, write bool) (session, error) {
	query := "BEGIN READ ONLY" + beginLimits
	if write {
		query = "BEGIN READ WRITE" + beginLimits
	}
	for {
		select {
		case c := <-e.idle:
			if _, err := c.PgConn().Exec(ctx, query).ReadAll(); err == nil {
				return &postgresSession{engine: e, conn: c}, nil
			}
			c.Close(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		default:
		}
		c, err := pgx.ConnectConfig(ctx, e.config.Copy())
		if err != nil {
			return nil, err
		}
		if _, err := c.PgConn().Exec(ctx, query).ReadAll(); err != nil {
			c.Close(ctx)
			return nil, err
		}
		return &postgresSession{engine: e, conn: c}, nil
	}
}

func (e *postgresEngine) columnType(name string) string {
	return quote("pg_catalog") + "." + quote(types[name].postgres)
}

func (e *postgresEngine) schemas() bool { return true }

func (e *postgresEngine) makeLedger(quoted string) string {
	return "CREATE TABLE IF NOT EXISTS " + quoted +
		" (token text PRIMARY KEY, tool text NOT NULL, result text, at timestamptz NOT NULL DEFAULT now())"
}

func (e *postgresEngine) ledgerAge() string {
	return "extract(epoch FROM clock_timestamp() - at)::text"
}

// classes says what the first two characters of an SQLSTATE mean.
var classes = map[string]keep.Class{
	"08": keep.ClassTransient,    // connection
	"0A": keep.ClassLogic,        // not supported
	"22": keep.ClassLogic,        // bad value
	"23": keep.ClassLogic,        // constraint
	"25": keep.ClassPrecondition, // read-only server
	"28": keep.ClassPermission,   // refused credentials
	"3D": keep.ClassPrecondition, // no such database
	"3F": keep.ClassPrecondition, // no such schema
	"40": keep.ClassTransient,    // serialization, deadlock
	"42": keep.ClassLogic,        // what the statement names
	"44": keep.ClassLogic,        // check option
	"53": keep.ClassTransient,    // resources, too many connections
	"54": keep.ClassLogic,        // a limit of the server
	"55": keep.ClassTransient,    // locks
	"57": keep.ClassTransient,    // shutting down, cancelled
	"58": keep.ClassTransient,    // IO
	"P0": keep.ClassLogic,        // raised by a trigger
	"XX": keep.ClassPrecondition, // corrupt
}

// classify goes by the SQLSTATE. What has none never reached a server.
func (e *postgresEngine) classify(err error) (keep.Class, string) {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return keep.ClassTransient, "postgres" // refused, reset, DNS, TLS
	}
	code := "postgres-" + pg.Code
	switch pg.Code {
	case "42501":
		return keep.ClassPermission, code
	case "42P01", "53100":
		return keep.ClassPrecondition, code
	}
	if class, ok := classes[pg.Code[:min(2, len(pg.Code))]]; ok {
		return class, code
	}
	return keep.ClassLogic, code
}

// selected has the server write JSON, which knows its types best.
func (e *postgresEngine) selected(c column) string {
	if c.form == bytesForm {
		return "encode(" + quote(c.name) + ", 'base64')"
	}
	return "to_json(" + quote(c.name) + ")::text"
}

func (e *postgresEngine) same(a, b string) string { return a + " IS NOT DISTINCT FROM " + b }

// value binds text and has the server read it as the type of the column, as if
// it had been typed: no value is rounded or cut on the way. The type goes
// without its length, so that a string that is too long is an error.
func (e *postgresEngine) value(c column, raw json.RawMessage, n int) (string, any, error) {
	expr := fmt.Sprintf("$%d::text::%s", n, c.kind)
	text, err := postgresText(c, bytes.TrimSpace(raw))
	if strings.ContainsRune(text, 0) {
		err = errors.New("text with a zero byte is not possible in Postgres")
	}
	if isNull(raw) {
		return expr, nil, err
	}
	return expr, text, err
}

// postgresText returns what a person would type for the value.
func postgresText(c column, raw json.RawMessage) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	if c.form == jsonForm {
		return string(raw), nil
	}
	switch raw[0] {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case '[':
		if c.form != arrayForm {
			return "", errors.New("takes no array")
		}
		return arrayLiteral(raw)
	case '{':
		b, ok, err := bytesValue(raw)
		if !ok || c.form != bytesForm {
			return "", errors.New("takes no object")
		}
		return `\x` + hex.EncodeToString(b), err
	default:
		return string(raw), nil
	}
}

// arrayLiteral writes a JSON array as Postgres reads arrays.
func arrayLiteral(raw json.RawMessage) (string, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return "", err
	}
	out := make([]string, len(items))
	for i, item := range items {
		item = bytes.TrimSpace(item)
		switch {
		case isNull(item):
			out[i] = "NULL"
		case item[0] == '[':
			inner, err := arrayLiteral(item)
			if err != nil {
				return "", err
			}
			out[i] = inner
		default:
			s := string(item)
			if item[0] == '"' {
				if err := json.Unmarshal(item, &s); err != nil {
					return "", err
				}
			}
			out[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		}
	}
	return "{" + strings.Join(out, ",") + "}", nil
}

func (e *postgresEngine) decode(c column, v any) (json.RawMessage, error) {
	s, ok := v.(string)
	if !ok {
		return json.RawMessage("null"), nil
	}
	if c.form == bytesForm {
		return jsonval.Encode(map[string]string{"base64": strings.ReplaceAll(s, "\n", "")})
	}
	parsed, err := jsonval.Decode(json.RawMessage(s))
	if err != nil {
		return nil, err
	}
	return jsonval.Encode(jsonval.Safe(parsed))
}

// A postgresSession is a transaction on one connection.
type postgresSession struct {
	engine *postgresEngine
	conn   *pgx.Conn
}

func (s *postgresSession) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := s.conn.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (s *postgresSession) query(ctx context.Context, query string, args []any, each func([]any) error) error {
	rows, err := s.conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		raw := rows.RawValues()
		values := make([]any, len(raw))
		for i, b := range raw {
			if b != nil {
				values[i] = string(b)
			}
		}
		if err := each(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// describe finds a table by the search path, or by its schema.
func (s *postgresSession) describe(ctx context.Context, name string) (*table, error) {
	quoted, own := quote(name), name
	if schema, rest, ok := strings.Cut(name, "."); ok {
		quoted, own = quote(schema)+"."+quote(rest), rest
	}
	const columns = `SELECT c.oid::text, pg_table_is_visible(c.oid)::text, c.relname, a.attname, tn.nspname, t.typname, t.typcategory::text
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace
		WHERE c.oid = to_regclass($1::text) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
		AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY a.attnum`
	var t *table
	oid := ""
	err := s.query(ctx, columns, []any{quoted}, func(v []any) error {
		if v[2].(string) != own { // what is too long for a name is cut, and would be another table
			return nil
		}
		if t == nil {
			t = &table{quoted: quoted}
			oid = v[0].(string)
			if own != name && v[1].(string) == "true" {
				t.short = own
			}
		}
		t.columns = append(t.columns, postgresColumn(v[3].(string), v[4].(string), v[5].(string), v[6].(string)))
		return nil
	})
	if err != nil || t == nil {
		return nil, err
	}
	return t, s.describeIndexes(ctx, t, oid)
}

// postgresColumn picks the form by the type.
func postgresColumn(name, schema, kind, category string) column {
	c := column{name: name, kind: quote(schema) + "." + quote(kind)}
	switch {
	case kind == "bytea":
		c.form = bytesForm
	case kind == "json" || kind == "jsonb":
		c.form = jsonForm
	case category == "A":
		c.form = arrayForm
	}
	return c
}

// describeIndexes adds the unique indexes. One with an expression or a
// condition identifies no row.
func (s *postgresSession) describeIndexes(ctx context.Context, t *table, oid string) error {
	const indexes = `SELECT i.indisprimary::text, json_agg(a.attname ORDER BY k.n)::text
		FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(attnum, n)
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
		WHERE i.indrelid = $1::text::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
		AND k.n <= i.indnkeyatts GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indexrelid`
	return s.query(ctx, indexes, []any{oid}, func(v []any) error {
		var names []string
		if err := json.Unmarshal([]byte(v[1].(string)), &names); err != nil {
			return err
		}
		if t.unique = append(t.unique, names); v[0].(string) == "true" {
			t.primary = names
		}
		return nil
	})
}

// saidNo lists the kinds of SQLSTATE by which a server refuses a COMMIT: it has
// rolled back. Others, such as a shutdown, may come after the commit.
var saidNo = []string{"22", "23", "25", "40", "42", "44", "P0"}

// commit ends the transaction. Between COMMIT and its answer nobody knows.
func (s *postgresSession) commit(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.conn.IsClosed() {
		return errors.New("the connection ended before COMMIT")
	}
	tag, err := s.conn.Exec(ctx, "COMMIT")
	if err == nil {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the server answered COMMIT with %s", tag)
		}
		return nil
	}
	// pgconn.SafeToRetry is of no use here: it also says yes to an answer that
	// broke off in the middle.
	if refusedCommit(err) {
		return err
	}
	return &doubt{err}
}

// refusedCommit reports whether an error is that of a server which refused a COMMIT, in whatever language it says so.
func refusedCommit(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.SeverityUnlocalized != "ERROR" || pg.Code == "40003" {
		return false
	}
	return slices.ContainsFunc(saidNo, func(class string) bool { return strings.HasPrefix(pg.Code, class) })
}

// end gives the connection back, or closes one that is not in a known state.
func (s *postgresSession) end() {
	// Not the call's context: that one may be over.
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	if !s.conn.IsClosed() && s.conn.PgConn().TxStatus() != 'I' {
		if _, err := s.conn.Exec(ctx, "ROLLBACK"); err != nil {
			s.conn.Close(ctx)
		}
	}
	if s.conn.IsClosed() {
		return
	}
	select {
	case s.engine.idle <- s.conn:
	default:
		s.conn.Close(ctx)
	}
}
