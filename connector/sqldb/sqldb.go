package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Kind is what configuration calls this connector.
const Kind = "sql"

// Defaults of a Config.
const (
	DefaultLedger = "keep_mutations"
	DefaultSettle = 5 * time.Second // settle_after without a ledger table
)

// Bounds.
const (
	defaultLimit = 100
	maxLimit     = 10_000
	maxIdle      = 4 // connections
)

// A Config is one connection of keep.toml.
type Config struct {
	Connector string `toml:"connector"` // Kind, or empty

	// URL is postgres://…, or sqlite:path. It may hold a password.
	URL string `toml:"url"`

	// Tables are those that scripts may use, as scripts call them. Empty: all but the ledger table
	// and the database's own.
	Tables []string `toml:"tables"`

	// Create adds the tool createTable, and makes an SQLite file that is missing.
	Create bool `toml:"create"`

	// ReadOnly leaves out insert, update and upsert.
	ReadOnly bool `toml:"read_only"`

	// LedgerTable holds the tokens of changes. Nil: DefaultLedger. Empty: none
	// is used, which makes the tools level C.
	LedgerTable *string `toml:"ledger_table"`

	// KeylessInsert allows insert without a key where there is no ledger
	// table. It is level D then.
	KeylessInsert bool `toml:"keyless_insert"`

	// Complete says, where there is no ledger table, that nobody deletes rows: one that
	// is not there was then never inserted.
	Complete bool `toml:"complete"`

	// SettleAfter is for tools without a ledger table. Nil: DefaultSettle.
	SettleAfter *connector.Duration `toml:"settle_after"`

	// Timeout ends a call. Zero: connector.DefaultTimeout.
	Timeout connector.Duration `toml:"timeout"`
}

// New returns the connection of that name. It does not connect yet.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	db := &database{name: name, ledger: DefaultLedger, tables: cfg.Tables, where: withoutPassword(cfg.URL)}
	if cfg.LedgerTable != nil {
		db.ledger = *cfg.LedgerTable
	}
	checkTables(c, cfg, db.ledger)
	var err error
	switch scheme, rest, _ := strings.Cut(cfg.URL, ":"); scheme {
	case "postgres", "postgresql":
		db.engine, err = newPostgres(cfg.URL)
	case "sqlite":
		db.engine, err = newSQLite(strings.TrimPrefix(rest, "//"), cfg.Create)
	default:
		err = errors.New(`must be "postgres://…" or "sqlite:path"`)
	}
	if err != nil {
		c.Addf("url", "%v", err)
	}
	if cfg.Timeout < 0 {
		c.Addf("timeout", "must not be negative")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if e, ok := db.engine.(*sqliteEngine); ok {
		e.renewed = func() { db.ready.Store(false) }
	}
	db.hide = secrets(cfg.URL)
	return &connector.Connection{Name: name, Connector: Kind, Tools: db.tools(cfg), Close: db.engine.close}, nil
}

// checkTables adds the problems that have to do with tables.
func checkTables(c *connector.Checker, cfg Config, ledger string) {
	for _, t := range cfg.Tables {
		if t == "" || t == ledger {
			c.Addf("tables", "%q is not a table for scripts", t)
		}
	}
	if ledger != "" && !connector.IsName(strings.Replace(ledger, ".", "_", 1)) {
		c.Addf("ledger_table", "%q must be letters, digits and underscores, with or without a schema", ledger)
	}
	if cfg.Create && cfg.ReadOnly {
		c.Addf("create", "needs a connection that is not read_only")
	}
	if ledger != "" && cfg.KeylessInsert {
		c.Addf("keyless_insert", "needs ledger_table = \"\"; with a ledger table a key is never required")
	}
	if ledger != "" && cfg.SettleAfter != nil {
		c.Addf("settle_after", "needs ledger_table = \"\"; a ledger table answers exactly")
	}
	if ledger != "" && cfg.Complete {
		c.Addf("complete", "needs ledger_table = \"\"; a ledger table answers exactly")
	}
	if cfg.SettleAfter != nil && *cfg.SettleAfter < 0 {
		c.Addf("settle_after", "must not be negative")
	}
}

