package twin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Calendar follows https://developers.google.com/workspace/calendar/api/v3/reference/events: an
// event may have an id of the caller's, in base32hex, and a second one with it is refused with
// 409; a deleted event is still found, as cancelled, and deleting it again is 410. Events that
// are only read or changed need not be made first.
type Calendar struct {
	events map[string]map[string]any // by calendar and id
	order  []string
}

var eventID = regexp.MustCompile(`^[a-v0-9]{5,999}$`)

// at returns the calendar of a path, and the id of an event or "".
func (c *Calendar) at(path string) (calendar, id string) {
	rest, _ := strings.CutPrefix(path, "/calendar/v3/calendars/")
	calendar, id, _ = strings.Cut(rest, "/events")
	return calendar, strings.TrimPrefix(id, "/")
}

// Change makes, changes or deletes an event.
func (c *Calendar) Change(r *http.Request, body []byte) (string, func() Reply) {
	if c.events == nil {
		c.events = map[string]map[string]any{}
	}
	var p map[string]any
	calendar, id := c.at(r.URL.Path)
	if r.Method == http.MethodDelete {
		return id, func() Reply { return c.remove(calendar, id) }
	}
	if json.Unmarshal(body, &p) != nil || calendar == "" {
		return "", func() Reply { return googleError(http.StatusBadRequest, "parseError", "Parse Error") }
	}
	name, _ := p["summary"].(string)
	if r.Method == http.MethodPatch {
		return name, func() Reply { return c.patch(calendar, id, p) }
	}
	if p["start"] == nil || p["end"] == nil {
		return "", func() Reply { return googleError(http.StatusBadRequest, "required", "Missing end time.") }
	}
	return name, func() Reply {
		id, own := p["id"].(string)
		if own && !eventID.MatchString(id) {
			return googleError(http.StatusBadRequest, "invalid", "Invalid resource id value.")
		}
		if !own {
			id = fmt.Sprintf("ev%d", len(c.order))
		}
		if c.events[calendar+" "+id] != nil {
			return googleError(http.StatusConflict, "duplicate", "The requested identifier already exists.")
		}
		p["id"], p["status"], p["htmlLink"] = id, "confirmed", "https://www.google.com/calendar/event?eid="+id
		c.events[calendar+" "+id] = p
		c.order = append(c.order, calendar+" "+id)
		return Reply{Status: http.StatusOK, Body: p}
	}
}

// event returns an event that is only changed or deleted here.
func (c *Calendar) event(calendar, id string) map[string]any {
	at := calendar + " " + id
	if c.events[at] == nil {
		c.events[at] = map[string]any{"id": id, "status": "confirmed"}
		c.order = append(c.order, at)
	}
	return c.events[at]
}

func (c *Calendar) patch(calendar, id string, p map[string]any) Reply {
	e := c.event(calendar, id)
	same := true
	for k, v := range p {
		if fmt.Sprint(e[k]) != fmt.Sprint(v) {
			e[k], same = v, false
		}
	}
	return Reply{Status: http.StatusOK, Body: maps.Clone(e), Same: same}
}

func (c *Calendar) remove(calendar, id string) Reply {
	e := c.event(calendar, id)
	if e["status"] == "cancelled" {
		return googleError(http.StatusGone, "deleted", "Resource has been deleted")
	}
	e["status"] = "cancelled"
	return Reply{Status: http.StatusNoContent}
}

// Read lists events, or returns one.
func (c *Calendar) Read(r *http.Request) Reply {
	calendar, id := c.at(r.URL.Path)
	if id != "" {
		e := c.events[calendar+" "+id]
		if e == nil {
			return notFound()
		}
		return Reply{Status: http.StatusOK, Body: e}
	}
	found := []map[string]any{}
	for _, at := range c.order {
		if strings.HasPrefix(at, calendar+" ") && c.events[at]["status"] != "cancelled" {
			found = append(found, c.events[at])
		}
	}
	return Reply{Status: http.StatusOK, Body: paged(r, "items", found, "maxResults", "pageToken", "nextPageToken")}
}

// paged returns one page of a list, with a cursor to the next one.
func paged[T any](r *http.Request, items string, all []T, size, param, next string) map[string]any {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get(param))
	limit, err := strconv.Atoi(q.Get(size))
	if err != nil {
		limit = 100
	}
	end := min(from+limit, len(all))
	body := map[string]any{items: slices.Clone(all[min(from, end):end])}
	if end < len(all) {
		body[next] = strconv.Itoa(end)
	}
	return body
}
