package idempotency_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

func guardOtherCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "for %q %q", r.Header["Authorization"], r.Header["X-Api-Key"])
	})
	callers := []func(*http.Request){
		func(*http.Request) {},
		header("Authorization", "Bearer a"),
		header("Authorization", "Bearer b"),
		header("X-API-Key", "Bearer a"),
		header("Authorization", `Bearer a" "x`),
		func(r *http.Request) { r.Header.Set("Authorization", "c"); r.Header.Set("Cookie", "s=1") },
	}
	for i, c := range callers {
		own := body(fmt.Sprint("order ", i)) // two callers may use one key, not for one request
		first := w.do(with("k", c, own))
		w.replayed(first, w.do(with("k", c, own)))
		w.ran(int64(i + 1))
	}
}

// A client that renews its token is neither executed again nor shown the answer, in
// whatever state the first request is.
func guardRenewedToken(t *testing.T) {
	t.Parallel()
	old, renewed := header("Authorization", "Bearer old"), header("Authorization", "Bearer new")
	for name, answer := range map[string]int{"done": 201, "unknown": 503} {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(answer)
			fmt.Fprint(rw, "secret")
		})
		w.do(with("k", old))
		got := w.do(with("k", renewed))
		w.problem(got, 409, idempotency.KindCallerChanged)
		if strings.Contains(got.Body.String(), "secret") || strings.Contains(got.Body.String(), "key_") {
			t.Errorf("%s: the other caller sees %s", name, got.Body)
		}
		w.problem(w.do(with("k")), 409, idempotency.KindCallerChanged)
		w.ran(1)
		if w.do(with("k", renewed, body("another"))); w.runs.Load() != 2 {
			t.Errorf("%s: another request of another caller did not run", name)
		}
	}
	released := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer old" {
			rw.WriteHeader(401)
		}
	})
	if code := released.do(with("k", old)).Code; code != 401 {
		t.Errorf("old token: %d", code)
	}
	if code := released.do(with("k", renewed)).Code; code != 200 {
		t.Errorf("renewed token after 401: %d", code)
	}
	released.problem(released.do(with("k", old)), 409, idempotency.KindCallerChanged)
	released.ran(2)
}

func guardCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	for name, value := range map[string]string{
		"Authorization": "AWS4-HMAC-SHA256 Credential=x", "X-Auth-Token": "t", "X-Amz-Security-Token": "t", "X-Session-Id": "s",
		"X-User-Id": "7", "X-Goog-Api-Key": "k", "Signature": "sig1=:x:", "Cookie": "a=b", "Proxy-Authorization": "Basic x",
	} {
		w.problem(w.do(with("k", header(name, value))), 400, idempotency.KindCallerUnknown)
	}
	for _, value := range []string{`Digest username="u", nc=1`, "Signature keyId=1", "Hawk id=1", "OAuth oauth_nonce=1", "Negotiate x", "SharedKey a:b"} {
		w.problem(w.do(with("k", header("Authorization", value))), 400, idempotency.KindCallerUnknown)
	}
	// Who authenticates may read another line than we do, and a retry may have one of them.
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		for _, lines := range [][]string{{"Bearer a", "x"}, {"Bearer a", "Bearer a"}, {"", "Bearer a"}} {
			w.problem(w.do(with("k", func(r *http.Request) { r.Header[name] = lines })), 400, idempotency.KindCallerUnknown)
		}
	}
	w.ran(0)
	for i, h := range []func(*http.Request){
		header("User-Agent", "x"), header("Sec-Fetch-User", "?1"), header("X-Request-Id", "1"), header("Authorization", "bearer x"),
		header("Authorization", "Token x"), header("Authorization", "bare"), header("Authorization", "Basic eDp5"),
	} {
		if got := w.do(with(fmt.Sprint(i), h)); got.Code != 201 {
			t.Errorf("%d: %d %s", i, got.Code, got.Body)
		}
	}
}

func guardHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.Host) })
	at := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	first := w.do(with("k", at("a.example")))
	if got := w.do(with("k", at("b.example"))); got.Body.String() != "b.example" {
		t.Errorf("another host got %s", got.Body)
	}
	w.replayed(first, w.do(with("k", at("A.EXAMPLE:443"))))
	w.ran(2)
	list, _, err := w.store.List(t.Context(), key.Filter{}, keep.Page{})
	if must(t, err); len(list) != 2 || list[0].Host != "b.example" {
		t.Errorf("records = %+v", list)
	}
}

