package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// paged are lists in each style, over a service of 25 rows in pages of 10.
const paged = `
[tools.cursor]
effect = "list"
path = "/cursor"
query = ["q"]
pages = { style = "cursor", items = "$.data", next = "$.meta.next", param = "after", size = 10, size_param = "n" }

[tools.last]
effect = "list"
path = "/last"
pages = { style = "cursor", items = "$.data", more = "$.has_more", from = "$.data[-1].id", param = "starting_after" }

[tools.page]
effect = "list"
path = "/page"
pages = { style = "page", param = "page", size = 10 }

[tools.offset]
effect = "list"
path = "/offset"
pages = { style = "offset", param = "offset" }

[tools.link]
effect = "list"
path = "/link"
pages = { style = "link", items = "/data" }

[tools.create]
effect = "mutate"
path = "/link"
identity = ["id"]
token = { body = "ref" }
[tools.create.reconcile]
path = "/link"
items = "$.data"
match = { ref = "{token}" }
complete = true
pages = { style = "link" }
`

// A library is a service of rows in pages.
type library struct {
	rows  int
	mode  string // what goes wrong on the second page
	asked []string
}

func (l *library) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.asked = append(l.asked, r.RequestURI)
	from, size := 0, 10
	if l.rows > 1000 {
		size = 500
	}
	q := r.URL.Query()
	for _, name := range []string{"after", "starting_after", "offset", "from"} {
		if v := q.Get(name); v != "" {
			from, _ = strconv.Atoi(v)
		}
	}
	if r.URL.Path == "/page" {
		n, _ := strconv.Atoi(q.Get("page"))
		from = 10 * (n - 1)
	}
	var rows []any
	for id := from + 1; id <= min(from+size, l.rows); id++ {
		rows = append(rows, map[string]any{"id": id, "ref": fmt.Sprint("tok-", id+100)})
	}
	last, more := min(from+size, l.rows), from+size < l.rows
	next := fmt.Sprintf("/link?from=%d", last)
	if from == 10 {
		switch l.mode {
		case "loop":
			last, next = 10, "/link?from=10"
		case "elsewhere":
			next = "http://evil.invalid/link"
		case "html":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
			return
		case "500", "404":
			code, _ := strconv.Atoi(l.mode)
			w.WriteHeader(code)
			return
		case "null":
			rows = nil
		}
	}
	if more && r.URL.Path == "/link" {
		w.Header().Set("Link", fmt.Sprintf(`</link?from=0>; rel="first", <%s>; rel="next"`, next))
	}
	body := map[string]any{"data": rows, "has_more": more, "meta": map[string]any{"next": last}}
	if !more {
		body["meta"] = map[string]any{"next": nil}
	}
	if from == 10 {
		switch l.mode {
		case "no-more":
			delete(body, "has_more")
		case "no-place":
			body["data"], body["meta"] = []any{map[string]any{"ref": "x"}}, map[string]any{"next": []any{last}}
		}
	}
	var v any = body
	if r.URL.Path == "/page" || r.URL.Path == "/offset" {
		v = append([]any{}, rows...)
	}
	json.NewEncoder(w).Encode(v)
}

// A listing is what a list in pages returns.
type listing struct {
	List      []struct{ ID int } `json:"$list"`
	Truncated bool
	Next      *string
}

func list(t *testing.T, conn *connector.Connection, name, params string) (listing, error) {
	t.Helper()
	raw, err := mustRead(t, conn, name, params)
	var l listing
	if err == nil {
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	}
	return l, err
}

