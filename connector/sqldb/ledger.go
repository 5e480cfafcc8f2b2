package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
	"github.com/keep-run/keep/connector/internal/ontime"
)

// ledgerQuoted returns the ledger table for SQL.
func (db *database) ledgerQuoted() string {
	if db.ledger == "" {
		return ""
	}
	schema, name, ok := strings.Cut(db.ledger, ".")
	if !ok {
		return quote(schema)
	}
	return quote(schema) + "." + quote(name)
}

// hasLedger reports whether the ledger table is there.
func (db *database) hasLedger(ctx context.Context, s session) (bool, error) {
	t, err := s.describe(ctx, db.ledger)
	return t != nil, err
}

// Start makes the ledger table, so that every recorded call can be looked up.
func (m *mutator) Start(ctx context.Context) error { return m.db.prepareLedger(ctx, m.Tool.Name) }

// horizon is the token of a row that is made with the ledger table: of changes before it the table knows nothing, since there may have
// been another one. A table that was made by hand, or by a version of before, has none.
const horizon = "horizon"

// horizonSlack is how much later than a call the table may seem to have been made, by two clocks that may go differently for a moment.
const horizonSlack = time.Second

// remembers returns an error if the ledger table was made after a call was recorded: it was dropped, or the database is another one.
func (db *database) remembers(ctx context.Context, tool string, s session, mut keep.Mutation) error {
	age := -1.0
	err := s.query(ctx, "SELECT "+db.engine.ledgerAge()+" FROM "+db.ledgerQuoted()+" WHERE token = '"+horizon+"'", nil, func(values []any) (err error) {
		text, _ := values[0].(string)
		age, err = strconv.ParseFloat(text, 64)
		return err
	})
	if err != nil || age < 0 || ontime.Now().Sub(mut.CreatedAt) < time.Duration(age*float64(time.Second))+horizonSlack {
		return err
	}
	return db.failf(tool, keep.ClassPrecondition, "no-ledger", "the table %s was made after the call was recorded; only a person can tell what happened", db.ledger)
}

// prepareLedger makes the ledger table if it is missing, in a transaction of
// its own: a right to create tables is needed only then.
func (db *database) prepareLedger(ctx context.Context, tool string) error {
	if e, ok := db.engine.(*sqliteEngine); ok {
		if _, _, err := e.current(); err != nil { // another file is not ready
			return db.fail(tool, "open", err)
		}
	}
	if db.ledger == "" || db.ready.Load() {
		return nil
	}
	there := false
	look := func(s session) (err error) {
		there, err = db.hasLedger(ctx, s)
		return err
	}
	err := db.in(ctx, tool, false, look)
	if err == nil && !there {
		err = db.in(ctx, tool, true, func(s session) error {
			if _, err := s.exec(ctx, db.engine.makeLedger(db.ledgerQuoted())); err != nil {
				return err
			}
			if _, err := s.exec(ctx, "INSERT INTO "+db.ledgerQuoted()+" (token, tool) VALUES ('"+horizon+"', '') ON CONFLICT (token) DO NOTHING"); err != nil {
				return err
			}
			return s.commit(ctx)
		})
		if err != nil && db.in(ctx, tool, false, look) == nil && there {
			err = nil // another host made it at the same time
		}
	}
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		if f.Class == keep.ClassUnknown {
			f.Class = keep.ClassTransient // of the table only; the change wasn't begun
		}
		f.Message = fmt.Sprintf("the table %s cannot be made yet: %s", db.ledger, f.Message)
		if f.Class != keep.ClassTransient {
			f.Message += "; make it by hand, or set ledger_table = \"\""
		}
		return f
	}
	if err == nil {
		db.ready.Store(true)
	}
	return err
}

// claim writes the token, which waits for an open transaction that has it. If
// it is there already, it returns what that change brought.
func (db *database) claim(ctx context.Context, tool string, s session, token string) (bool, connector.Receipt, error) {
	if db.ledger == "" {
		return false, connector.Receipt{}, nil
	}
	text := column{name: "token", kind: textKind}
	q := &statement{engine: db.engine}
	var binds []string
	for _, v := range []string{token, tool} {
		raw, _ := json.Marshal(v)
		expr, err := q.bind(text, raw)
		if err != nil {
			return false, connector.Receipt{}, err
		}
		binds = append(binds, expr)
	}
	n, err := s.exec(ctx, "INSERT INTO "+db.ledgerQuoted()+" (token, tool) VALUES ("+strings.Join(binds, ", ")+") ON CONFLICT (token) DO NOTHING", q.args...)
	if err != nil || n == 1 {
		return false, connector.Receipt{}, err
	}
	r := connector.Receipt{}
	err = s.query(ctx, "SELECT result FROM "+db.ledgerQuoted()+" WHERE token = "+binds[0], q.args[:1], func(values []any) error {
		if v, ok := values[0].(string); ok {
			r.Result = json.RawMessage(v)
		}
		return nil
	})
	return true, r, err
}

