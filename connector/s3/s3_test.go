package s3_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/s3"
	"github.com/keep-run/keep/internal/s3test"
	"github.com/keep-run/keep/testkit/connectortest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("KEEP_S3_CHILD"); addr != "" {
		child(addr)
	}
	os.Exit(s3test.Main(m))
}

// child is the process that is killed while it puts.
func child(addr string) {
	conn, err := s3.New("store", config(addr))
	if err != nil {
		panic(err)
	}
	for _, t := range conn.Tools {
		if t.Spec().Name == "put" {
			t.(connector.Mutator).Mutate(context.Background(), keep.Mutation{Token: "killed", Payload: json.RawMessage(os.Getenv("KEEP_S3_PARAMS"))})
		}
	}
	os.Exit(4)
}

// TestKilled kills the process that puts at many points. The lookup then tells the truth,
// and the same call made again makes one object.
func TestKilled(t *testing.T) {
	s := s3test.Shared(t)
	p, err := connectortest.NewProxy(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	conn, seen := open(t, config(s.Addr)), map[bool]int{}
	try := func(request, response int) {
		key := fresh()
		params := fmt.Sprintf(`{"key":%q,"text":"hello"}`, key)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "KEEP_S3_CHILD="+p.Addr(), "KEEP_S3_PARAMS="+params)
		started := make(chan struct{})
		p.Next(connectortest.Cut{Request: request, Response: response, Then: func() { <-started; cmd.Process.Kill() }})
		err := cmd.Start()
		close(started)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() > 0 {
			t.Errorf("to be killed after %d and %d bytes: %v", request, response, err)
		}
		still(t)
		_, there := s.Object(key)
		seen[there]++
		want := connector.Absent
		if there {
			want = connector.Happened
		}
		if a := reconcile(t, conn, "put", "killed", params); a.Verdict != want {
			t.Errorf("killed after %d and %d bytes: the lookup says %+v, and the object is there: %t", request, response, a, there)
		}
		if _, err := mutate(t, conn, "put", "killed", params); err != nil {
			t.Errorf("killed after %d and %d bytes: again: %v", request, response, err)
		}
	}
	for _, n := range []int{0, 20, 100, 300, 500} {
		try(n, connectortest.All)
	}
	for _, n := range []int{0, 1, 20, 100} {
		try(connectortest.All, n)
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("the kills did not meet both sides: %v", seen)
	}
}

func config(addr string) s3.Config {
	return s3.Config{BaseURL: "http://" + addr, Bucket: s3test.Bucket, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, Complete: true}
}

func open(tb testing.TB, cfg s3.Config) *connector.Connection {
	tb.Helper()
	conn, err := s3.New("store", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
	})
	return conn
}

func tool(tb testing.TB, conn *connector.Connection, name string) connector.Tool {
	tb.Helper()
	for _, t := range conn.Tools {
		if t.Spec().Name == name {
			return t
		}
	}
	tb.Fatalf("no tool %q", name)
	return nil
}

func read(tb testing.TB, conn *connector.Connection, name, params string) string {
	tb.Helper()
	out, err := tool(tb, conn, name).(connector.Reader).Read(tb.Context(), json.RawMessage(params))
	if err != nil {
		tb.Fatalf("%s %s: %v", name, params, err)
	}
	return string(out)
}

func mutate(tb testing.TB, conn *connector.Connection, name, token, params string) (connector.Receipt, error) {
	tb.Helper()
	return tool(tb, conn, name).(connector.Mutator).Mutate(tb.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
}

func reconcile(tb testing.TB, conn *connector.Connection, name, token, params string) connector.Answer {
	tb.Helper()
	a, err := tool(tb, conn, name).(connector.Reconciler).Reconcile(tb.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// class returns the class and the code of err.
func class(tb testing.TB, err error) (keep.Class, string) {
	tb.Helper()
	if err == nil {
		return "none", ""
	}
	var f *keep.Failure
	if !errors.As(err, &f) {
		tb.Fatalf("%v is no failure", err)
	}
	return f.Class, f.Code
}

var names atomic.Int64

// fresh returns a prefix that nothing has.
func fresh() string { return fmt.Sprintf("t%d", names.Add(1)) }

// TestConformance holds the mutate tools to their promises on a real server, with the
// connection cut at many bytes.
func TestConformance(t *testing.T) {
	for _, name := range []string{"put", "overwrite", "delete", "delete of a version"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { b, _ := bench(tb, name); return b })
		})
	}
}

