package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// TestLinkHeader reads a list whose first page has the given lines of the header Link. A header that cannot be
// read is no end of the list, and no absence. Law: witnessed.
func TestLinkHeader(t *testing.T) {
	t.Parallel()
	const (
		all  = "1 2"               // the second page was read
		one  = "1"                 // the first page is the last one
		lost = "page-without-next" // it cannot be told whether there is another
		away = "pages_elsewhere"
	)
	for _, c := range []struct{ lines, want string }{
		{``, one},
		{`</l/1>; rel="first", </l/1>; rel=prev`, one},
		{`</l/2>; rel="next"`, all},
		{`</l/2>; rel=next`, all},
		{`</l/2>;rel=Next`, all},
		{`</l/2> ; REL = "NEXT" ;`, all},
		{`</l/2>; rel="last next"`, all},
		{`</l/2>; rel="next	http://example.com/next"`, all},
		{`</l/9>; rel="http://example.com/next"`, one},
		{`</l/9>; rel="nextish next-archive"`, one},
		{`</l/9>; title="a next one"; rel=last`, one},
		{`</l/9>; title="; rel=next"; rel=last`, one},
		{`</l/9>; title="x>, </l/9>; rel=\"next\""; rel=last`, one},
		{`</l/2>; title="a, b; c"; rel="next"`, all},
		{`</l/2>; title="a \"b\", <c>; rel=prev"; rel="next"`, all},
		{`</l/2>; title*=UTF-8''a%20b; hreflang=de; type=text/html; crossorigin; rel="next"`, all},
		{`, </l/1>; rel="prev",, </l/2>; rel="next" ,`, all},
		{`</l/9,>; rel="prev", </l/2?a=b,c>; rel="next"`, all},
		{"</l/1>; rel=\"prev\"\n</l/2>; rel=\"next\"", all},
		{"</l/2>; rel=\"next\"\n</l/2>; rel=\"next\"", all},
		{`<2>; rel="next"`, all},
		{`<../l/2>; rel="next"`, all},
		{`<//HOST/l/2>; rel="next"`, all},
		{`<http://HOST/l/2>; rel="next"`, all},
		{`<http://evil.invalid/l/2>; rel="next"`, away},

		{`/l/2; rel="next"`, lost},
		{`</l/2; rel="next"`, lost},
		{`</l/2>, rel="next"`, lost},
		{`</l/2> rel="next"`, lost},
		{`</l/2>; rel="next`, lost},
		{`</l/2>; rel="next"x`, lost},
		{`</l/2>; rel='next'`, lost},
		{`</l/2>; rel==next`, lost},
		{`</l/2>; rel=prev </l/2>; rel=next`, lost},
		{`</l/1, </l/2>; rel=next`, lost},
		{`</l/2>`, lost},
		{`</l/2>; rel`, lost},
		{`</l/2>; rel=""`, lost},
		{`</l/2>; rel=prev; rel=next`, lost},
		{`</l/2>; rel=next; anchor="/other"`, lost},
		{`</l/2>; rel=next, </l/3>; rel=next`, lost},
		{"</l/2>; rel=\"next\"\n</l/3", lost},
		{`<http://[x>; rel=next`, lost},
	} {
		cfg := "[tools.all]\neffect = \"list\"\npath = \"/l/1\"\npages = { style = \"link\" }\n" +
			"[tools.create]\neffect = \"mutate\"\npath = \"/l/1\"\nidentity = [\"id\"]\ntoken = { body = \"ref\" }\n" +
			"reconcile = { path = \"/l/1\", items = \"$\", match = { ref = \"{token}\" }, complete = true, pages = { style = \"link\" } }\n"
		conn := openTools(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			n := strings.TrimPrefix(r.URL.Path, "/l/")
			if n == "1" && c.lines != "" {
				w.Header()["Link"] = strings.Split(strings.ReplaceAll(c.lines, "HOST", r.Host), "\n")
			}
			fmt.Fprintf(w, `[{"id":%s,"ref":"tok-%[1]s"}]`, n)
		})
		l, err := list(t, conn, "all", `{}`)
		got := codeOf(err)
		if err == nil {
			got = strings.Trim(strings.ReplaceAll(fmt.Sprint(l.List), "{", ""), "[]{}")
			got = strings.ReplaceAll(got, "}", "")
		}
		if got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.lines, got, err, c.want)
		}
		m := mutation(`{"id":1}`)
		m.Token = "tok-3"
		want := map[string]connector.Verdict{all: connector.Absent, one: connector.Absent, lost: connector.Retry}[c.want]
		if a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m); a.Verdict != want || (err != nil) != (want == "") {
			t.Errorf("%s: a call is %q%s, %v; want %q", c.lines, a.Verdict, a.Detail, err, want)
		}
	}
}

