package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Airtable follows https://airtable.com/developers/web/api/create-records, .../update-record,
// .../update-multiple-records and .../list-records: a create makes another record each time; an
// upsert finds the record whose fields to merge on are equal, and refuses if there are two. Any
// record can be changed.
type Airtable struct {
	records []*airtableRecord
	changed map[string]string
}

type airtableRecord struct {
	table   string
	ID      string         `json:"id"`
	Created string         `json:"createdTime"`
	Fields  map[string]any `json:"fields"`
}

// airtableError is how Airtable refuses.
func airtableError(kind, message string) Reply {
	return Reply{Status: http.StatusUnprocessableEntity, Body: map[string]any{"error": map[string]string{"type": kind, "message": message}}}
}

// Change makes, changes or upserts a record.
func (a *Airtable) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Fields  map[string]any
		Records []struct{ Fields map[string]any }

		PerformUpsert struct{ FieldsToMergeOn []string }
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v0/"), "/")
	if json.Unmarshal(body, &p) != nil || len(parts) < 2 {
		return "", func() Reply { return airtableError("INVALID_REQUEST_MISSING_FIELDS", "no fields") }
	}
	table := parts[0] + "/" + parts[1]
	switch {
	case len(parts) == 3:
		return parts[2], func() Reply { return a.update(parts[2], p.Fields) }
	case r.Method == http.MethodPatch && len(p.Records) == 1:
		return fmt.Sprint(p.Records[0].Fields["Name"]), func() Reply {
			return a.upsert(table, p.PerformUpsert.FieldsToMergeOn, p.Records[0].Fields)
		}
	case r.Method != http.MethodPost || p.Fields == nil:
		return "", func() Reply { return airtableError("INVALID_REQUEST_MISSING_FIELDS", "no fields") }
	}
	return fmt.Sprint(p.Fields["Name"]), func() Reply {
		return Reply{Status: http.StatusOK, Body: a.create(table, p.Fields)}
	}
}

func (a *Airtable) create(table string, fields map[string]any) *airtableRecord {
	rec := &airtableRecord{table, fmt.Sprintf("rec%d", len(a.records)+1), "2026-11-22T12:00:00.000Z", fields}
	a.records = append(a.records, rec)
	return rec
}

func (a *Airtable) update(id string, fields map[string]any) Reply {
	if a.changed == nil {
		a.changed = map[string]string{}
	}
	raw, _ := json.Marshal(fields) // of JSON
	same := a.changed[id] == string(raw)
	a.changed[id] = string(raw)
	return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"id": id, "fields": fields}}
}

func (a *Airtable) upsert(table string, on []string, fields map[string]any) Reply {
	var found []*airtableRecord
	for _, rec := range a.records {
		equal := rec.table == table
		for _, f := range on {
			equal = equal && fmt.Sprint(rec.Fields[f]) == fmt.Sprint(fields[f])
		}
		if equal {
			found = append(found, rec)
		}
	}
	switch {
	case len(on) == 0:
		return airtableError("INVALID_REQUEST_UNKNOWN", "fieldsToMergeOn is missing")
	case len(found) > 1:
		return airtableError("INVALID_VALUE_FOR_COLUMN", "more than one record matches")
	case len(found) == 0:
		rec := a.create(table, fields)
		return Reply{Status: http.StatusOK, Body: map[string]any{"records": []any{rec}, "createdRecords": []string{rec.ID}, "updatedRecords": []string{}}}
	}
	same := true
	for k, v := range fields {
		if fmt.Sprint(found[0].Fields[k]) != fmt.Sprint(v) {
			found[0].Fields[k], same = v, false
		}
	}
	return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"records": []any{found[0]}, "createdRecords": []string{}, "updatedRecords": []string{found[0].ID}}}
}

var formula = regexp.MustCompile(`^(\w+)='([^']*)'$`)

// Read lists records, or returns one.
func (a *Airtable) Read(r *http.Request) Reply {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v0/"), "/")
	found := []*airtableRecord{}
	filter := formula.FindStringSubmatch(r.URL.Query().Get("filterByFormula"))
	for _, rec := range a.records {
		if len(parts) == 3 && rec.ID == parts[2] {
			return Reply{Status: http.StatusOK, Body: rec}
		}
		if rec.table == strings.Join(parts, "/") && (filter == nil || fmt.Sprint(rec.Fields[filter[1]]) == filter[2]) {
			found = append(found, rec)
		}
	}
	if len(parts) == 3 {
		return Reply{Status: http.StatusNotFound, Body: map[string]string{"error": "NOT_FOUND"}}
	}
	return Reply{Status: http.StatusOK, Body: paged(r, "records", found, "pageSize", "offset", "offset")}
}