// bench returns a bench behind a proxy.
func bench(tb testing.TB, name string) (*connectortest.Bench, *connectortest.Proxy) {
	s := s3test.Shared(tb)
	p, err := connectortest.NewProxy(s.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	conn, err := s3.New("store", config(p.Addr()))
	if err != nil {
		tb.Fatal(err)
	}
	prefix := fresh()
	key := func(n int) string { return fmt.Sprintf("%s/dir ü+&/%d.txt", prefix, n) }
	b := &connectortest.Bench{
		Connection: conn, Tool: "put", Secrets: []string{s3test.SecretKey}, Troubles: append(troubles(p), lies(tb, p, s.Addr)...), Settle: func() { still(tb) },
		Refused: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"key":""}`), json.RawMessage(`{"key":7}`), json.RawMessage(`{"key":"a","x":1}`)},
	}
	etags := map[int]string{}
	direct := open(tb, config(s.Addr))
	if name != "put" {
		for n := 1; n <= 3; n++ {
			r, err := mutate(tb, direct, "put", fmt.Sprint("before-", n), fmt.Sprintf(`{"key":%q,"text":"old"}`, key(n)))
			if err != nil {
				tb.Fatal(err)
			}
			var out struct{ ETag string }
			if err := json.Unmarshal(r.Result, &out); err != nil {
				tb.Fatal(err)
			}
			etags[n] = out.ETag
			if err := s.Age(key(n), time.Now().Add(-time.Hour)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	switch name {
	case "delete", "delete of a version":
		b.Tool = "delete"
		b.Params = func(n int) json.RawMessage {
			if name == "delete" {
				return json.RawMessage(fmt.Sprintf(`{"key":%q}`, key(n)))
			}
			return json.RawMessage(fmt.Sprintf(`{"key":%q,"etag":%q}`, key(n), etags[n]))
		}
		b.Effects = func(n int) int {
			if _, ok := s.Object(key(n)); ok {
				return 0
			}
			return 1
		}
	default:
		b.Params = func(n int) json.RawMessage {
			if name == "put" {
				return json.RawMessage(fmt.Sprintf(`{"key":%q,"text":"new %d","metadata":{"order":"6"}}`, key(n), n))
			}
			return json.RawMessage(fmt.Sprintf(`{"key":%q,"text":"new %d","overwrite":%q}`, key(n), n, etags[n]))
		}
		b.Effects = func(n int) int {
			if text, _ := s.Object(key(n)); text == fmt.Sprint("new ", n) {
				return 1
			}
			return 0
		}
	}
	return b, p
}

// still gives the server time for a request that it has got and whose connection is cut.
func still(tb testing.TB) {
	select {
	case <-time.After(30 * time.Millisecond):
	case <-tb.Context().Done():
	}
}

func troubles(p *connectortest.Proxy) []connectortest.Trouble {
	list := []connectortest.Trouble{
		{Name: "a refused connection", Want: keep.ClassTransient, Arm: p.Down, End: func() { p.Up() }},
		{Name: "silence instead of an answer", Want: keep.ClassUnknown, Stalls: true, Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Stall: true}) }},
	}
	for _, n := range []int{0, 1, 100, 300, 500, 560} {
		list = append(list,
			connectortest.Trouble{Name: fmt.Sprintf("a cut at byte %d of the request", n), Arm: func() { p.Next(connectortest.Cut{Request: n, Response: connectortest.All}) }},
			connectortest.Trouble{Name: fmt.Sprintf("a reset at byte %d of the answer", n), Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Response: n, Reset: true}) }},
		)
	}
	return list
}

// TestPutOnce says whose an object is that stands in the way.
func TestPutOnce(t *testing.T) {
	s := s3test.Shared(t)
	conn, key := open(t, config(s.Addr)), fresh()+"/a b.txt"
	first, err := mutate(t, conn, "put", "t1", fmt.Sprintf(`{"key":%q,"text":"one","type":"text/csv","metadata":{"order":"6"}}`, key))
	if err != nil {
		t.Fatal(err)
	}
	again, err := mutate(t, conn, "put", "t1", fmt.Sprintf(`{"key":%q,"text":"one"}`, key))
	if err != nil || string(again.Result) != string(first.Result) {
		t.Errorf("again: %s, %v; before %s", again.Result, err, first.Result)
	}
	_, err = mutate(t, conn, "put", "t2", fmt.Sprintf(`{"key":%q,"text":"two"}`, key))
	if c, code := class(t, err); c != keep.ClassLogic || code != "exists" {
		t.Errorf("another put: %v", err)
	}
	if a := reconcile(t, conn, "put", "t2", fmt.Sprintf(`{"key":%q,"text":"two"}`, key)); a.Verdict != connector.Retry {
		t.Errorf("the lookup of another put says %+v", a)
	}
	if a := reconcile(t, conn, "put", "t1", fmt.Sprintf(`{"key":%q,"text":"one"}`, key)); a.Verdict != connector.Happened {
		t.Errorf("the lookup says %+v", a)
	}
	_, err = mutate(t, conn, "put", "t3", fmt.Sprintf(`{"key":%q,"text":"x","overwrite":"0123456789abcdef0123456789abcdef"}`, key))
	if c, code := class(t, err); c != keep.ClassLogic || code != "changed" {
		t.Errorf("overwrite of another version: %v", err)
	}
	var got struct {
		Text, Type, ETag string
		Metadata         map[string]string
	}
	if err := json.Unmarshal([]byte(read(t, conn, "get", fmt.Sprintf(`{"key":%q}`, key))), &got); err != nil {
		t.Fatal(err)
	}
	if got.Text != "one" || got.Type != "text/csv" || got.Metadata["order"] != "6" || got.Metadata["keep-id"] != "t1" {
		t.Errorf("the object is %+v", got)
	}
	if out := read(t, conn, "get", `{"key":"nothing/here"}`); out != "null" {
		t.Errorf("no object is %s", out)
	}
}

// TestTakenAway is about an object that somebody works off and deletes: that it is not there says nothing
// about whether it was put, unless the owner says that nobody does that.
func TestTakenAway(t *testing.T) {
	s := s3test.Shared(t)
	for complete, want := range map[bool]connector.Verdict{false: connector.Unwitnessed, true: connector.Absent} {
		cfg := config(s.Addr)
		cfg.Complete = complete
		conn, params := open(t, cfg), fmt.Sprintf(`{"key":%q,"text":"pay"}`, fresh()+"/order")
		if _, err := mutate(t, conn, "put", "t1", params); err != nil {
			t.Fatal(err)
		}
		if a := reconcile(t, conn, "put", "t1", params); a.Verdict != connector.Happened {
			t.Errorf("complete %t: while it is there, the lookup says %+v", complete, a)
		}
		var p struct{ Key string }
		if err := json.Unmarshal([]byte(params), &p); err != nil {
			t.Fatal(err)
		}
		if _, err := mutate(t, conn, "delete", "t2", fmt.Sprintf(`{"key":%q}`, p.Key)); err != nil {
			t.Fatal(err)
		}
		a := reconcile(t, conn, "put", "t1", params)
		spec := tool(t, conn, "put").Spec()
		if _, controlled := tool(t, conn, "put").(connector.Controller); a.Verdict != want || spec.NeedsControl == complete || spec.Level != keep.LevelWitness || controlled {
			t.Errorf("complete %t: when it was taken away, the lookup says %+v, and the tool %+v", complete, a, spec)
		}
	}
}

// TestPutAfterADelete is about an object that somebody put again when a delete had no answer: it is not the one
// that was to be deleted, though it has the same bytes, and no delete is sent for it.
func TestPutAfterADelete(t *testing.T) {
	s := s3test.Shared(t)
	for _, version := range []bool{false, true} {
		conn, key := open(t, config(s.Addr)), fresh()
		put := func() (out struct{ ETag string }) {
			r, err := mutate(t, conn, "put", fresh(), fmt.Sprintf(`{"key":%q,"text":"x"}`, key))
			if err == nil {
				err = json.Unmarshal(r.Result, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		params := map[string]string{"key": key}
		if etag := put().ETag; version {
			params["etag"] = etag
		}
		payload, _ := json.Marshal(params)
		m := keep.Mutation{Token: "t", Payload: payload, CreatedAt: time.Now()}
		look := func(m keep.Mutation) connector.Verdict {
			a, err := tool(t, conn, "delete").(connector.Reconciler).Reconcile(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			return a.Verdict
		}
		if err := s.Age(key, m.CreatedAt.Add(-2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := look(m); got != connector.Absent {
			t.Errorf("the object of before is there: %v, want absent", got)
		}
		later := m
		later.CreatedAt = time.Now().Add(time.Minute) // the clock was set back since
		if got := look(later); got != connector.Retry {
			t.Errorf("nobody knows how old the call is: %v, want no answer", got)
		}
		if _, err := tool(t, conn, "delete").(connector.Mutator).Mutate(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got := look(m); got != connector.Happened {
			t.Errorf("it is gone: %v, want happened", got)
		}
		put()
		if got := look(m); got != connector.Retry {
			t.Errorf("version %t: another object is there: %v, want no answer", version, got)
		}
	}
}

// TestAnotherKeyIsMissing has something in front of the service say of another key that it is missing.
func TestAnotherKeyIsMissing(t *testing.T) {
	for of, want := range map[string]connector.Verdict{"<Key>index.html</Key>": connector.Retry, "<Key>k</Key>": connector.Happened, "": connector.Happened} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, "<Error><Code>NoSuchKey</Code>%s</Error>", of)
		}))
		conn := open(t, config(srv.Listener.Addr().String()))
		m := keep.Mutation{Token: "t", Payload: json.RawMessage(`{"key":"k"}`), CreatedAt: time.Now().Add(-time.Hour)}
		a, err := tool(t, conn, "delete").(connector.Reconciler).Reconcile(t.Context(), m)
		if err != nil || a.Verdict != want {
			t.Errorf("%q: %+v, %v; want %s", of, a, err, want)
		}
		text, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), m.Payload)
		if null := err == nil && string(text) == "null"; null != (want == connector.Happened) {
			t.Errorf("%q: get says %s, %v", of, text, err)
		}
		srv.Close()
	}
}

// TestSecretsAreHidden has a service that repeats the credentials, as they are and as a URL has them.
func TestSecretsAreHidden(t *testing.T) {
	cfg := config("")
	cfg.SecretKey, cfg.SessionToken = "s3cr3t/with+signs==", "t0ken/of+a+session=="
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>InvalidToken</Code><Message>%s %s %s %s %s</Message></Error>", r.Header.Get("X-Amz-Security-Token"),
				url.QueryEscape(cfg.SessionToken), cfg.SecretKey, url.QueryEscape(cfg.SecretKey), cfg.AccessKey)
		}
	}))
	t.Cleanup(srv.Close)
	cfg.BaseURL = srv.URL
	conn := open(t, cfg)
	_, errPut := mutate(t, conn, "put", "t", `{"key":"k","text":"x"}`)
	_, errGet := tool(t, conn, "get").(connector.Reader).Read(t.Context(), json.RawMessage(`{"key":"k"}`))
	for _, err := range []error{errPut, errGet} {
		for _, secret := range []string{"t0ken", "s3cr3t", cfg.AccessKey} {
			if _, code := class(t, err); code != keep.CodeUnauthenticated || strings.Contains(err.Error(), secret) {
				t.Errorf("%q is in %v", secret, err)
			}
		}
	}
}

// TestWrongPlaces are no absence, and no success.
func TestWrongPlaces(t *testing.T) {
	s := s3test.Shared(t)
	params := `{"key":"k","text":"x"}`
	for name, c := range map[string]struct {
		change func(*s3.Config)
		class  keep.Class
		code   string
	}{
		"bucket": {func(c *s3.Config) { c.Bucket = "another" }, keep.ClassPrecondition, "NoSuchBucket"},
		"secret": {func(c *s3.Config) { c.SecretKey = "wrong-secret" }, keep.ClassPermission, keep.CodeUnauthenticated},
		"access": {func(c *s3.Config) { c.AccessKey = "wrong-access" }, keep.ClassPrecondition, "XAdminUserNotFound"}, // versitygw's own,
	} {
		cfg := config(s.Addr)
		c.change(&cfg)
		conn := open(t, cfg)
		_, err := mutate(t, conn, "put", "t", params)
		if got, code := class(t, err); got != c.class || code != c.code {
			t.Errorf("another %s: %v", name, err)
		}
		if a := reconcile(t, conn, "put", "t", params); a.Verdict != connector.Retry {
			t.Errorf("another %s: the lookup says %+v", name, a)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"a page":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") },
		"a 404":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such page", 404) },
		"a login":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "log in first", 401) },
		"a firewall":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "blocked", 403) },
		"a 400":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "what", 400) },
		"a 429":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slow", 429) },
		"a 412":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 412) },
		"a redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", 307) },
		"an error":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh", 500) },
		"an empty 204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	} {
		server := httptest.NewServer(handler)
		conn := open(t, config(server.Listener.Addr().String()))
		for _, tool := range []string{"put", "delete"} {
			p := params
			if tool == "delete" {
				p = `{"key":"k"}`
			}
			_, err := mutate(t, conn, tool, "t", p)
			if got, _ := class(t, err); got != keep.ClassUnknown && (name != "an empty 204" || tool != "delete") { // which is its success
				t.Errorf("%s to %s: %v, want it unknown", name, tool, err)
			}
			if a := reconcile(t, conn, tool, "t", p); a.Verdict != connector.Retry {
				t.Errorf("%s: the lookup of %s says %+v", name, tool, a)
			}
		}
		server.Close()
	}
}

// TestList reads a list of several pages, and continues from where it was cut.
func TestList(t *testing.T) {
	s := s3test.Shared(t)
	conn, prefix := open(t, config(s.Addr)), fresh()+"/"
	want := map[string]bool{}
	for n := range 25 {
		key := fmt.Sprintf("%sä %03d+.txt", prefix, n)
		want[key] = true
		if _, err := mutate(t, conn, "put", fmt.Sprint("l", n), fmt.Sprintf(`{"key":%q,"text":"x"}`, key)); err != nil {
			t.Fatal(err)
		}
	}
	cursor, seen := "null", 0
	for {
		var page struct {
			Items     []struct{ Key string } `json:"$list"`
			Truncated bool
			Next      *string
		}
		if err := json.Unmarshal([]byte(read(t, conn, "list", fmt.Sprintf(`{"prefix":%q,"limit":10,"cursor":%s}`, prefix, cursor))), &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Items {
			if !want[o.Key] {
				t.Errorf("%q is listed twice, or is not ours", o.Key)
			}
			delete(want, o.Key)
			seen++
		}
		if !page.Truncated {
			break
		}
		cursor = fmt.Sprintf("%q", *page.Next)
	}
	if len(want) > 0 || seen != 25 {
		t.Errorf("%d of 25 objects; missing %v", seen, want)
	}
}

// TestLargeObject reads an object in pieces.
func TestLargeObject(t *testing.T) {
	s := s3test.Shared(t)
	conn, key := open(t, config(s.Addr)), fresh()
	content := make([]byte, 1_500_000)
	for i := range content {
		content[i] = byte(i * 7)
	}
	if _, err := mutate(t, conn, "put", "big", fmt.Sprintf(`{"key":%q,"base64":%q}`, key, base64.StdEncoding.EncodeToString(content))); err != nil {
		t.Fatal(err)
	}
	// Who asks for no part gets all, or nothing: the first part is not passed on as the whole.
	_, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), json.RawMessage(fmt.Sprintf(`{"key":%q}`, key)))
	if got, code := class(t, err); got != keep.ClassLogic || code != "answer-too-large" || !strings.Contains(err.Error(), "offset: 0") {
		t.Errorf("without an offset: %v", err)
	}
	type part struct {
		Base64 []byte
		ETag   string
		Next   *int64
	}
	get := func(offset int64, etag string) (p part) {
		t.Helper()
		params := fmt.Sprintf(`{"key":%q,"offset":%d}`, key, offset)
		if etag != "" {
			params = fmt.Sprintf(`{"key":%q,"offset":%d,"etag":%q}`, key, offset, etag)
		}
		if err := json.Unmarshal([]byte(read(t, conn, "get", params)), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := get(0, "")
	got, first := p.Base64, p.ETag
	for p.Next != nil {
		p = get(*p.Next, first)
		got = append(got, p.Base64...)
	}
	if string(got) != string(content) {
		t.Errorf("%d bytes, want %d", len(got), len(content))
	}

	// Parts of two versions are never put together.
	content[0]++
	if _, err := mutate(t, conn, "put", "bigger", fmt.Sprintf(`{"key":%q,"overwrite":%q,"base64":%q}`, key, first, base64.StdEncoding.EncodeToString(content))); err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]string{fmt.Sprintf(`{"key":%q,"offset":100}`, key): "bad-params", fmt.Sprintf(`{"key":%q,"offset":100,"etag":%q}`, key, first): "changed"} {
		_, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), json.RawMessage(params))
		if _, code := class(t, err); code != want {
			t.Errorf("%s: %v, want the code %s", params, err, want)
		}
	}
}

// A service that knows no condition shows another version all the same, which is not taken for the one that was asked for.
func TestServiceWithoutConditions(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"later"`)
		w.Header().Set("Content-Range", "bytes 10-19/20")
		w.WriteHeader(http.StatusPartialContent)
		fmt.Fprint(w, "0123456789")
	}))
	defer service.Close()
	conn := open(t, config(strings.TrimPrefix(service.URL, "http://")))
	_, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), json.RawMessage(`{"key":"a","offset":10,"etag":"first"}`))
	if got, code := class(t, err); got != keep.ClassTransient || code != "changed" {
		t.Errorf("a part of another version: %v", err)
	}
}

