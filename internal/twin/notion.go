package twin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Notion follows https://developers.notion.com/reference/post-page, .../patch-page,
// .../post-database-query and .../status-codes: each request makes another page, a property that
// the database lacks is refused, and errors are {object, status, code, message}. Any page can be
// changed.
type Notion struct {
	pages   []*notionPage
	changed map[string]string
}

type notionPage struct {
	Object     string         `json:"object"`
	ID         string         `json:"id"`
	Parent     map[string]any `json:"parent"`
	Properties map[string]any `json:"properties"`
	URL        string         `json:"url"`
}

// notionError is how Notion refuses.
func notionError(status int, code, message string) Reply {
	return Reply{Status: status, Body: map[string]any{"object": "error", "status": status, "code": code, "message": message}}
}

// Change makes or changes a page, or queries a database.
func (n *Notion) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Parent     map[string]any
		Properties map[string]any
		Archived   *bool
	}
	err := json.Unmarshal(body, &p)
	switch path := strings.TrimPrefix(r.URL.Path, "/v1"); {
	case r.Header.Get("Notion-Version") == "":
		return "", func() Reply {
			return notionError(http.StatusBadRequest, "missing_version", "Notion-Version is missing")
		}
	case strings.HasSuffix(path, "/query"):
		return "", func() Reply {
			return n.query(strings.TrimSuffix(strings.TrimPrefix(path, "/databases/"), "/query"), body)
		}
	case err != nil || len(p.Properties) == 0 && p.Archived == nil:
		return "", func() Reply { return notionError(http.StatusBadRequest, "validation_error", "body failed validation") }
	case r.Method == http.MethodPatch:
		id := strings.TrimPrefix(path, "/pages/")
		return id, func() Reply {
			if n.changed == nil {
				n.changed = map[string]string{}
			}
			same := n.changed[id] == string(body)
			n.changed[id] = string(body)
			return Reply{Status: http.StatusOK, Same: same, Body: notionPage{Object: "page", ID: id, Properties: p.Properties}}
		}
	}
	return plainText(p.Properties["Name"]), func() Reply {
		if p.Parent["database_id"] == nil || p.Properties["Name"] == nil {
			return notionError(http.StatusBadRequest, "validation_error", "body failed validation")
		}
		id := fmt.Sprintf("page-%d", len(n.pages)+1)
		page := &notionPage{"page", id, p.Parent, p.Properties, "https://www.notion.so/" + id}
		n.pages = append(n.pages, page)
		return Reply{Status: http.StatusOK, Body: page}
	}
}

// plainText returns the text of a property that is a title or rich text.
func plainText(property any) string {
	fields, _ := property.(map[string]any)
	for _, kind := range []string{"title", "rich_text"} {
		list, _ := fields[kind].([]any)
		for _, e := range list {
			run, _ := e.(map[string]any)
			text, _ := run["text"].(map[string]any)
			return fmt.Sprint(text["content"])
		}
	}
	return ""
}

// query returns a page of a database's pages.
func (n *Notion) query(database string, body []byte) Reply {
	var q struct {
		Filter *struct {
			Property string
			RichText struct{ Equals string } `json:"rich_text"`
		}
		StartCursor any `json:"start_cursor"`
		PageSize    int `json:"page_size"`
	}
	if json.Unmarshal(body, &q) != nil {
		return notionError(http.StatusBadRequest, "invalid_json", "the body is not JSON")
	}
	found := []*notionPage{}
	for _, p := range slices.Backward(n.pages) {
		if p.Parent["database_id"] == database && (q.Filter == nil || plainText(p.Properties[q.Filter.Property]) == q.Filter.RichText.Equals) {
			found = append(found, p)
		}
	}
	from, _ := strconv.Atoi(fmt.Sprint(q.StartCursor))
	size := q.PageSize
	size = cmp.Or(size, 100)
	end := min(from+size, len(found))
	reply := map[string]any{"object": "list", "results": found[min(from, end):end], "has_more": end < len(found), "next_cursor": nil}
	if end < len(found) {
		reply["next_cursor"] = strconv.Itoa(end)
	}
	return Reply{Status: http.StatusOK, Body: reply}
}

// Read returns a page.
func (n *Notion) Read(r *http.Request) Reply {
	id := strings.TrimPrefix(r.URL.Path, "/v1/pages/")
	for _, p := range n.pages {
		if p.ID == id {
			return Reply{Status: http.StatusOK, Body: p}
		}
	}
	return notionError(http.StatusNotFound, "object_not_found", "Could not find page")
}