func TestPages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cursor", "last", "page", "offset", "link"} {
		for _, limit := range []int{0, 7, 10, 11, 25, 26} {
			service := &library{rows: 25}
			conn := openTools(t, paged, service.ServeHTTP)
			want, params, cursor := 1, map[string]any{}, ""
			if limit > 0 {
				params["limit"] = limit
			}
			for calls := 0; ; calls++ {
				if cursor != "" {
					params["cursor"] = cursor
				}
				raw, _ := json.Marshal(params)
				l, err := list(t, conn, name, string(raw))
				if err != nil || calls > 25 {
					t.Fatalf("%s by %d: %v after %d calls", name, limit, err, calls)
				}
				for _, row := range l.List {
					if row.ID != want {
						t.Fatalf("%s by %d: row %d, want %d", name, limit, row.ID, want)
					}
					want++
				}
				if l.Truncated != (l.Next != nil) || limit > 0 && len(l.List) > limit {
					t.Fatalf("%s by %d: %d rows, truncated %t, next %v", name, limit, len(l.List), l.Truncated, l.Next)
				}
				if l.Next == nil {
					break
				}
				cursor = *l.Next
			}
			if want != 26 {
				t.Errorf("%s by %d: %d rows, want 25", name, limit, want-1)
			}
		}
	}
}

// TestPagesThatGoWrong reads lists whose second page is not what it should be: the whole
// call fails, and never returns a shorter list.
func TestPagesThatGoWrong(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct {
		class keep.Class
		code  string
		tools string
	}{
		"loop":      {keep.ClassLogic, "pages_loop", "cursor link"},
		"elsewhere": {keep.ClassLogic, "pages_elsewhere", "link"},
		"html":      {keep.ClassTransient, "page-without-items", "cursor last link"},
		"null":      {keep.ClassTransient, "page-without-items", "cursor last link"},
		"500":       {keep.ClassTransient, "http-500", "cursor last link"},
		"404":       {keep.ClassLogic, "http-404", "cursor last link"},
		"no-more":   {keep.ClassTransient, "page-without-next", "last"},
		"no-place":  {keep.ClassTransient, "page-without-next", "cursor last"},
	} {
		service := &library{rows: 25, mode: mode}
		conn := openTools(t, paged, service.ServeHTTP)
		for _, name := range strings.Fields(want.tools) {
			_, err := list(t, conn, name, `{}`)
			if class(err) != want.class || codeOf(err) != want.code {
				t.Errorf("%s with %s: %v (%s), want %s %s", name, mode, err, codeOf(err), want.class, want.code)
			}
		}
	}
	conn := openTools(t, paged, (&library{rows: 25}).ServeHTTP)
	for _, params := range []string{`{"limit":0}`, `{"limit":10001}`, `{"limit":"x"}`, `{"cursor":7}`, `{"cursor":"keep:x:"}`} {
		if _, err := list(t, conn, "link", params); class(err) != keep.ClassLogic {
			t.Errorf("%s: %v, want logic", params, err)
		}
	}
	if _, err := list(t, conn, "link", `{"cursor":"http://evil.invalid/"}`); codeOf(err) != "pages_elsewhere" {
		t.Errorf("a cursor of another origin: %v", err)
	}
}

// codeOf returns the code of a failure.
func codeOf(err error) string {
	if f, ok := err.(*keep.Failure); ok {
		return f.Code
	}
	return ""
}

// TestLookupInPages finds an effect on any page, and believes that there is none only when
// all pages were read.
func TestLookupInPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows  int
		mode  string
		token string
		want  connector.Verdict
	}{
		{25, "", "tok-101", connector.Happened},
		{25, "", "tok-125", connector.Happened},
		{25, "", "tok-1", connector.Absent},
		{0, "", "tok-1", connector.Retry},      // null is no list
		{11_000, "", "tok-1", connector.Retry}, // there is more than is read
		{25, "html", "tok-125", connector.Retry},
		{25, "null", "tok-125", connector.Retry},
		{25, "500", "tok-125", ""},
		{25, "404", "tok-125", connector.Retry},
		{25, "loop", "tok-125", ""},
		{25, "elsewhere", "tok-125", ""},
	} {
		service := &library{rows: c.rows, mode: c.mode}
		conn := openTools(t, paged, service.ServeHTTP)
		m := mutation(`{"id":1}`)
		m.Token = c.token
		a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m)
		if a.Verdict != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s among %d rows, %q: %q%s, %v; want %q", c.token, c.rows, c.mode, a.Verdict, a.Detail, err, c.want)
		}
	}
}

