package examples_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"
)

// invoices is what the mails of examples/invoices become. 12-not-an-invoice.eml
// becomes no row, and 14-delivered-twice.eml is the mail of 01-plain.eml.
var invoices = []string{
	"01-plain.eml | Northwind Traders | NW-1001 | 1250.00 EUR | 2026-11-30 | ready",
	"02-html.eml | Contoso, Ltd. | C-2026/118 | 96.80 USD | 2026-12-03 | ready",
	"03-base64.eml | Studio Lind | 2026-044 | 12480.50 SEK | 2026-12-04 | ready",
	"04-quoted-printable.eml | Buchhaltung Weber | RE-2026-0815 | 2380.00 EUR | 2026-11-19 | ready",
	"05-non-ascii.eml | Ελληνικά Τυπογραφεία | ΤΔΑ-77 | 415.20 EUR | 2026-11-20 | ready",
	"06-encoded-subject.eml | 株式会社サンプル | S-3021 | 48000 JPY | 2026-12-10 | ready",
	"07-attachment.eml | Fabrikam Hosting | F-9921 | 59.00 USD | 2026-11-24 | ready",
	"08-alternative.eml | Adventure Works | AW-55/26 | 1099.99 GBP | 2026-12-11 | ready",
	"09-windows-1252.eml | Société Générale d'Éclairage | 2026-311 | 1204.80 EUR | 2026-12-12 | ready",
	"10-koi8-r.eml | ООО Ромашка | 508 | 300.00 EUR | 2026-11-27 | ready",
	"11-broken.eml | Tailspin Toys <billing@tailspin.example | TT-404 | ? ? | ? | check",
	"13-forwarded.eml | Sam | LW-12 | 640.00 EUR | 2026-12-01 | ready",
}

// copyOfInvoices returns a copy of the example with an empty table, whatever
// somebody's own run left in the one beside the example.
func copyOfInvoices(t testing.TB) (dir string, db *sql.DB) {
	t.Helper()
	dir = copyOf(t, "invoices")
	return dir, emptyInvoices(t, dir)
}

// emptyInvoices makes the database of the example anew.
func emptyInvoices(t testing.TB, dir string) *sql.DB {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "invoices.db")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	schema, err := os.ReadFile(filepath.Join(dir, "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	db := openInvoices(t, dir)
	if _, err := db.ExecContext(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	return db
}

// openInvoices opens the database that the example writes to.
func openInvoices(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "invoices.db"))+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// rows returns a line for each invoice, in the order of the files.
func rows(t testing.TB, db *sql.DB) []string {
	t.Helper()
	const query = `SELECT file || ' | ' || sender || ' | ' || number || ' | ' || ifnull(amount, '?') || ' ' ||
		ifnull(currency, '?') || ' | ' || ifnull(due, '?') || ' | ' || state FROM invoices ORDER BY file, id`
	list, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var out []string
	for list.Next() {
		var line string
		if err := list.Scan(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func count(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM invoices`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInvoices(t *testing.T) {
	t.Parallel()
	dir, db := copyOfInvoices(t)
	leavesClean(t, filepath.Dir(dir))
	first := runOnce(t, dir)
	if d := cmp.Diff(rows(t, db), invoices); d != "" {
		t.Errorf("after the first run (-got +want):\n%s", d)
	}
	if w := first.Workflows[0]; w.Failed != 0 || w.Committed != 15 {
		t.Errorf("first run: %+v, want 15 committed: one list, and one for each mail", w)
	}
	var warnings string
	if err := db.QueryRowContext(t.Context(), `SELECT warnings FROM invoices WHERE state = 'check'`).Scan(&warnings); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cut off", "no total was found", "the date"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings of the broken mail = %q, want %q in it", warnings, want)
		}
	}

	second := runOnce(t, dir)
	if d := cmp.Diff(rows(t, db), invoices); d != "" {
		t.Errorf("after the second run (-got +want):\n%s", d)
	}
	if w := second.Workflows[0]; w.Committed > 1 {
		t.Errorf("second run: %+v, want at most the list", w)
	}
}

// hurried makes waits shorter that a person would not mind: before an absence is
// believed, and before a call is made again. A slow machine may need many tries.
var hurried = []string{
	"KEEP_CONNECTIONS_DB_TIMEOUT=3s", "KEEP_POLICY_RETRY_FIRST=100ms", "KEEP_POLICY_RETRY_ATTEMPTS=100",
}

// A process that is killed after every row still leaves each mail in one row.
func TestInvoicesKilledAfterEachRow(t *testing.T) {
	t.Parallel()
	dir, db := copyOfInvoices(t)
	kills := 0
	for ; kills <= len(invoices); kills++ {
		if !killAfterRow(t, dir, db) {
			break
		}
	}
	runOnce(t, dir, hurried...)
	if d := cmp.Diff(rows(t, db), invoices); d != "" {
		t.Errorf("after %d kills (-got +want):\n%s", kills, d)
	}
	t.Logf("killed %d times", kills)
}

// killAfterRow runs the example and kills it when there is one row more. It
// returns false if the example ended first.
func killAfterRow(t *testing.T, dir string, db *sql.DB) bool {
	t.Helper()
	before := count(t, db)
	p := start(t, dir, hurried...)
	for count(t, db) == before {
		if p.over() {
			return false
		}
	}
	p.kill()
	return true
}

// A process that is killed while its insert waits for a lock doesn't know
// whether it happened. The next one asks.
func TestInvoicesKilledInACall(t *testing.T) {
	t.Parallel()
	dir, db := copyOfInvoices(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, hurried...)
	for !strings.Contains(mutations(t, dir), `"in_flight"`) {
		if p.over() {
			t.Fatalf("keep run ended before it made its call: %s", &p.out)
		}
	}
	p.kill()
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	runOnce(t, dir, hurried...)
	if d := cmp.Diff(rows(t, db), invoices); d != "" {
		t.Errorf("after the kill (-got +want):\n%s", d)
	}
}

// mutations returns the ledger as JSON; it is empty while there is none.
func mutations(t *testing.T, dir string) string {
	t.Helper()
	out, err := command(t, dir, nil, "mutations", "list", "--json").Output()
	if err != nil {
		return "" // the database isn't there yet
	}
	return string(out)
}
