package transfer_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
)

// raw opens the database of a place beside Keep, as the program does that has tables of its own in it.
func raw(t *testing.T, p place) *sql.DB {
	t.Helper()
	driver := "sqlite"
	if _, ok := p.(schemaPlace); ok {
		driver = "pgx"
	}
	db, err := sql.Open(driver, address(p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// A program writes rows of its own beside its keys, with idempotency.Tx. A copy does not take them along, so it begins
// only if somebody says that they stay; and they can be written from then on as before.
func TestOtherTables(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), make(t)
		fill(t, from)
		execute(t, raw(t, from), `CREATE TABLE payment (id INT)`, `CREATE VIEW paid AS SELECT id FROM payment`,
			`CREATE TABLE "odd "" name" (id INT)`, `INSERT INTO payment VALUES (1)`)

		_, err := mover.Copy(ctx, from, to)
		if !errors.Is(err, transfer.ErrOtherTables) || !strings.Contains(err.Error(), `odd " name, payment`) || strings.Contains(err.Error(), "paid") {
			t.Fatalf("copy of a database with other tables: %v", err)
		}
		if got := state(t, from); got != transfer.Plain {
			t.Errorf("the source is %q", got)
		}
		if got := state(t, to); got != missing {
			t.Errorf("the target is %q", got)
		}

		leaving := mover
		leaving.LeaveTables = true
		done, err := leaving.Copy(ctx, from, to)
		if err != nil || strings.Join(done.Left, ",") != `odd " name,payment` {
			t.Fatalf("copy that leaves tables: %v, left %q", err, done.Left)
		}
		execute(t, raw(t, from), `INSERT INTO payment VALUES (2)`, `DELETE FROM "odd "" name"`)
		if late, err := raw(t, from).ExecContext(ctx, `DELETE FROM workflow`); err == nil {
			n, _ := late.RowsAffected()
			t.Errorf("a sealed table was written to: %d rows", n)
		}
		if done, err = mover.Copy(ctx, from, to); err != nil || !done.Resumed || len(done.Left) != 2 {
			t.Errorf("the same copy again: %+v, %v", done, err)
		}
		if err := mover.Undo(ctx, from, to); err != nil {
			t.Errorf("undo: %v", err)
		}
	})
}

// Tables of another program, which came since to what was copied to, are not deleted by another copy.
func TestOtherTablesOfTheTarget(t *testing.T) {
	t.Parallel()
	from, to := file(t), file(t)
	fill(t, from)
	if _, err := mover.Copy(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	if err := mover.Undo(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	execute(t, raw(t, to), `CREATE TABLE payment (id INT)`)
	if _, err := mover.Copy(ctx, from, to); err == nil || !strings.Contains(err.Error(), "payment") {
		t.Errorf("copy over tables of others: %v", err)
	}
	execute(t, raw(t, to), `INSERT INTO payment VALUES (1)`)
}

// A program's triggers are its own, whatever their names begin with. An older version of Keep fenced all tables.
func TestOtherTriggers(t *testing.T) {
	t.Parallel()
	p := file(t)
	fill(t, p)
	execute(t, raw(t, p), `CREATE TABLE payment (id INT)`,
		`CREATE TRIGGER fence_of_payments BEFORE DELETE ON payment BEGIN SELECT RAISE(ABORT, 'no'); END`,
		`CREATE TRIGGER fence_payment_insert BEFORE INSERT ON payment BEGIN SELECT RAISE(ABORT, 'this database was moved'); END`,
		`CREATE TRIGGER "delete" BEFORE UPDATE ON payment BEGIN SELECT RAISE(ABORT, 'no'); END`)
	held, err := p.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(held.Set(ctx, transfer.Mark{}), held.Release()); err != nil {
		t.Fatal(err)
	}
	execute(t, raw(t, p), `INSERT INTO payment VALUES (1)`)
	if _, err := raw(t, p).ExecContext(ctx, `UPDATE payment SET id = 2`); err == nil {
		t.Error("a trigger of the program is gone that is called delete")
	}
	if _, err := raw(t, p).ExecContext(ctx, `DELETE FROM payment`); err == nil {
		t.Error("a trigger of the program is gone")
	}
}

// What a server was found to lack is not known to a copy, so none is made before a person accepted it.
func TestCopyOfAServerThatLacksKeys(t *testing.T) {
	t.Parallel()
	from, to := schema(t), file(t)
	openSchema(t, from)
	execute(t, raw(t, from), `INSERT INTO idempotency_lost VALUES (1)`)
	if _, err := (transfer.Mover{}).Copy(ctx, from, to); !errors.Is(err, keep.ErrReplaced) {
		t.Errorf("Copy = %v, want ErrReplaced", err)
	}
	if err := (transfer.Mover{Now: time.UnixMilli(5)}).Restore(ctx, from); err != nil {
		t.Fatal(err)
	}
	if _, err := (transfer.Mover{}).Copy(ctx, from, to); err != nil {
		t.Errorf("Copy after keep db restored = %v", err)
	}
}