// TestServiceWithoutRanges has a service answer with the first part, or with another one, whatever part is asked for: who
// reads in parts would take it for the next one, without end.
func TestServiceWithoutRanges(t *testing.T) {
	for _, where := range []string{"", "bytes 0-9/30", "bytes 20-29/30"} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"e"`)
			if where != "" {
				w.Header().Set("Content-Range", where)
				w.WriteHeader(http.StatusPartialContent)
			}
			fmt.Fprint(w, "0123456789")
		}))
		defer service.Close()
		conn := open(t, config(strings.TrimPrefix(service.URL, "http://")))
		_, err := tool(t, conn, "get").(connector.Reader).Read(t.Context(), json.RawMessage(`{"key":"a","offset":10,"etag":"e"}`))
		if got, code := class(t, err); got != keep.ClassPrecondition || code != "no-ranges" {
			t.Errorf("of the range %q: %v", where, err)
		}
	}
}

// TestConfig names what is wrong.
func TestConfig(t *testing.T) {
	good := s3.Config{Bucket: "b-1", AccessKey: "a", SecretKey: "s"}
	for path, change := range map[string]func(*s3.Config){
		"":                             func(*s3.Config) {},
		"connections.store.bucket":     func(c *s3.Config) { c.Bucket = "a/b" },
		"connections.store.access_key": func(c *s3.Config) { c.AccessKey = "" },
		"connections.store.secret_key": func(c *s3.Config) { c.SecretKey = "" },
		"connections.store.base_url":   func(c *s3.Config) { c.BaseURL = "http://elsewhere.example" },
		"connections.store.timeout":    func(c *s3.Config) { c.Timeout = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := s3.New("store", cfg)
		var e *connector.ConfigError
		if got := errors.As(err, &e); got != (path != "") || got && e.Problems[0].Path != path {
			t.Errorf("%v, want a problem at %q", err, path)
		}
	}
}