// TestPagesThatMayNotBeAll reads pages of which it is not said, or not in a form that can be read, whether and
// where there is another: no list, and no absence. What is on them is found. Law: witnessed.
func TestPagesThatMayNotBeAll(t *testing.T) {
	t.Parallel()
	const (
		from   = `style = "cursor", param = "after", more = "$.more", from = "$.data[-1].id"`
		next   = `style = "cursor", param = "after", next = "$.next"`
		offset = `style = "offset", param = "offset", more = "$.more"`
		page   = `style = "page", param = "page", more = "$.more"`
		link   = `style = "link", more = "$.more"`
		row    = `{"id":1,"ref":"tok-101"}`
	)
	for _, c := range []struct {
		pages, body string
		all         bool
	}{
		{from, `{"data":[` + row + `],"more":false}`, true},
		{from, `{"data":[],"more":false}`, true},
		{from, `{"data":[],"more":true}`, false},
		{from, `{"data":[` + row + `,{"ref":"x"}],"more":true}`, false},
		{from, `{"data":[` + row + `,{"id":{},"ref":"x"}],"more":true}`, false},
		{from, `{"data":[` + row + `,{"id":"","ref":"x"}],"more":true}`, false},
		{from, `{"data":[` + row + `]}`, false},
		{from, `{"data":[` + row + `],"more":null}`, false},
		{from, `{"data":[` + row + `],"more":"true"}`, false},
		{from, `{"data":[` + row + `],"more":1}`, false},
		{next, `{"data":[` + row + `]}`, true},
		{next, `{"data":[` + row + `],"next":null}`, true},
		{next, `{"data":[` + row + `],"next":""}`, true},
		{next, `{"data":[` + row + `],"next":false}`, true},
		{next, `{"data":[` + row + `],"next":{"after":"x"}}`, false},
		{next, `{"data":[` + row + `],"next":["x"]}`, false},
		{offset, `{"data":[],"more":true}`, false},
		{offset, `{"data":[` + row + `]}`, false},
		{page, `{"data":[` + row + `],"more":0}`, false},
		{page, `{"data":[` + row + `],"more":false}`, true},
		{link, `{"data":[` + row + `],"more":true}`, false},
	} {
		cfg := fmt.Sprintf("[tools.all]\neffect = \"list\"\npath = \"/\"\npages = { items = \"$.data\", %s }\n"+
			"[tools.create]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\ntoken = { body = \"ref\" }\n"+
			"reconcile = { path = \"/\", items = \"$.data\", match = { ref = \"{token}\" }, complete = true, pages = { %[1]s } }\n", c.pages)
		conn := openTools(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, c.body)
		})
		wantCode, wantVerdict := "page-without-next", connector.Retry
		if c.all {
			wantCode, wantVerdict = "", connector.Absent
		}
		if l, err := list(t, conn, "all", `{}`); codeOf(err) != wantCode || (err == nil) != c.all || l.Truncated {
			t.Errorf("%s of %s: %+v, %v; want %q", c.pages, c.body, l, err, wantCode)
		}
		for token, want := range map[string]connector.Verdict{"tok-1": wantVerdict, "tok-101": connector.Happened} {
			if !strings.Contains(c.body, "tok-101") {
				want = wantVerdict
			}
			m := mutation(`{"id":1}`)
			m.Token = token
			if a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m); err != nil || a.Verdict != want {
				t.Errorf("%s of %s: %s is %q%s, %v; want %q", c.pages, c.body, token, a.Verdict, a.Detail, err, want)
			}
		}
	}
}

// TestAbsenceInAListThatSaysMore takes no list for complete that says that there is more and names no next page, as where the
// configuration looks for it in another place. Law: witnessed.
func TestAbsenceInAListThatSaysMore(t *testing.T) {
	t.Parallel()
	for _, pages := range []string{`style = "cursor", param = "after", next = "$.meta.next"`, `style = "link"`} {
		for body, want := range map[string]connector.Verdict{
			`{"data":[{"ref":"x"}],"has_more":true,"next":"c"}`:      connector.Retry,
			`{"data":[],"page_info":{"hasNextPage":true}}`:           connector.Retry,
			`{"data":[{"ref":"x","has_more":true}]}`:                 connector.Absent,
			`{"data":[{"ref":"x"}],"has_more":false,"next":"c"}`:     connector.Absent,
			`{"data":[{"ref":"x"},{"ref":"tok-1"}],"has_more":true}`: connector.Happened,
		} {
			conn := openTools(t, "[tools.create]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\ntoken = { body = \"ref\" }\n"+
				"reconcile = { path = \"/\", items = \"$.data\", match = { ref = \"{token}\" }, complete = true, pages = { "+pages+" } }\n", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, body)
			})
			m := mutation(`{"id":1}`)
			m.Token = "tok-1"
			if a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m); err != nil || a.Verdict != want {
				t.Errorf("%s of %s: %q%s, %v; want %q", pages, body, a.Verdict, a.Detail, err, want)
			}
		}
	}
}