// former makes a record of the version before, of a request that ended like that.
func (w *world) former(k string, then key.Fact) key.ID {
	w.t.Helper()
	f := key.NewFingerprint("POST", "/orders", "", "", []byte("order"), key.Form{})
	id := key.FormerID("", k)
	r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Lease: time.Minute,
		Claim: key.Claim{ID: id, Former: id, Key: k, Fingerprint: f, TTL: time.Hour}}, time.Now())
	must(w.t, err)
	then.Fence = 1
	r, err = key.Apply(r, then, time.Now())
	must(w.t, err)
	must(w.t, w.store.Write(context.Background(), r))
	return id
}

// Records of the version before, which knew no host, stand for their requests.
func guardFormerRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	w.former("done", key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 202, Body: []byte("before")}})
	w.former("unknown", key.Fact{Evidence: key.Unsure})
	w.former("released", key.Fact{Evidence: key.Nothing})
	for range 2 {
		if got := w.do(with("done")); got.Code != 202 || got.Body.String() != "before" {
			t.Errorf("retry of a former request: %d %s", got.Code, got.Body)
		}
		w.problem(w.do(with("done", body("other"))), 422, idempotency.KindKeyReused)
		w.problem(w.do(with("unknown")), 409, idempotency.KindOutcomeUnknown)
	}
	w.ran(0)
	w.do(with("released"))
	w.ran(1)
}

// While a retry asks the probe about a record of the version before, a person releases
// that and another retry is executed: the first one gets its answer.
func guardFormerReleased(t *testing.T) {
	t.Parallel()
	var w *world
	var second *httptest.ResponseRecorder
	w = newWorld(t, rule(idempotency.Rule{SettleAfter: 1, Probe: func(ctx context.Context, _ idempotency.Question) (idempotency.Finding, error) {
		if second == nil {
			_, err := idempotency.NewKeys(w.store).Resolve(ctx, key.FormerID("", "k").String(), idempotency.Resolution{By: "eve"}, time.Now())
			must(t, err)
			second = w.do(with("k"))
		}
		return idempotency.Finding{}, nil
	}}), nil)
	w.former("k", key.Fact{Evidence: key.Unsure})
	w.replayed(&httptest.ResponseRecorder{Code: 201, Body: bytes.NewBufferString("made order")}, w.do(with("k")))
	if second.Code != 201 {
		t.Errorf("the second retry: %d %s", second.Code, second.Body)
	}
	w.ran(1)
}

// The same of a record that expires once a retry has found it.
func guardFormerExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w *world
		expires := func(id key.ID) {
			if id == key.FormerID("", "k") {
				time.Sleep(time.Hour)
				w.do(with("k"))
			}
		}
		w = newWorldOn(t, func(f *flaky) idempotency.Store { return &afterRead{Store: f, then: expires} }, idempotency.Config{}, nil)
		w.former("k", key.Fact{Evidence: key.Answered, Answer: key.Answer{Status: 202}})
		if got := w.do(with("k")); got.Code != 201 {
			t.Errorf("answer = %d %s, want the one of the other retry", got.Code, got.Body)
		}
		w.ran(1)
	})
}

// A record of the version before may be imported when its key was used and is free again.
func guardFormerImported(t *testing.T) {
	t.Parallel()
	status := 429
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
	w.do(with("k"))
	status = 201
	id := w.former("k", key.Fact{Evidence: key.Unsure})
	w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
	w.ran(1)
	_, err := idempotency.NewKeys(w.store).Resolve(t.Context(), id.String(), idempotency.Resolution{By: "eve"}, time.Now())
	must(t, err)
	w.replayed(w.do(with("k")), w.do(with("k")))
	w.ran(2)
}

// An afterRead is a store after whose first read of a record something happens.
type afterRead struct {
	idempotency.Store
	then func(key.ID)
	seen map[key.ID]bool
}

func (s *afterRead) Read(ctx context.Context, id key.ID) (key.Record, error) {
	r, err := s.Store.Read(ctx, id)
	if !s.seen[id] {
		if s.seen == nil {
			s.seen = make(map[key.ID]bool)
		}
		s.seen[id] = true
		s.then(id)
	}
	return r, err
}

func TestByBasic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByBasic}), nil)
	as := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	w.do(with("k", as("ada", "old")))
	w.do(with("k", as("ada", "new")))
	w.ran(1)
	w.do(with("k", as("bob", "old")))
	w.ran(2)
	w.problem(w.do(with("k", header("Authorization", "Bearer x"))), 400, idempotency.KindCallerUnknown)
}

func TestByHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByHeader("x-user-id")}), nil)
	w.do(with("k", header("X-User-Id", "1"), header("Authorization", "new token")))
	w.do(with("k", header("X-User-Id", "1"), header("Authorization", "newer token")))
	w.ran(1)
	w.do(with("k", header("X-User-Id", "2")))
	w.ran(2)
	w.problem(w.do(with("k")), 400, idempotency.KindCallerUnknown)
	twice := w.do(with("k", func(r *http.Request) { r.Header["X-User-Id"] = []string{"1", "1"} }))
	if p := w.problem(twice, 400, idempotency.KindCallerUnknown); !strings.Contains(fmt.Sprint(p["detail"]), "X-User-Id is there 2 times") {
		t.Errorf("two lines: %v", p)
	}
	w.ran(2)
	w = newWorld(t, rule(idempotency.Rule{Caller: idempotency.Anyone}), nil)
	w.do(with("k", header("Cookie", "a=1")))
	w.do(with("k", header("Authorization", "b")))
	w.ran(1)
}

// A client whose token is empty is nobody: who else sends none is not shown its answer where one is asked for, and its cookie counts.
func TestEmptyCredential(t *testing.T) {
	t.Parallel()
	for _, empty := range []func(*http.Request){
		header("Authorization", ""), header("Authorization", "Bearer"), header("Authorization", "Bearer "), header("X-API-Key", " "), header("Cookie", ""),
	} {
		w := newWorld(t, idempotency.Config{}, nil)
		w.problem(w.do(with("k", empty, header("Cookie", "session=ada"))), 400, idempotency.KindCallerUnknown)
		first := w.do(with("k", empty))
		if code, s := w.ask(idempotency.InstancePath+w.record("k").ID.String(), empty); code != 200 || s.State != "done" || s.Answer != nil {
			t.Errorf("a reference shows %d %+v", code, s)
		}
		w.replayed(first, w.do(with("k")))
		w.ran(1)
	}
}

// A line of Authorization that signs each request is found behind one that does not.
func TestSignatureBehindAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	for _, first := range []string{"", "Bearer ada"} {
		both := func(r *http.Request) {
			r.Header["Authorization"] = []string{first, "AWS4-HMAC-SHA256 Credential=ada, Signature=1"}
		}
		w.problem(w.do(with("k", both)), 400, idempotency.KindCallerUnknown)
	}
	w.ran(0)
}

// A client that shows a certificate is somebody, and nothing says who.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	certificate := func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}} }
	w := newWorld(t, idempotency.Config{}, nil)
	w.problem(w.do(with("k", certificate)), 400, idempotency.KindCallerUnknown)
	w.ran(0)
	if code := w.do(with("k", certificate, header("Authorization", "Bearer ada"))).Code; code != 201 {
		t.Errorf("with a token: %d", code)
	}
}

// Who authenticates may read another line of Authorization than the guard.
func TestTwoUsersOfBasic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByBasic}), nil)
	ada := func(r *http.Request) { r.SetBasicAuth("ada", "secret") }
	w.do(with("k", ada))
	eve := func(r *http.Request) { r.Header.Add("Authorization", "Basic ZXZlOmV2ZQ==") }
	w.problem(w.do(with("k", ada, eve)), 400, idempotency.KindCallerUnknown)
	w.ran(1)
}

// White space around the value of a header is none of it, also by HTTP/2, where it comes as it was sent: a header that is blank names nobody, and not
// whoever else sends a blank one.
func TestBlankHeaderIsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByHeader("X-User-Id"), Key: idempotency.KeySource{Header: "X-Delivery"}}), nil)
	s := httptest.NewUnstartedServer(w.h)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	send := func(user, k string) *httptest.ResponseRecorder {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders", strings.NewReader("order"))
		must(t, err)
		r.Header["X-User-Id"], r.Header["X-Delivery"] = []string{user}, []string{k}
		resp, err := s.Client().Do(r)
		must(t, err)
		defer resp.Body.Close()
		got := httptest.NewRecorder()
		got.Code = resp.StatusCode
		_, err = got.Body.ReadFrom(resp.Body)
		must(t, err)
		if resp.ProtoMajor != 2 {
			t.Errorf("by %s", resp.Proto)
		}
		return got
	}
	for _, blank := range []string{"", " ", "\t"} {
		if got := send(blank, "k"); got.Code != 400 {
			t.Errorf("%q gets %d %s", blank, got.Code, got.Body)
		}
	}
	for i, ada := range []string{"ada", "ada ", " ada"} {
		if got := send(ada, "k"+strings.Repeat(" ", i)); got.Code != 201 {
			t.Errorf("%q gets %d %s", ada, got.Code, got.Body)
		}
	}
	w.ran(1)
}
