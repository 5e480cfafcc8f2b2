package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Sheets follows https://developers.google.com/workspace/sheets/api/reference/rest/v4: a batch is
// applied as a whole, appendCells adds rows below the data each time it comes, and what is empty
// is left out of answers.
type Sheets struct {
	rows   map[string][]sheetRow // by spreadsheet and sheet
	ranges map[string]string     // values by spreadsheet and range
}

type sheetRow struct {
	Values []map[string]any `json:"values"`
}

// Change applies a batch, writes a range, or reads by a data filter.
func (s *Sheets) Change(r *http.Request, body []byte) (string, func() Reply) {
	bad := func() Reply {
		return googleError(http.StatusBadRequest, "badRequest", "Invalid JSON payload received.")
	}
	path, _ := strings.CutPrefix(r.URL.Path, "/v4/spreadsheets/")
	if id, ok := strings.CutSuffix(path, ":getByDataFilter"); ok {
		return "", func() Reply { return s.filter(id, r.URL.Query().Get("fields"), body) }
	}
	if id, at, ok := strings.Cut(path, "/values/"); ok {
		return s.update(id, at, r.URL.Query().Get("valueInputOption"), body)
	}
	id, ok := strings.CutSuffix(path, ":batchUpdate")
	var p struct {
		Requests []struct {
			AppendCells *struct {
				SheetID *int
				Fields  string
				Rows    []sheetRow
			}
		}
	}
	if !ok || json.Unmarshal(body, &p) != nil || len(p.Requests) != 1 {
		return "", bad
	}
	a := p.Requests[0].AppendCells
	if a == nil || a.SheetID == nil || a.Fields == "" || len(a.Rows) != 1 || len(a.Rows[0].Values) == 0 {
		return "", bad
	}
	cell, _ := a.Rows[0].Values[0]["userEnteredValue"].(map[string]any)
	return fmt.Sprint(cell["stringValue"]), func() Reply {
		if s.rows == nil {
			s.rows = map[string][]sheetRow{}
		}
		at := fmt.Sprint(id, " ", *a.SheetID)
		s.rows[at] = append(s.rows[at], a.Rows[0])
		return Reply{Status: http.StatusOK, Body: map[string]any{"spreadsheetId": id, "replies": []any{map[string]any{}}}}
	}
}

// filter returns the notes of a range, by columns, and how large the sheet is if fields wants it.
func (s *Sheets) filter(id, fields string, body []byte) Reply {
	var p struct {
		IncludeGridData bool
		DataFilters     []struct {
			GridRange struct{ SheetID, StartColumnIndex, EndColumnIndex int }
		}
	}
	if json.Unmarshal(body, &p) != nil || len(p.DataFilters) != 1 {
		return googleError(http.StatusBadRequest, "badRequest", "Invalid dataFilters")
	}
	g := p.DataFilters[0].GridRange
	data := map[string]any{}
	out := []any{}
	for _, row := range s.rows[fmt.Sprint(id, " ", g.SheetID)] {
		cells := []any{}
		for _, c := range row.Values[min(g.StartColumnIndex, len(row.Values)):min(g.EndColumnIndex, len(row.Values))] {
			cell := map[string]any{}
			if note := c["note"]; note != nil {
				cell["note"] = note
			}
			cells = append(cells, cell)
		}
		out = append(out, map[string]any{"values": cells})
	}
	if len(out) > 0 {
		data["rowData"] = out
	}
	sheet := map[string]any{"data": []any{data}}
	if strings.Contains(fields, "gridProperties(rowCount)") {
		sheet["properties"] = map[string]any{"gridProperties": map[string]any{"rowCount": max(1000, len(out))}}
	}
	return Reply{Status: http.StatusOK, Body: map[string]any{"sheets": []any{sheet}}}
}

// update writes a range.
func (s *Sheets) update(id, at, option string, body []byte) (string, func() Reply) {
	var p struct{ Values [][]any }
	if json.Unmarshal(body, &p) != nil || len(p.Values) == 0 || option == "" {
		return "", func() Reply { return googleError(http.StatusBadRequest, "badRequest", "Invalid values") }
	}
	return at, func() Reply {
		if s.ranges == nil {
			s.ranges = map[string]string{}
		}
		raw, _ := json.Marshal(p.Values) // of JSON
		same := s.ranges[id+" "+at] == string(raw)
		s.ranges[id+" "+at] = string(raw)
		return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"spreadsheetId": id, "updatedRange": at, "updatedRows": len(p.Values)}}
	}
}

// Read returns the values of a range, or of a whole sheet "Sheet0".
func (s *Sheets) Read(r *http.Request) Reply {
	path, _ := strings.CutPrefix(r.URL.Path, "/v4/spreadsheets/")
	id, at, _ := strings.Cut(path, "/values/")
	body := map[string]any{"range": at, "majorDimension": "ROWS"}
	var values [][]any
	if raw, ok := s.ranges[id+" "+at]; ok {
		json.Unmarshal([]byte(raw), &values) // written by update
	}
	for _, row := range s.rows[id+" "+strings.TrimPrefix(at, "Sheet")] {
		line := []any{}
		for _, c := range row.Values {
			cell, _ := c["userEnteredValue"].(map[string]any)
			for _, v := range cell {
				line = append(line, v)
			}
		}
		values = append(values, line)
	}
	if len(values) > 0 {
		body["values"] = values
	}
	return Reply{Status: http.StatusOK, Body: body}
}