// TestListWhosePagesAreCapped reads all of a list whose service gives fewer to a page than it is asked for, and says that there is more.
func TestListWhosePagesAreCapped(t *testing.T) {
	t.Parallel()
	const rows, most = 7, 2
	for style, at := range map[string]func(n int) int{"page": func(n int) int { return (n - 1) * most }, "offset": func(n int) int { return n }} {
		conn := openTools(t, fmt.Sprintf("[tools.all]\neffect = \"list\"\npath = \"/\"\npages = { style = %q, items = \"$.data\", param = \"at\", size = 100, size_param = \"n\" }\n", style), func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.FormValue("at"))
			from := at(n)
			page := []string{}
			for i := from; i < min(from+most, rows); i++ {
				page = append(page, fmt.Sprintf(`{"id":%d}`, i))
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"data":[%s],"meta":{"has_more":%t}}`, strings.Join(page, ","), from+most < rows)
		})
		if l, err := list(t, conn, "all", `{}`); err != nil || len(l.List) != rows || l.Truncated {
			t.Errorf("%s: %d of %d, %v", style, len(l.List), rows, err)
		}
	}
}

// TestEmptyPageBeforeOthers reads over a page that has nothing, and says that there is another.
func TestEmptyPageBeforeOthers(t *testing.T) {
	t.Parallel()
	conn := openTools(t, "[tools.all]\neffect = \"list\"\npath = \"/\"\npages = { style = \"page\", param = \"page\", items = \"$.data\", more = \"$.more\" }\n", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("page") == "1" {
			fmt.Fprint(w, `{"data":[],"more":true}`)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":7}],"more":false}`)
	})
	if l, err := list(t, conn, "all", `{}`); err != nil || len(l.List) != 1 {
		t.Errorf("%+v, %v; want the row of the second page", l, err)
	}
}

// TestCursorsGoBackAsTheyCame has a service whose cursors are texts of digits.
func TestCursorsGoBackAsTheyCame(t *testing.T) {
	t.Parallel()
	const tools = `
[tools.list]
effect = "list"
method = "POST"
path = "/list"
pages = { style = "cursor", in = "body", items = "$.data", next = "$.next", param = "after", size = 1, size_param = "n" }
`
	for _, cursor := range []string{"007", "+7", "-0", "12345678901234567890"} {
		var asked []string
		conn := openTools(t, tools, func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				After any
				N     int
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.N != 1 {
				t.Errorf("a page of %d, %v", body.N, err)
			}
			asked = append(asked, fmt.Sprint(body.After))
			next := "null"
			if body.After == nil {
				next = strconv.Quote(cursor)
			}
			fmt.Fprintf(w, `{"data":[{"id":1}],"next":%s}`, next)
		})
		if _, err := mustRead(t, conn, "list", `{}`); err != nil || len(asked) != 2 || asked[1] != cursor {
			t.Errorf("the cursor %q: asked for %q, %v", cursor, asked, err)
		}
	}
}