// TestLinkIsRelativeToItsPage follows links that are relative to the page that they came with, and continues
// there in a later call.
func TestLinkIsRelativeToItsPage(t *testing.T) {
	t.Parallel()
	next := map[string]string{"/a": "b/c", "/b/c": "d?x=1", "/b/d": "?x=2"}
	var asked []string
	conn := openTools(t, "[tools.all]\neffect = \"list\"\npath = \"/a\"\npages = { style = \"link\" }\n", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		w.Header().Set("Content-Type", "application/json")
		if to, ok := next[r.URL.Path]; ok && r.URL.RawQuery != "x=2" {
			w.Header().Set("Link", fmt.Sprintf("<%s>; rel=next", to))
		}
		fmt.Fprintf(w, `[{"id":%d}]`, len(asked))
	})
	want := []string{"/a", "/b/c", "/b/d?x=1", "/b/d?x=2"}
	if _, err := list(t, conn, "all", `{}`); err != nil || !slices.Equal(asked, want) {
		t.Errorf("asked %q, %v; want %q", asked, err, want)
	}
	asked = nil
	for params := `{"limit":1}`; ; {
		l, err := list(t, conn, "all", params)
		if err != nil || len(asked) > len(want) {
			t.Fatalf("asked %q: %v", asked, err)
		}
		if l.Next == nil {
			break
		}
		params = fmt.Sprintf(`{"limit":1,"cursor":%q}`, *l.Next)
	}
	if !slices.Equal(asked, want) {
		t.Errorf("one by one: asked %q, want %q", asked, want)
	}
}

// FuzzLink checks that a link is found whatever its title and whatever stands before it, and that nothing in quotes
// is taken for a link.
func FuzzLink(f *testing.F) {
	f.Add(`</l/1>; rel="prev"`, `a "b", <c>; rel=next`, "last")
	f.Add(`<x>; title="\"; rel=a,`, `\`, "next")
	f.Add(`<x>; rel=next`, "", "NEXT prev")
	f.Add(`<x>; rel="next`, "\x80", "a;b,c")
	f.Fuzz(func(t *testing.T, before, title, rel string) {
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(title) + `"`
		link := fmt.Sprintf(`</found>; title=%s; rel="next"`, quoted)
		if target, err := httpapi.NextLink(link); err != nil || target != "/found" {
			t.Errorf("%s: %q, %v", link, target, err)
		}
		if strings.ContainsAny(rel, `"\`) || len(strings.Fields(rel)) == 0 {
			return
		}
		isNext := slices.ContainsFunc(strings.Fields(rel), func(r string) bool { return strings.EqualFold(r, "next") })
		other := fmt.Sprintf(`</other>; title=%s; rel="%s"`, quoted, rel)
		if target, err := httpapi.NextLink(other); err != nil || (target == "/other") != isNext {
			t.Errorf("%s: %q, %v", other, target, err)
		}
		target, err := httpapi.NextLink(before)
		joined, errJoined := httpapi.NextLink(before + ", " + link)
		lines, errLines := httpapi.NextLink(before, link)
		switch {
		case err != nil: // an open quote may end in the link that follows; on a line of its own nothing does
			if errLines == nil {
				t.Errorf("%q cannot be read (%v), and can before %s", before, err, link)
			}
		case target == "" || target == "/found":
			if errJoined != nil || errLines != nil || joined != "/found" || lines != "/found" {
				t.Errorf("%q before %s: %q, %v; on two lines %q, %v", before, link, joined, errJoined, lines, errLines)
			}
		case errJoined == nil || errLines == nil:
			t.Errorf("%q before %s: %q and %q, want an error: two next pages", before, link, joined, lines)
		}
	})
}
