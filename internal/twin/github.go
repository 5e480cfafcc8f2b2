package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GitHub follows https://docs.github.com/en/rest/issues/issues and .../comments: each request
// makes another issue, lists filter by the time of the last change, and the header Link names
// the next page.
// Pull requests are issues too (.../pulls), labels are a set (.../labels), and a file is
// replaced only by who knows its sha (.../repos/contents).
type GitHub struct {
	things  []gitHubThing
	issues  map[string]string // what an issue was last changed to, by path
	labels  map[string][]string
	files   map[string]string // sha by branch and path
	commits []gitHubCommit
}

type gitHubCommit struct {
	branch, path string
	at           time.Time
	SHA          string            `json:"sha"`
	Commit       map[string]string `json:"commit"`
}

type gitHubThing struct {
	path   string
	ID     int       `json:"id"`
	Number int       `json:"number"`
	Title  string    `json:"title,omitempty"`
	Body   string    `json:"body"`
	URL    string    `json:"html_url"`
	At     time.Time `json:"updated_at"`
}

// Change opens an issue or comments on one.
func (g *GitHub) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct{ Title, Body string }
	comment := strings.HasSuffix(r.URL.Path, "/comments")
	switch {
	case r.Method == http.MethodPatch:
		return g.update(r.URL.Path, body)
	case strings.HasSuffix(r.URL.Path, "/labels"):
		return g.label(r.URL.Path, body)
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/contents/"):
		return g.put(r.URL.Path, body)
	}
	if json.Unmarshal(body, &p) != nil || p.Title == "" && !comment || p.Body == "" && comment {
		return "", func() Reply {
			return Reply{Status: http.StatusUnprocessableEntity, Body: map[string]string{"message": "Validation Failed"}}
		}
	}
	name := p.Title
	if comment {
		name, _, _ = strings.Cut(p.Body, "\n")
	}
	return name, func() Reply {
		n := len(g.things) + 1
		t := gitHubThing{strings.Replace(r.URL.Path, "/pulls", "/issues", 1), 1000 + n, n, p.Title, p.Body, fmt.Sprintf("https://github.com%s/%d", r.URL.Path, n), time.Now().UTC()}
		g.things = append(g.things, t)
		return Reply{Status: http.StatusCreated, Body: t}
	}
}

// unprocessable is how GitHub refuses.
func unprocessable() Reply {
	return Reply{Status: http.StatusUnprocessableEntity, Body: map[string]string{"message": "Validation Failed"}}
}

// update changes an issue.
func (g *GitHub) update(path string, body []byte) (string, func() Reply) {
	var p map[string]any
	if json.Unmarshal(body, &p) != nil || len(p) == 0 {
		return "", unprocessable
	}
	name, _ := p["title"].(string)
	return name, func() Reply {
		if g.issues == nil {
			g.issues = map[string]string{}
		}
		same := g.issues[path] == string(body)
		g.issues[path] = string(body)
		return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"id": len(path), "number": 1, "html_url": "https://github.com" + path}}
	}
}

// label adds labels to an issue.
func (g *GitHub) label(path string, body []byte) (string, func() Reply) {
	var p struct{ Labels []string }
	if json.Unmarshal(body, &p) != nil || len(p.Labels) == 0 {
		return "", unprocessable
	}
	return p.Labels[0], func() Reply {
		if g.labels == nil {
			g.labels = map[string][]string{}
		}
		same := true
		for _, l := range p.Labels {
			if !slices.Contains(g.labels[path], l) {
				g.labels[path], same = append(g.labels[path], l), false
			}
		}
		all := []map[string]string{}
		for _, l := range g.labels[path] {
			all = append(all, map[string]string{"name": l})
		}
		return Reply{Status: http.StatusOK, Same: same, Body: all}
	}
}

// put makes or replaces a file in one commit.
func (g *GitHub) put(path string, body []byte) (string, func() Reply) {
	var p struct{ Message, Content, Branch, SHA string }
	if json.Unmarshal(body, &p) != nil || p.Message == "" {
		return "", unprocessable
	}
	repo, file, _ := strings.Cut(path, "/contents/")
	return file, func() Reply {
		at := repo + " " + p.Branch + " " + file
		switch was := g.files[at]; {
		case was != "" && p.SHA == "":
			return unprocessable() // "sha" wasn't supplied
		case was != p.SHA:
			return Reply{Status: http.StatusConflict, Body: map[string]string{"message": file + " does not match " + p.SHA}}
		case g.files == nil:
			g.files = map[string]string{}
		}
		c := gitHubCommit{p.Branch, repo + " " + file, time.Now().UTC(), fmt.Sprintf("c%d", len(g.commits)+1), map[string]string{"message": p.Message}}
		g.files[at] = "f" + c.SHA
		g.commits = append(g.commits, c)
		return Reply{Status: http.StatusCreated, Body: map[string]any{"commit": c, "content": map[string]string{"path": file, "sha": g.files[at]}}}
	}
}

// Read lists issues, comments or commits.
func (g *GitHub) Read(r *http.Request) Reply {
	q := r.URL.Query()
	since, _ := time.Parse(time.RFC3339, q.Get("since"))
	found := []any{}
	for _, t := range g.things {
		if t.path == r.URL.Path && !t.At.Before(since) {
			found = append(found, t)
		}
	}
	if repo, ok := strings.CutSuffix(r.URL.Path, "/commits"); ok {
		for _, c := range slices.Backward(g.commits) {
			if c.branch == q.Get("sha") && c.path == repo+" "+q.Get("path") && !c.at.Before(since) {
				found = append(found, c)
			}
		}
	}
	size, err := strconv.Atoi(q.Get("per_page"))
	if err != nil {
		size = 30
	}
	page, err := strconv.Atoi(q.Get("page"))
	if err != nil {
		page = 1
	}
	from, end := min((page-1)*size, len(found)), min(page*size, len(found))
	h := http.Header{}
	if end < len(found) {
		q.Set("page", strconv.Itoa(page+1))
		h.Set("Link", fmt.Sprintf(`<http://%s%s?%s>; rel="next"`, r.Host, r.URL.Path, q.Encode()))
	}
	return Reply{Status: http.StatusOK, Header: h, Body: found[from:end]}
}