// secrets returns what removes the password of a URL from a text.
func secrets(raw string) *strings.Replacer {
	u, err := url.Parse(raw)
	if err != nil {
		return strings.NewReplacer(raw, "[hidden]")
	}
	words := []string{u.Query().Get("password")}
	if p, ok := u.User.Password(); ok {
		words = append(words, p, url.QueryEscape(p), url.PathEscape(p))
	}
	pairs := []string{raw, "[hidden]"}
	for _, w := range words {
		if w != "" {
			pairs = append(pairs, w, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// A database is what the tools of a connection share.
type database struct {
	name   string
	engine engine
	ledger string // table; empty: none
	tables []string
	hide   *strings.Replacer

	where string      // the address, without a password
	ready atomic.Bool // the ledger table was seen
}

// withoutPassword returns the address of a database as it may be shown.
func withoutPassword(address string) string {
	if strings.HasPrefix(address, "sqlite:") {
		return address // the path of a file, whatever is in it
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "":
		at, _, _ := strings.Cut(address, "?")
		if strings.Contains(at, "@") {
			return "an address that cannot be read"
		}
		return at
	case u.User != nil:
		u.User = url.User(u.User.Username())
	}
	places := url.Values{} // the rest of the query may hold a password
	for name, values := range u.Query() {
		if slices.Contains(placeNames, name) {
			places[name] = values
		}
	}
	u.RawQuery = places.Encode()
	return u.String()
}

// placeNames are what the query of an address says about which tables are meant.
var placeNames = []string{"host", "port", "user", "role", "dbname", "database", "service", "servicefile", "search_path", "options"}

// An engine is one kind of database. It is wide because a kind is chosen once, for statements
// and for definitions; what uses one takes its dialect or its definer.
type engine interface {
	dialect
	definer
	ledgerMaker

	// begin starts a transaction on a connection of its own. An error is
	// definite: nothing was changed.
	begin(ctx context.Context, write bool) (session, error)

	// classify says what an error of a statement means. It is only asked
	// before COMMIT, so that no class is a doubt.
	classify(err error) (class keep.Class, code string)

	// close ends idle connections.
	close() error
}

// A dialect is how an engine writes SQL and reads values.
type dialect interface {
	// value returns SQL for the bound value number n, and what to bind.
	value(c column, raw json.RawMessage, n int) (expr string, arg any, err error)

	// selected returns SQL that selects the column for decode.
	selected(c column) string

	// decode returns a selected value as JSON.
	decode(c column, v any) (json.RawMessage, error)

	// same returns SQL that is true if both are equal or both are null.
	same(a, b string) string
}

// A ledgerMaker is how an engine has a ledger table.
type ledgerMaker interface {
	// makeLedger returns the statement that makes the ledger table.
	makeLedger(quoted string) string

	// ledgerAge is SQL for how many seconds ago a row of the ledger table was made, as text, by the clock of the database.
	ledgerAge() string
}

// A definer is how an engine makes tables.
type definer interface {
	// columnType returns how the engine names a type of types, as describe does.
	columnType(name string) string

	// schemas reports whether "a.b" is the table b of the schema a.
	schemas() bool
}

// A session is one open transaction.
type session interface {
	// exec runs a statement and returns how many rows it changed.
	exec(ctx context.Context, query string, args ...any) (rows int64, err error)

	// query calls each with every row, whose values are valid until it returns.
	query(ctx context.Context, query string, args []any, each func(values []any) error) error

	// describe reads the catalog. It returns nil if there is no such table.
	describe(ctx context.Context, name string) (*table, error)

	// commit ends the transaction. A *doubt means that it may have happened;
	// any other error that it didn't.
	commit(ctx context.Context) error

	// end rolls back what isn't committed and gives the connection back.
	end()
}

// A doubt is an error of a COMMIT whose outcome nobody reported.
type doubt struct{ err error }

// Error says what the database said.
func (d *doubt) Error() string { return d.err.Error() }

// Unwrap returns what the database said.
func (d *doubt) Unwrap() error { return d.err }

// failf returns a failure of a tool, without the password.
func (db *database) failf(tool string, class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, "%s", db.hide.Replace(fmt.Sprintf(format, args...)))
	f.Tool = keep.ToolName(db.name + "." + tool)
	return f
}

// fail returns the failure that err is, or classes it.
func (db *database) fail(tool, doing string, err error) *keep.Failure {
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		return f
	}
	if _, ok := errors.AsType[*doubt](err); ok {
		return db.failf(tool, keep.ClassUnknown, "commit", "%s: %v; the change may have happened", doing, err)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return db.failf(tool, keep.ClassTransient, "timeout", "%s: the time for the call was over", doing)
	}
	class, code := db.engine.classify(err)
	return db.failf(tool, class, code, "%s: %v", doing, err)
}

// in runs f in a transaction that is rolled back afterwards, unless f commits.
func (db *database) in(ctx context.Context, tool string, write bool, f func(session) error) error {
	s, err := db.engine.begin(ctx, write)
	if err != nil {
		return db.fail(tool, "begin", err)
	}
	defer s.end()
	if err := f(s); err != nil {
		return db.fail(tool, tool, err)
	}
	return nil
}