// A shelf is a service of rows in pages of two, which somebody changes between the first page and the second.
type shelf struct {
	style   string
	rows    []string
	first   func(reading int) // before a first page
	between func(reading int) // after it
	asked   int
	reading int
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked++
	from, _ := strconv.Atoi(r.FormValue("at"))
	if s.style == "page" {
		from = max(from-1, 0) * 2
	}
	if from == 0 {
		s.reading++
		s.first(s.reading)
	}
	page := []string{}
	for _, id := range s.rows[min(from, len(s.rows)):min(from+2, len(s.rows))] {
		page = append(page, fmt.Sprintf(`{"id":%q,"ref":"ref-%[1]s","shown":%d}`, id, s.asked))
	}
	if s.style == "link" && from+2 < len(s.rows) {
		w.Header().Set("Link", fmt.Sprintf(`</?at=%d>; rel="next"`, from+2))
	}
	w.Header().Set("Content-Type", "application/json")
	next := "null"
	if from+2 < len(s.rows) && s.style == "cursor" { // a service may make its cursors of numbers
		next = fmt.Sprintf(`"%d"`, from+2)
	}
	fmt.Fprintf(w, `{"data":[%s],"next":%s}`, strings.Join(page, ","), next)
	if from == 0 {
		s.between(s.reading)
	}
}

// TestLookupInAListThatShifts reads a list from which an entry is deleted between two pages, so that ours moves from a page that was
// not read yet to one that was. Laws: once, witnessed.
func TestLookupInAListThatShifts(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"offset", "page", "link", "cursor"} {
		for name, c := range map[string]struct {
			rows           string
			first, between []string // what the list is then, in each reading; empty: as it was
			want           connector.Verdict
		}{
			"nothing changes":           {"a b c d e", nil, nil, connector.Absent},
			"one page":                  {"a", nil, nil, connector.Absent},
			"an entry is deleted":       {"a b mine c d", nil, []string{"b mine c d"}, connector.Happened},
			"others come":               {"a b c d e", nil, []string{"x a b c d e"}, connector.Absent},
			"another is deleted":        {"a b c d e", nil, []string{"b c d e"}, connector.Retry},
			"one is deleted both times": {"a b mine c d", []string{"", "x b mine c d"}, []string{"b mine c d", "b mine c d"}, connector.Retry},
		} {
			pages := fmt.Sprintf("style = %q, param = \"at\"", style)
			switch style {
			case "link":
				pages = `style = "link"`
			case "cursor":
				pages += `, next = "$.next"`
			}
			service := &shelf{style: style, rows: strings.Fields(c.rows)}
			become := func(states []string) func(int) {
				return func(reading int) {
					if reading <= len(states) && states[reading-1] != "" {
						service.rows = strings.Fields(states[reading-1])
					}
				}
			}
			service.first, service.between = become(c.first), become(c.between)
			conn := openTools(t, "[tools.create]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\ntoken = { body = \"ref\" }\n"+
				"reconcile = { path = \"/\", items = \"$.data\", match = { ref = \"{token}\" }, complete = true, pages = { "+pages+" } }\n", service.ServeHTTP)
			m := mutation(`{"id":1}`)
			m.Token = "ref-mine"
			if a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m); err != nil || a.Verdict != c.want {
				t.Errorf("%s, %s: %q%s, %v; want %q", style, name, a.Verdict, a.Detail, err, c.want)
			}
		}
	}
}

// TestCursorThatLooksLikeOurs continues where a service says, also if it says that as Keep does.
func TestCursorThatLooksLikeOurs(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{"keep:1:b", "keep:x", "keep:0:"} {
		conn := openTools(t, "[tools.all]\neffect = \"list\"\npath = \"/\"\npages = { style = \"cursor\", items = \"$.data\", next = \"$.next\", param = \"after\" }\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.FormValue("after") {
			case "":
				fmt.Fprintf(w, `{"data":[{"id":1}],"next":%q}`, cursor)
			case cursor:
				fmt.Fprint(w, `{"data":[{"id":2},{"id":3}],"next":null}`)
			default:
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		var ids []int
		for params := `{"limit":1}`; params != ""; {
			l, err := list(t, conn, "all", params)
			if err != nil || len(ids) > 3 {
				t.Errorf("%s: after %v: %v", cursor, ids, err)
				break
			}
			for _, row := range l.List {
				ids = append(ids, row.ID)
			}
			if params = ""; l.Next != nil {
				params = fmt.Sprintf(`{"limit":1,"cursor":%q}`, *l.Next)
			}
		}
		if fmt.Sprint(ids) != "[1 2 3]" {
			t.Errorf("%s: the list is %v", cursor, ids)
		}
	}
}
