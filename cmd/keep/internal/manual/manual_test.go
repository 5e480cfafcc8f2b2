package manual_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/manual"
	"github.com/keep-run/keep/idempotency"
)

const root = "../../../.."

// An answer is what the server says of a path.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, h http.Handler, path string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.Code, w.Result().Header, string(body)}
}

// TestEveryDocumentIsAPage serves each document of the repository, small and without a script,
// a style or HTML of its own.
func TestEveryDocumentIsAPage(t *testing.T) {
	h := manual.Handler()
	files, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(files) < 30 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, root+"/README.md") {
		name := strings.ToLower(strings.TrimSuffix(filepath.Base(file), ".md"))
		a := get(t, h, "/"+name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusOK || a.header.Get("Content-Security-Policy") == "" || strings.Contains(a.header.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: status %d, policy %q", name, a.status, a.header.Get("Content-Security-Policy"))
		}
		size := len(a.body)
		for _, m := range regexp.MustCompile(`src="/(screens/[^"]*)"`).FindAllStringSubmatch(a.body, -1) {
			size += len(get(t, h, "/"+m[1]).body)
		}
		if size += len(get(t, h, "/style.css").body); size > 200<<10 {
			t.Errorf("%s has %d bytes", name, size)
		}
		for _, bad := range []string{"<script", " style=", "raw HTML omitted", "<!-- "} {
			if strings.Contains(a.body, bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
		if p, ok := manual.Open().Print(filepath.Base(file)); !ok || !bytes.HasSuffix(text, []byte(p)) {
			t.Errorf("%s is printed otherwise than it is", name)
		}
	}
	for _, p := range manual.Open().Pages() {
		if p.Title == "" || p.About == "" {
			t.Errorf("%s has the title %q and begins with %q", p.Name, p.Title, p.About)
		}
	}
}

var (
	href   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anchor = regexp.MustCompile(` id="([^"]*)"`)
)

// TestLinks follows every link of every page: to a page and its anchor, a picture, or a file
// that the repository has.
func TestLinks(t *testing.T) {
	h := manual.Handler()
	served := map[string]answer{"/": get(t, h, "/"), "/search": get(t, h, "/search?q=budget")}
	for _, p := range manual.Open().Pages() {
		served["/"+p.Name] = get(t, h, "/"+p.Name)
	}
	anchors := func(path string) map[string]bool {
		out := map[string]bool{}
		for _, m := range anchor.FindAllStringSubmatch(served[path].body, -1) {
			if out[m[1]] {
				t.Errorf("%s has two elements with the anchor %s", path, m[1])
			}
			out[m[1]] = true
		}
		return out
	}
	internal, files := 0, 0
	for from, a := range served {
		for _, m := range href.FindAllStringSubmatch(a.body, -1) {
			link := m[1]
			if file, ok := strings.CutPrefix(link, "https://github.com/keep-run/keep/blob/main/"); ok {
				files++
				file, _, _ = strings.Cut(file, "#")
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Errorf("%s links to %s, which the repository does not have", from, file)
				}
				continue
			}
			if strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			internal++
			to, fragment, _ := strings.Cut(link, "#")
			if to == "" {
				to = from
			}
			if _, ok := served[to]; !ok {
				served[to] = get(t, h, to)
			}
			if served[to].status != http.StatusOK {
				t.Errorf("%s links to %s: %d", from, link, served[to].status)
			} else if fragment != "" && !anchors(to)[fragment] {
				t.Errorf("%s links to %s, which has no such heading", from, link)
			}
		}
	}
	if internal < 200 || files < 100 {
		t.Errorf("%d links on the pages and %d to files were followed", internal, files)
	}
}

// TestAnchor compares with what GitHub makes of headings.
func TestAnchor(t *testing.T) {
	for title, want := range map[string]string{
		"What is certain": "what-is-certain", "[connections.NAME] with a pack": "connectionsname-with-a-pack",
		"Größe & Form": "größe--form", "keep.toml: a_b": "keeptoml-a_b",
	} {
		if got := manual.Anchor(title); got != want {
			t.Errorf("%q has the anchor %q, want %q", title, got, want)
		}
	}
}

func TestSearch(t *testing.T) {
	l := manual.Open()
	hits := l.Search("Budgets", 5)
	if len(hits) != 5 || hits[0].Page != "budgets" {
		t.Errorf("budgets: %+v", hits)
	}
	for _, hit := range hits {
		if _, ok := l.Find(hit.Topic()); !ok {
			t.Errorf("%s is no topic", hit.Topic())
		}
	}
	for _, q := range []string{"", "  ", "quetzalcoatl", "budget quetzalcoatl"} {
		if hits := l.Search(q, 5); hits == nil || len(hits) != 0 {
			t.Errorf("%q: %+v", q, hits)
		}
	}
	a := get(t, manual.Handler(), "/search?q=%3Cscript%3E+budget")
	if strings.Contains(a.body, "<script") || a.status != http.StatusOK {
		t.Errorf("a search for a tag: %d\n%s", a.status, a.body)
	}
	if a := get(t, manual.Handler(), "/search?q=retention"); !strings.Contains(a.body, "<mark>") || strings.Contains(a.body, "<mark><mark>") {
		t.Errorf("a search marks nothing:\n%s", a.body)
	}
}

func TestFind(t *testing.T) {
	l := manual.Open()
	for topic, want := range map[string]string{
		"": "/", "retention": "/retention", "GUARANTEES.md": "/guarantees", "docs/api.md": "/api", "repair#what-is-certain": "/repair#what-is-certain",
		"nothing": "", "repair#nothing": "", idempotency.ProblemBase + "nothing": "",
	} {
		if got, ok := l.Find(topic); got != want || ok != (want != "") {
			t.Errorf("%q is at %q, %v; want %q", topic, got, ok, want)
		}
	}
}

// TestProblemTypes looks whether the type of a problem leads to what is said about it. That all
// are there is held by what generates the document.
func TestProblemTypes(t *testing.T) {
	h := manual.Handler()
	for _, kind := range append(idempotency.Kinds(), idempotency.Kind(api.KindStale), idempotency.Kind(api.KindRunOpen), "unverified") {
		want := "/problems#" + string(kind)
		for _, topic := range []string{idempotency.ProblemBase + string(kind), string(kind)} {
			if got, ok := manual.Open().Find(topic); !ok || got != want {
				t.Errorf("%s is at %q, want %q", topic, got, want)
			}
		}
		if a := get(t, h, "/problems/"+string(kind)); a.status != http.StatusFound || a.header.Get("Location") != want {
			t.Errorf("/problems/%s: %d, %q", kind, a.status, a.header.Get("Location"))
		}
	}
}

func TestMissing(t *testing.T) {
	h := manual.Handler()
	a := get(t, h, "/budget-window")
	if a.status != http.StatusNotFound || !strings.Contains(a.body, `href="/budgets`) {
		t.Errorf("a page that is not there: %d\n%s", a.status, a.body)
	}
	if a := get(t, h, "/GUARANTEES.md"); a.status != http.StatusFound || a.header.Get("Location") != "/guarantees" {
		t.Errorf("the name of a file: %d, %q", a.status, a.header.Get("Location"))
	}
	for _, path := range []string{"/a/b", "/problems/nothing", "/screens/nothing.png", "/..%2fgo.mod"} {
		if a := get(t, h, path); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// The list of documents on the front page has each once.
func TestFront(t *testing.T) {
	a := get(t, manual.Handler(), "/")
	for _, p := range manual.Open().Pages() {
		if n := strings.Count(a.body, `href="/`+p.Name+`"`); n != 1 {
			t.Errorf("%s stands %d times on the front page", p.Name, n)
		}
	}
}
