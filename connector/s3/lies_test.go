package s3_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/testkit/connectortest"
)

// pages are what answers in the place of S3, whatever it is asked.
var pages = map[string]http.HandlerFunc{
	"a site that answers everything": welcome,
	"a page of a gateway":            func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>503 Service Unavailable", 503) },
	"a page that is not there":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no such page", 404) },
	"a page of a firewall":           func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>blocked", 403) },
	"another key that is missing": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code><Key>index.html</Key></Error>")
	},
}

// welcome is a page as servers of sites have it, of each path and for each method.
func welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", `"5f3-61c2"`)
	w.Header().Set("Last-Modified", time.Now().Add(-24*time.Hour).UTC().Format(http.TimeFormat))
	fmt.Fprint(w, "<html>welcome</html>")
}

// lies are troubles in which something else than S3 answers: in its place, or behind its back.
func lies(tb testing.TB, p *connectortest.Proxy, s3 string) (list []connectortest.Trouble) {
	back := func() { // also connections of reads that are kept
		p.Aim(s3)
		p.Down()
		p.Up()
	}
	lost := func(name string, then, end func()) {
		list = append(list, connectortest.Trouble{Name: "an effect without an answer and " + name, Want: keep.ClassUnknown, End: end,
			Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Response: 0, Then: then}) }})
	}
	lost("a refused connection", p.Down, func() { p.Up() })
	lost("half an answer to the question", func() { p.Always(connectortest.Cut{Request: connectortest.All, Response: 60}) }, func() { p.Always(connectortest.Pass) })
	for name, page := range pages {
		addr := listen(tb, page)
		lost(name, func() { p.Aim(addr) }, back)
		list = append(list, connectortest.Trouble{Name: "no effect and " + name, Arm: func() { p.Aim(addr) }, End: back})
	}
	twice := listen(tb, func(w http.ResponseWriter, r *http.Request) { repeat(w, r, s3) })
	return append(list, connectortest.Trouble{Name: "a proxy that sends it twice", Arm: func() { p.Aim(twice) }, End: back})
}

func listen(tb testing.TB, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// repeat sends a change twice, as proxies do with methods that HTTP calls idempotent, and passes on the last answer.
func repeat(w http.ResponseWriter, r *http.Request, to string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for again := r.Method != http.MethodGet && r.Method != http.MethodHead; ; again = false {
		req := r.Clone(r.Context())
		req.RequestURI, req.URL.Scheme, req.URL.Host = "", "http", to
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if !again {
			for name, values := range resp.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
		}
		resp.Body.Close()
		if !again {
			return
		}
	}
}

// Law nothing-lost: a page in the place of S3 is neither a put that was made nor an object.
func TestPageIsNoObject(t *testing.T) {
	for name, page := range map[string]http.HandlerFunc{
		"with an ETag": welcome, "without": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") },
	} {
		conn := open(t, config(listen(t, page)))
		_, err := mutate(t, conn, "put", "t", `{"key":"k","text":"x"}`)
		if got, _ := class(t, err); got != keep.ClassUnknown {
			t.Errorf("%s: put: %v, want it unknown", name, err)
		}
		m := keep.Mutation{Token: "t", Payload: json.RawMessage(`{"key":"k"}`), CreatedAt: time.Now()}
		if a, err := tool(t, conn, "delete").(connector.Reconciler).Reconcile(t.Context(), m); err != nil || a.Verdict != connector.Retry {
			t.Errorf("%s: the lookup of a delete says %+v, %v", name, a, err)
		}
		if name == "with an ETag" {
			continue // nothing tells it from an object
		}
		out, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), m.Payload)
		if got, code := class(t, err); got != keep.ClassTransient || code != "bad-answer" {
			t.Errorf("%s: get: %s, %v", name, out, err)
		}
	}
}

// Law doubt-is-not-failure: a delete whose condition does not hold since the object is gone may have been made, as by a proxy that
// sent it twice. One whose object is another is refused.
func TestDeleteOfWhatIsGone(t *testing.T) {
	const gone = `<Error><Code>NoSuchKey</Code><Key>k</Key></Error>`
	for _, c := range []struct {
		params, code string
		status       int
		there        bool
		want         keep.Class
	}{
		{`{"key":"k","etag":"e1"}`, "PreconditionFailed", 412, false, keep.ClassUnknown},
		{`{"key":"k","etag":"e1"}`, "NoSuchKey", 404, false, keep.ClassUnknown},
		{`{"key":"k"}`, "NoSuchKey", 404, false, keep.ClassUnknown},
		{`{"key":"k","etag":"e1"}`, "PreconditionFailed", 412, true, keep.ClassLogic},
	} {
		conn := open(t, config(listen(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodDelete:
				w.WriteHeader(c.status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><Key>k</Key></Error>", c.code)
			case c.there:
				w.Header().Set("ETag", `"e2"`)
			default:
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, gone)
			}
		})))
		_, err := mutate(t, conn, "delete", "t", c.params)
		if got, _ := class(t, err); got != c.want {
			t.Errorf("%s, %d %s, there %t: %v, want it %s", c.params, c.status, c.code, c.there, err, c.want)
		}
		if a := reconcile(t, conn, "delete", "t", c.params); (a.Verdict == connector.Happened) == c.there {
			t.Errorf("%s, there %t: the lookup says %+v", c.params, c.there, a)
		}
	}
}

// TestMetadataInTwoSpellings: S3 knows no case in the names of metadata, so one of the two would be lost, and which is not certain.
func TestMetadataInTwoSpellings(t *testing.T) {
	var sent []string
	conn := open(t, config(listen(t, func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, strings.Join(r.Header["X-Amz-Meta-Order"], " "))
		w.Header().Set("ETag", `"e"`)
	})))
	_, err := mutate(t, conn, "put", "t", `{"key":"k","text":"x","metadata":{"order":"6","Order":"7"}}`)
	if got, code := class(t, err); got != keep.ClassLogic || code != "bad-params" || len(sent) > 0 {
		t.Errorf("%v; sent %q", err, sent)
	}
}

// Law nothing-lost: a list that has as many objects as were asked for, and does not say that it ends, may have more.
func TestListThatDoesNotSayThatItEnds(t *testing.T) {
	for answer, more := range map[string]bool{
		"<Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents>":                                 true,
		"<Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents><IsTruncated>false</IsTruncated>": false,
		"<Contents><Key>a</Key></Contents>":                                                                  false,
	} {
		conn := open(t, config(listen(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", answer)
		})))
		if out := read(t, conn, "list", `{"limit":2}`); strings.Contains(out, `"truncated":true`) != more {
			t.Errorf("%s: %s", answer, out)
		}
	}
}