// store keeps the result with the token.
func (db *database) store(ctx context.Context, s session, token string, r connector.Receipt) error {
	if db.ledger == "" || r.Result == nil {
		return nil
	}
	q := &statement{engine: db.engine}
	var binds []string
	for _, v := range []string{string(r.Result), token} {
		raw, _ := json.Marshal(v)
		expr, err := q.bind(column{name: "result", kind: textKind}, raw)
		if err != nil {
			return err
		}
		binds = append(binds, expr)
	}
	n, err := s.exec(ctx, "UPDATE "+db.ledgerQuoted()+" SET result = "+binds[0]+" WHERE token = "+binds[1], q.args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("the token is in %d rows of %s, want 1", n, db.ledger)
	}
	return err
}

// Reconcile looks for the token, or without a ledger table for the row.
func (r *reconciler) Reconcile(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	var p changeParams
	if err := native.Decode(mut.Payload, &p); err != nil {
		return connector.Answer{}, r.db.bad(r.Tool.Name, err)
	}
	var a connector.Answer
	err := r.db.in(ctx, r.Tool.Name, r.db.ledger != "", func(s session) (err error) {
		if r.db.ledger == "" {
			a, err = r.look(ctx, s, p)
		} else {
			a, err = r.ask(ctx, s, mut)
		}
		return err
	})
	return a, err
}

// ask looks for the token. Its own insert is rolled back.
func (r *reconciler) ask(ctx context.Context, s session, mut keep.Mutation) (connector.Answer, error) {
	there, err := r.db.hasLedger(ctx, s)
	if err != nil {
		return connector.Answer{}, err
	}
	if !there {
		// Start made it before the call was recorded, so it was dropped since,
		// and what it would say is gone with it.
		return connector.Answer{}, r.db.failf(r.Tool.Name, keep.ClassPrecondition, "no-ledger",
			"the table %s is gone; only a person can tell what happened", r.db.ledger)
	}
	done, receipt, err := r.db.claim(ctx, r.Tool.Name, s, mut.Token)
	switch {
	case err != nil:
		return connector.Answer{}, err
	case done:
		return connector.Answer{Verdict: connector.Happened, Receipt: receipt, Detail: "the token is in " + r.db.ledger}, nil
	}
	if err := r.db.remembers(ctx, r.Tool.Name, s, mut); err != nil {
		return connector.Answer{}, err
	}
	return connector.Answer{Verdict: connector.Absent, Detail: "the token is not in " + r.db.ledger}, nil
}

// look compares the row with what was sent; the database does it, since it
// knows what its types make of a value.
func (r *reconciler) look(ctx context.Context, s session, p changeParams) (connector.Answer, error) {
	t, err := r.db.table(ctx, r.Tool.Name, s, p.Table)
	if err != nil {
		return connector.Answer{}, err
	}
	row, err := r.db.one(ctx, r.Tool.Name, s, t, p.Key)
	if err != nil {
		return connector.Answer{}, err
	}
	if isNull(row) {
		if r.Tool.Name == "update" {
			return connector.Answer{Verdict: connector.Retry, Detail: "the row is gone"}, nil
		}
		if !r.complete { // that another row is there says nothing of this one
			return connector.Answer{Verdict: connector.Retry, Detail: "no row has that key, and it may have been deleted since"}, nil
		}
		return connector.Answer{Verdict: connector.Absent, Detail: "no row has that key"}, nil
	}
	values := p.Row
	if r.Tool.Name == "update" {
		values = p.Set
	}
	q := &statement{engine: r.db.engine, table: t}
	q.add("SELECT 1 FROM ", t.quoted, " WHERE ")
	err = q.pairs(p.Key, " AND ", equals)
	if err == nil && len(values) > 0 {
		q.add(" AND ")
		err = q.pairs(values, " AND ", r.db.engine.same)
	}
	if err != nil {
		return connector.Answer{}, r.db.bad(r.Tool.Name, err)
	}
	same := false
	err = s.query(ctx, q.sql.String(), q.args, func([]any) error { same = true; return nil })
	if err != nil || !same {
		return connector.Answer{Verdict: connector.Retry, Detail: "the row with that key is not what was sent"}, err
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: row}, Detail: "the row is there"}, nil
}
