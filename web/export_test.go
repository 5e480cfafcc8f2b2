package web_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// No cell of an exported table begins as a formula does, at whichever sign a spreadsheet splits lines: Excel splits at semicolons in
// many countries, and then knows no quotation marks within a line.
func TestExportHasNoFormulas(t *testing.T) {
	db := memory.New()
	doubts(t, db, 1, func(_ int, m *keep.Mutation, _ *keep.Escalation) {
		m.Title = "Order;=cmd|'/C calc'!A0;x\n=1+1;-2\t@SUM(A1)\r\n+3"
		m.Target = "=HYPERLINK(\"http://example.com\"),\"=1\""
	})
	a := pagesWith(t, db)("GET", "/mutations.csv", nil)
	a.want(t, http.StatusOK, "mut_0")
	for _, split := range []rune{',', ';', '\t'} {
		text := a.body
		if split != ',' { // then a mark within a line is one like any other
			text = strings.ReplaceAll(text, `"`, "")
		}
		r := csv.NewReader(strings.NewReader(text))
		r.Comma, r.FieldsPerRecord, r.LazyQuotes = split, -1, true
		rows, err := r.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			for _, cell := range row {
				if cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) {
					t.Errorf("split at %q there is the cell %q", split, cell)
				}
			}
		}
	}
	if !strings.Contains(a.body, "'=cmd|'/C calc'!A0;x") {
		t.Errorf("the title is not there:\n%s", a.body)
	}
}
