package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"replay":               guardReplay,
		"unguarded":            guardUnguarded,
		"bad_requests":         guardBadRequests,
		"other_request":        guardOtherRequest,
		"other_caller":         guardOtherCaller,
		"every_byte":           guardEveryByte,
		"empty_answers":        guardEmptyAnswers,
		"statuses":             guardStatuses,
		"renewed_token":        guardRenewedToken,
		"credentials":          guardCredentials,
		"host":                 guardHost,
		"former_records":       guardFormerRecords,
		"former_released":      guardFormerReleased,
		"former_expires":       guardFormerExpires,
		"former_imported":      guardFormerImported,
		"methods":              guardMethods,
		"released_key":         guardReleasedKey,
		"expiry":               guardExpiry,
		"sweep_in_batches":     guardSweepInBatches,
		"logs_without_secrets": guardLogsWithoutSecrets,
		"outer_headers":        guardOuterHeaders,
		"exposed_headers":      guardExposedHeaders,
		"whole_request":        guardWholeRequest,
		"recorded_before_sent": guardRecordedBeforeSent,
		"duplicates":           guardDuplicates,
		"wait":                 guardWait,
		"slow_handler":         guardSlowHandler,
		"fenced_owner":         guardFencedOwner,
		"late_answer":          guardLateAnswer,
		"crash":                guardCrash,
		"sweep_after_crash":    guardSweepAfterCrash,
		"retry_after_crash":    guardRetryAfterCrash,
		"atomic_crash":         guardAtomicCrash,
		"repeatable":           guardRepeatable,
		"repeatable_elsewhere": guardRepeatableElsewhere,
		"probe":                guardProbe,
		"effect_elsewhere":     guardProbeOfAnEffectElsewhere,
		"taken_late":           guardTakenLate,
		"blocked_store":        guardBlockedStore,
		"panic":                guardPanic,
		"release_and_doubt":    guardReleaseAndDoubt,
		"store_down":           guardStoreDown,
		"withheld_answer":      guardWithheldAnswer,
		"unknown_commit":       guardUnknownCommit,
		"unknown_tx":           guardUnknownTx,
		"client_gone":          guardClientGone,
		"client_leaves":        guardClientLeaves,
		"observer":             guardObserver,
		"run_sweeps":           guardRunSweeps,
	} {
		t.Run(name, test)
	}
}

func guardReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	first := w.do(with("k"))
	if first.Code != 201 || first.Body.String() != "made order" || first.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("first answer = %d %q %v", first.Code, first.Body, first.Header())
	}
	for _, again := range []*http.Request{with("k"), with(`"k"`), with("", header("X-Idempotency-Key", "k"))} {
		got := w.do(again)
		w.replayed(first, got)
		if got.Header().Get("Location") != "/orders/1" || got.Header().Get("Idempotency-Expires") != first.Header().Get("Idempotency-Expires") {
			t.Errorf("replayed headers = %v", got.Header())
		}
	}
	if _, err := http.ParseTime(first.Header().Get("Idempotency-Expires")); err != nil {
		t.Errorf("Idempotency-Expires: %v", err)
	}
	w.ran(1)
}

func guardUnguarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{Rules: []idempotency.Rule{
		{Path: "/open/{id}", Methods: []string{"DELETE"}}, {Path: "/orders"},
	}}, nil)
	n := int64(0)
	for _, r := range []*http.Request{
		with(""),
		with("k", func(r *http.Request) { r.Method = "GET" }),
		with("k", func(r *http.Request) { r.Method = "DELETE" }),
		with("k", func(r *http.Request) { r.URL.Path = "/elsewhere" }),
		with("k", func(r *http.Request) { r.URL.Path = "/open/1" }), // no rule is about both
	} {
		for range 2 {
			n++
			if got := w.do(r); got.Code != 201 || got.Header().Get("Idempotency-Expires") != "" {
				t.Errorf("%s %s = %d %v", r.Method, r.URL, got.Code, got.Header())
			}
			w.ran(n)
		}
	}
	del := with("k", func(r *http.Request) { r.Method, r.URL.Path = "DELETE", "/open/2" })
	w.do(del)
	w.do(del)
	w.ran(n + 1)
}

func guardBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Require: true, BodyLimit: 10}), nil)
	for name, test := range map[string]struct {
		r      *http.Request
		status int
		kind   idempotency.Kind
	}{
		"no key":          {with(""), 400, idempotency.KindKeyMissing},
		"empty key":       {with("", func(r *http.Request) { r.Header["Idempotency-Key"] = []string{""} }), 400, idempotency.KindKeyInvalid},
		"256 characters":  {with(strings.Repeat("x", 256)), 400, idempotency.KindKeyInvalid},
		"not ASCII":       {with("ä"), 400, idempotency.KindKeyInvalid},
		"control":         {with("a\x01"), 400, idempotency.KindKeyInvalid},
		"unclosed quote":  {with(`"abc`), 400, idempotency.KindKeyInvalid},
		"two lines":       {with("a", func(r *http.Request) { r.Header.Add("Idempotency-Key", "a") }), 400, idempotency.KindKeyInvalid},
		"headers differ":  {with("a", header("X-Idempotency-Key", "b")), 400, idempotency.KindKeyInvalid},
		"cookie session":  {with("a", header("Cookie", "session=1")), 400, idempotency.KindCallerUnknown},
		"body too large":  {with("a", body("12345678901")), 413, idempotency.KindBodyTooLarge},
		"chunked, larger": {with("a", body("12345678901"), func(r *http.Request) { r.ContentLength = -1 }), 413, idempotency.KindBodyTooLarge},
		"body cut off":    {with("a", body("1234"), func(r *http.Request) { r.ContentLength = 8 }), 400, idempotency.KindBodyUnreadable},
	} {
		got := w.do(test.r)
		w.problem(got, test.status, test.kind)
		if got.Header().Get("Idempotency-Expires") != "" {
			t.Errorf("%s: a refusal has an expiry", name)
		}
	}
	w.ran(0)
	if n := w.store.writes.Load(); n != 0 {
		t.Errorf("%d records were written for refused requests", n)
	}
	if got := w.do(with("a", body("1234567890"))); got.Code != 201 {
		t.Errorf("a body of exactly the limit = %d", got.Code)
	}
}

func guardOtherRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	first := w.do(with("k"))
	for _, r := range []*http.Request{
		with("k", body("another")),
		with("k", func(r *http.Request) { r.Method = "PUT" }),
		with("k", func(r *http.Request) { r.URL.Path = "/bills" }),
		with("k", func(r *http.Request) { r.URL.RawQuery = "a=1" }),
	} {
		w.problem(w.do(r), 422, idempotency.KindKeyReused)
	}
	w.replayed(first, w.do(with("k")))
	w.ran(1)
}

func guardMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{Methods: []string{"post", "Delete"}}), nil)
	for i, m := range []string{"POST", "post", "delete"} {
		for range 2 {
			w.do(with(fmt.Sprint("k", i), func(r *http.Request) { r.Method = m }))
		}
		w.ran(int64(i + 1))
	}

	// A browser's fetch sends "patch" as it was written. The default guards it, too.
	w = newWorld(t, idempotency.Config{}, nil)
	for i, m := range []string{"PATCH", "patch", "post"} {
		for range 2 {
			w.do(with(fmt.Sprint("k", i), func(r *http.Request) { r.Method = m }))
		}
		w.ran(int64(i + 1))
	}
}

func guardEveryByte(t *testing.T) {
	t.Parallel()
	bodies := []string{"", "\x00\xff\x80", "1.10", "null", "\x1f\x8b\x08 gzip", strings.Repeat("x", 1<<20)}
	for i, b := range bodies {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			h := rw.Header()
			h["Link"] = []string{"<a>; rel=next", "<b>; rel=prev"}
			h.Set("Content-Encoding", "gzip")
			h.Set("Content-Type", "text/plain; charset=latin1")
			h.Set("ETag", `"1"`)
			h.Set("X-Odd", "\xe4")
			h.Set("Set-Cookie", "session=1")
			h.Set("WWW-Authenticate", "Basic")
			h.Set("Authorization", "secret")
			h.Set("Connection", "X-Hop")
			h.Set("X-Hop", "1")
			h.Set("Keep-Alive", "1")
			rw.WriteHeader(202)
			_, _ = io.WriteString(rw, b[:len(b)/2])
			_, _ = io.Copy(rw, io.MultiReader(strings.NewReader(b[len(b)/2:]))) // no WriterTo
		})
		first := w.do(with("k"))
		again := w.do(with("k"))
		w.replayed(first, again)
		if first.Body.String() != b {
			t.Errorf("body %d: the first answer was changed", i)
		}
		if first.Header().Get("Set-Cookie") == "" || first.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("the first answer lost its own headers: %v", first.Header())
		}
		for _, name := range []string{"Link", "Content-Encoding", "Content-Type", "Etag", "X-Odd", "Content-Length"} {
			if fmt.Sprint(first.Header()[name]) != fmt.Sprint(again.Header()[name]) || len(again.Header()[name]) == 0 {
				t.Errorf("%s = %q, want %q", name, again.Header()[name], first.Header()[name])
			}
		}
		for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Authorization", "Connection", "X-Hop", "Keep-Alive"} {
			if v, ok := again.Header()[name]; ok {
				t.Errorf("replayed %s: %q", name, v)
			}
		}
	}
}

func guardEmptyAnswers(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 204, 302, 304, 400, 402, 404, 409, 422, 500, 501, 511} {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", "/there")
			rw.WriteHeader(status)
		})
		first := w.do(with("k"))
		again := w.do(with("k"))
		w.replayed(first, again)
		if again.Header().Get("Location") != "/there" || again.Body.Len() > 0 {
			t.Errorf("%d: %v %q", status, again.Header(), again.Body)
		}
		_, has := again.Header()["Content-Length"]
		if want := status != 204 && status != 304; has != want {
			t.Errorf("%d: has a Content-Length: %t, want %t", status, has, want)
		}
		w.ran(1)
	}
}

func guardStatuses(t *testing.T) {
	t.Parallel()
	const kept, released, unknown = "kept", "released", "unknown"
	for _, test := range []struct {
		status      int
		policy      key.Policy
		notExecuted []int
		want        string
	}{
		{200, "", nil, kept}, {400, "", nil, kept}, {404, "", nil, kept}, {500, "", nil, kept}, {501, "", nil, kept},
		{401, "", nil, released}, {403, "", nil, released}, {407, "", nil, released}, {408, "", nil, released},
		{425, "", nil, released}, {429, "", nil, released},
		{502, "", nil, unknown}, {503, "", nil, unknown}, {504, "", nil, unknown}, {524, "", nil, unknown},
		{503, "", []int{503}, released}, {502, "", []int{503}, unknown},
		{500, key.Retry5xx, nil, released}, {502, key.Retry5xx, nil, released}, {503, key.Retry5xx, nil, released}, {504, key.Retry5xx, nil, released},
		{501, key.Retry5xx, nil, kept}, {505, key.Retry5xx, nil, kept}, {400, key.Retry5xx, nil, kept}, {401, key.Retry5xx, nil, released},
	} {
		w := newWorld(t, rule(idempotency.Rule{Policy: test.policy, NotExecuted: test.notExecuted}), func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(test.status)
		})
		first, again := w.do(with("k")), w.do(with("k"))
		switch test.want {
		case kept:
			w.replayed(first, again)
			w.ran(1)
		case released:
			w.ran(2)
		case unknown:
			w.problem(first, test.status, idempotency.KindOutcomeUnknown)
			w.problem(again, 409, idempotency.KindOutcomeUnknown)
			w.ran(1)
		}
		if _, has := first.Header()["Idempotency-Expires"]; has != (test.want == kept) {
			t.Errorf("%d: has an expiry: %t", test.status, has)
		}
	}
}

func guardReleasedKey(t *testing.T) {
	t.Parallel()
	status := 429
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(status) })
	w.do(with("k"))
	status = 201
	if got := w.do(with("k", body("another"))); got.Code != 201 {
		t.Errorf("a free key refuses another request: %d %s", got.Code, got.Body)
	}
}

func guardExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, nil)
		first := w.do(with("k"))
		if got, want := first.Header().Get("Idempotency-Expires"), time.Now().Add(week).UTC().Format(http.TimeFormat); got != want {
			t.Errorf("Idempotency-Expires = %s, want %s", got, want)
		}
		time.Sleep(week - time.Second)
		w.do(with("k"))
		w.ran(1)
		time.Sleep(time.Second)
		w.do(with("k"))
		w.ran(2)
		w.do(with("k"))
		w.ran(2)
	})
}

func guardSweepInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := rule(idempotency.Rule{TTL: 24 * time.Hour})
		cfg.SweepBatch = 3
		w := newWorld(t, cfg, nil)
		for i := range 10 {
			w.do(with(fmt.Sprint("k", i)))
		}
		n, err := w.guard.Sweep(t.Context(), time.Now().Add(24*time.Hour))
		if n != 10 || err != nil {
			t.Errorf("Sweep = %d, %v, want 10", n, err)
		}
	})
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]idempotency.Rule{
		"under 24h":           {TTL: time.Hour},
		"unknown policy":      {Policy: "perhaps"},
		"unknown after-crash": {AfterCrash: "perhaps"},
		"path":                {Path: "no slash"},
		"negative":            {Wait: -1},
	} {
		w := newWorld(t, idempotency.Config{}, nil)
		if _, err := idempotency.New(w.store, rule(r)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want it to say %q", r, err, want)
		}
	}
	if _, err := idempotency.New(nil, idempotency.Config{}); err == nil {
		t.Error("New without a store: no error")
	}
	w := newWorld(t, rule(idempotency.Rule{TTL: time.Hour, AllowShortTTL: true}), nil)
	w.do(with("k"))
}

func guardLogsWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	func() {
		defer func() { _ = recover() }()
		w.do(with("my-secret-key", body("my-body"), header("Authorization", "my-token")))
	}()
	w.store.failRead.Store(true)
	got := w.do(with("my-secret-key", body("my-body"), header("Authorization", "my-token")))
	w.problem(got, 503, idempotency.KindStoreUnavailable)
	text := w.log.String()
	for _, secret := range []string{"my-secret-key", "my-body", "my-token"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q:\n%s", secret, text)
		}
	}
	if id := key.NewID("example.com", `Authorization ["my-token"]`, "my-secret-key"); !strings.Contains(text, id.String()) {
		t.Errorf("the log does not name %s:\n%s", id, text)
	}
}

func guardOuterHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Add("Vary", "Accept")
		rw.Header().Set("X-Own", "1")
	})
	n := 0
	outer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n++
		rw.Header().Set("X-Request-Id", fmt.Sprint(n))
		rw.Header().Set("Vary", "Origin")
		w.h.ServeHTTP(rw, r)
	})
	for want := 1; want <= 2; want++ {
		rec := httptest.NewRecorder()
		outer.ServeHTTP(rec, with("k"))
		if h := rec.Header(); h.Get("X-Request-Id") != fmt.Sprint(want) || fmt.Sprint(h["Vary"]) != "[Origin Accept]" || h.Get("X-Own") != "1" {
			t.Errorf("answer %d has %v", want, h)
		}
	}
}

func guardExposedHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Access-Control-Allow-Origin", "*")
		rw.Header().Set("Access-Control-Expose-Headers", "X-Own, idempotent-replayed")
	})
	for range 2 {
		got := w.do(with("k")).Header()["Access-Control-Expose-Headers"]
		if fmt.Sprint(got) != "[X-Own, idempotent-replayed Idempotency-Expires Retry-After]" {
			t.Errorf("Access-Control-Expose-Headers = %q", got)
		}
	}
}

func guardWholeRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(rw, r.ContentLength, len(r.TransferEncoding), string(b), err, r.Trailer.Get("X-Sum"))
	})
	server := httptest.NewServer(w.h)
	defer server.Close()
	pr, pw := io.Pipe()
	r, _ := http.NewRequest("POST", server.URL, pr)
	r.Header.Set("Idempotency-Key", "k")
	r.Trailer = http.Header{"X-Sum": nil}
	go func() {
		_, _ = io.WriteString(pw, "in ")
		_, _ = io.WriteString(pw, "parts")
		r.Trailer.Set("X-Sum", "9")
		pw.Close()
	}()
	resp, err := server.Client().Do(r)
	must(t, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "8 0in parts<nil>9" {
		t.Errorf("the handler saw %q", b)
	}
}
