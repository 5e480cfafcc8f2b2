package idempotency_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// served starts a real server, with HTTP/2 if h2.
func served(t testing.TB, h http.Handler, h2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = h2
	if h2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// send posts with a key and returns the whole answer.
func send(t testing.TB, s *httptest.Server, k string, change ...func(*http.Request)) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/orders", strings.NewReader("order"))
	must(t, err)
	r.Header.Set("Idempotency-Key", k)
	for _, c := range change {
		c(r)
	}
	resp, err := s.Client().Do(r)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, b
}

func TestServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"slow_body":              serverSlowBody,
		"memory":                 serverMemory,
		"http_versions":          serverHttpVersions,
		"informational_answers":  serverInformationalAnswers,
		"expect_continue":        serverExpectContinue,
		"chunked_body_too_large": serverChunkedBodyTooLarge,
		"half_an_upload":         serverHalfAnUpload,
		"event_stream":           serverEventStream,
		"long_answer":            serverLongAnswer,
		"cut_stream":             serverCutStream,
		"left_stream":            serverLeftStream,
		"unrecorded_stream":      serverUnrecordedStream,
		"upgrade":                serverUpgrade,
		"deadlines":              serverDeadlines,
		"bad_status":             serverBadStatus,
		"immediate_retry":        serverImmediateRetry,
	} {
		t.Run(name, test)
	}
}

func serverHttpVersions(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
			w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Trailer", "X-Sum, X-None")
				rw.WriteHeader(201)
				_, _ = io.WriteString(rw, "part one, ")
				if err := http.NewResponseController(rw).Flush(); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(rw, "part two")
				rw.Header().Set("X-Sum", "42")
				rw.Header().Set(http.TrailerPrefix+"X-Late", "43")
				rw.Header().Set("X-Too-Late", "44")
			})
			s := served(t, w.h, h2)
			for i := range 2 {
				resp, b := send(t, s, "k")
				if resp.StatusCode != 201 || string(b) != "part one, part two" || resp.Trailer.Get("X-Sum") != "42" ||
					resp.Trailer.Get("X-Late") != "43" || resp.Header.Get("X-Too-Late") != "" {
					t.Errorf("answer %d = %d %q, trailers %v, header %v", i, resp.StatusCode, b, resp.Trailer, resp.Header)
				}
				if (resp.Header.Get("Idempotent-Replayed") == "true") != (i == 1) || resp.ProtoMajor == 2 != h2 {
					t.Errorf("answer %d over %s: %v", i, resp.Proto, resp.Header)
				}
			}
			w.ran(1)
		})
	}
}

func serverInformationalAnswers(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Link", "</style.css>; rel=preload")
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Del("Link")
			rw.WriteHeader(201)
		})
		s := served(t, w.h, h2)
		for want := 1; want >= 0; want-- { // a replay has none
			hints := 0
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code == 103 && h.Get("Link") != "" {
					hints++
				}
				return nil
			}}
			resp, _ := send(t, s, "k", func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
			if resp.StatusCode != 201 || resp.Header.Get("Link") != "" || hints != want {
				t.Errorf("answer %d %v with %d hints, want %d", resp.StatusCode, resp.Header, hints, want)
			}
		}
	}
}

func serverExpectContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(idempotency.Rule{BodyLimit: 10}), nil)
	s := served(t, w.h, false)
	for size, want := range map[int]string{5: "HTTP/1.1 100 Continue", 11: "HTTP/1.1 413 Request Entity Too Large"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Errorf("%d bytes: %q, %v, want %q", size, line, err, want)
		}
	}
	w.ran(0)
}

func serverChunkedBodyTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	s := served(t, w.h, false)
	r, err := http.NewRequest("POST", s.URL, io.MultiReader(bytes.NewReader(make([]byte, 3<<20)))) // no length
	must(t, err)
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.Client().Do(r)
	if err != nil {
		return // the server may cut the upload while the client still sends
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("status %d, want 413", resp.StatusCode)
	}
	w.ran(0)
}

func serverHalfAnUpload(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	w := newWorld(t, idempotency.Config{}, nil)
	s := served(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.h.ServeHTTP(rw, r)
		if r.ContentLength == 100 {
			close(left)
		}
	}), false)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	must(t, err)
	fmt.Fprint(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\nhalf")
	conn.Close()
	<-left
	w.ran(0)
	if resp, _ := send(t, s, "k"); resp.StatusCode != 201 {
		t.Errorf("after half an upload: %d", resp.StatusCode)
	}
}

func serverEventStream(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		rw.WriteHeader(200)
		for i := range 3 {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			<-next
		}
	})
	s := served(t, w.h, false)
	r, err := http.NewRequest("POST", s.URL+"/orders", strings.NewReader("order"))
	must(t, err)
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.Client().Do(r)
	must(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 { // each arrives while the handler still runs
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) || !lines.Scan() {
			t.Fatalf("line %d: %q, %v", i, lines.Text(), lines.Err())
		}
		if got := w.record("k").State; got != key.InProgress {
			t.Errorf("while it streams the key is %q", got)
		}
		if again, b := send(t, s, "k"); again.StatusCode != 409 || !bytes.Contains(b, []byte("in-progress")) {
			t.Errorf("retry beside a stream: %d %s", again.StatusCode, b)
		}
		next <- struct{}{}
	}
	if lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}
	again, b := send(t, s, "k")
	if again.StatusCode != 409 || !bytes.Contains(b, []byte(`"original_status":200`)) || !bytes.Contains(b, []byte("body-not-stored")) {
		t.Errorf("retry of a stream: %d %s", again.StatusCode, b)
	}
	w.ran(1)
}

func serverLongAnswer(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	var held atomic.Int64
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(200)
		n, err := io.Copy(rw, io.LimitReader(zeros{}, size))
		held.Store(n)
		if err != nil {
			t.Error(err)
		}
	})
	s := served(t, w.h, false)
	r, err := http.NewRequest("POST", s.URL+"/orders", strings.NewReader("order"))
	must(t, err)
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.Client().Do(r)
	must(t, err)
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if n != size || err != nil || resp.Header.Get("Idempotency-Expires") != "" { // nobody knows yet
		t.Errorf("%d bytes, %v, %v", n, err, resp.Header)
	}
	again, b := send(t, s, "k")
	if again.StatusCode != 409 || !bytes.Contains(b, []byte("body-not-stored")) {
		t.Errorf("retry: %d %s", again.StatusCode, b)
	}
	if len(w.record("k").Answer.Body) > 0 {
		t.Error("the body was kept")
	}
	w.ran(1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A handler that dies in its stream, or in an answer longer than it is kept, may have done
// nothing yet: nobody knows.
func serverCutStream(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(http.ResponseWriter){
		"longer than is kept": func(rw http.ResponseWriter) { fmt.Fprint(rw, "more than four") },
		"a stream": func(rw http.ResponseWriter) {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(rw, "one")
		},
		"a long one": func(rw http.ResponseWriter) {
			rw.Header().Set("Content-Length", "2000")
			fmt.Fprint(rw, "one")
		},
	} {
		newWorldOf := func(p key.Policy) *world {
			return newWorld(t, rule(idempotency.Rule{ResponseLimit: 4, Policy: p}), func(rw http.ResponseWriter, r *http.Request) {
				begin(rw)
				if r.Header.Get("X-Return") == "" {
					idempotency.Doubt(r.Context(), 502)
					panic(http.ErrAbortHandler)
				}
			})
		}
		w := newWorldOf(key.AtMostOnce)
		for _, w := range []*world{w, newWorldOf(key.Retry5xx)} {
			func() {
				defer func() {
					if recover() != http.ErrAbortHandler {
						t.Errorf("%s: the panic was not passed on", name)
					}
				}()
				w.do(with("k"))
			}()
			w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
			w.ran(1)
		}
		want := key.DoneWithoutBody
		if name == "a long one" {
			want = key.Unknown // it announced more than it wrote
		}
		if w.do(with("returned", header("X-Return", "1"))); w.record("returned").State != want {
			t.Errorf("%s, and the handler returned: %q, want %q", name, w.record("returned").State, want)
		}
	}
}

// A handler whose client leaves in the middle of the stream does its work all the same.
func serverLeftStream(t *testing.T) {
	t.Parallel()
	left, worked := make(chan struct{}), make(chan error, 1)
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: 0\n\n")
		rw.(http.Flusher).Flush()
		<-left
		var err error
		for range 1000 { // more than the buffers of a connection
			if _, err = rw.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		worked <- cmp.Or(err, http.NewResponseController(rw).Flush())
	})
	var over sync.WaitGroup
	over.Add(1)
	s := served(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { defer over.Done(); w.h.ServeHTTP(rw, r) }), false)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/orders", strings.NewReader("order"))
	must(t, err)
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.Client().Do(r)
	must(t, err)
	leave()
	resp.Body.Close()
	close(left)
	if err := <-worked; err != nil {
		t.Errorf("the handler was told that its client left: %v", err)
	}
	over.Wait()
	if got := w.record("k").State; got != key.DoneWithoutBody {
		t.Errorf("the key is %q", got)
	}
}

// A handler that is silent after its client left is ended, as one that writes is: else it would hold the
// key for as long as it waits.
func TestLeftSilentStream(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		works, took time.Duration
		want        key.State
	}{
		"it waits":       {time.Hour, time.Second + time.Minute, key.Unknown},
		"it is done":     {30 * time.Second, 30 * time.Second, key.DoneWithoutBody},
		"it is too late": {2 * time.Minute, time.Second + time.Minute, key.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(rw, "data: 0\n\n")
					select {
					case <-r.Context().Done():
					case <-time.After(tt.works):
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, leave)
				start := time.Now()
				w.do(with("k").WithContext(ctx))
				if took, got := time.Since(start), w.record("k").State; took != tt.took || got != tt.want {
					t.Errorf("after %s the key is %q, want %s and %q", took, got, tt.took, tt.want)
				}
			})
		})
	}
}

func serverUnrecordedStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{StoreTimeout: time.Millisecond, Rules: []idempotency.Rule{{ResponseLimit: 4}}},
		func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, "more than four")
		})
	w.store.failAfter.Store(1)
	if got := w.do(with("k")); got.Code != 200 {
		t.Errorf("the stream: %d %s", got.Code, got.Body)
	}
	if got := w.record("k").State; got != key.InProgress { // and unknown when its lease ends
		t.Errorf("its key is %q", got)
	}
}

func serverUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		buf.Flush()
		line, _ := buf.ReadString('\n')
		fmt.Fprint(buf, line)
		buf.Flush()
	})
	s := served(t, w.h, false)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: k\r\nContent-Length: 5\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\norder", conn.RemoteAddr())
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	must(t, err)
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); resp.StatusCode != 101 || line != "hello\n" || err != nil {
		t.Errorf("upgrade: %d, %q, %v", resp.StatusCode, line, err)
	}
	again, b := send(t, s, "k")
	if again.StatusCode != 409 || !bytes.Contains(b, []byte(`"original_status":101`)) {
		t.Errorf("retry of an upgrade: %d %s", again.StatusCode, b)
	}
	w.ran(1)
}

func serverDeadlines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		if err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Minute)), rc.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
			t.Error(err)
		}
	})
	send(t, served(t, w.h, false), "k")
	w.ran(1)
}

func serverBadStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(204)
		if _, err := io.WriteString(rw, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("Write after 204: %v", err)
		}
		rw.WriteHeader(200) // has no effect
		defer func() {
			if recover() == nil {
				t.Error("WriteHeader(0) did not panic")
			}
		}()
		rw.WriteHeader(0)
	})
	if got := w.do(with("k")); got.Code != 204 {
		t.Errorf("status %d", got.Code)
	}
}

func serverImmediateRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	s := served(t, w.h, true)
	for i := range 50 {
		k := fmt.Sprint("k", i)
		first, a := send(t, s, k)
		again, b := send(t, s, k)
		if first.StatusCode != 201 || again.StatusCode != 201 || !bytes.Equal(a, b) || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("retry %d: %d after %d", i, again.StatusCode, first.StatusCode)
		}
	}
	w.ran(50)
}

// A client that stops in the middle of a request does not hold a handler for longer than
// its time, and nothing is recorded.
func serverSlowBody(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]idempotency.Config{
		"silence": {BodySilence: 50 * time.Millisecond}, "whole": {BodySilence: time.Hour, BodyTimeout: 50 * time.Millisecond},
	} {
		w := newWorld(t, cfg, nil)
		s := served(t, w.h, false)
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 5\r\n\r\nor")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 408 || !bytes.Contains(b, []byte(idempotency.KindBodyTimeout)) || err != nil {
			t.Errorf("%s: %d %s, %v", name, resp.StatusCode, b, err)
		}
		w.ran(0)
		if got := w.record("k"); got.Rev != 0 {
			t.Errorf("%s: half a request left a record that is %q", name, got.State)
		}
	}
}

// What requests hold at once is bounded: one that does not fit is refused, and an answer
// that does not fit is passed through.
func serverMemory(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	entered, hold := make(chan struct{}), make(chan struct{})
	w := newWorld(t, idempotency.Config{Memory: limit}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			close(entered)
			<-hold
			return
		}
		_, _ = rw.Write(make([]byte, limit))
	})
	big := strings.Repeat("x", limit/4*3)
	var wg sync.WaitGroup
	wg.Go(func() { w.do(with("a", body(big), header("X-Wait", "1"))) })
	<-entered
	w.problem(w.do(with("b", body(big))), 503, idempotency.KindBusy)
	w.problem(w.do(with("c", body(big), func(r *http.Request) { r.ContentLength = -1 })), 503, idempotency.KindBusy)
	w.ran(1)
	close(hold)
	wg.Wait()
	if got := w.do(with("d")); got.Code != 200 || got.Body.Len() != limit {
		t.Errorf("a long answer: %d with %d bytes", got.Code, got.Body.Len())
	}
	w.problem(w.do(with("d")), 409, idempotency.KindBodyNotStored)
	if got := w.do(with("b", body(big))); got.Code != 200 {
		t.Errorf("after the others: %d %s", got.Code, got.Body)
	}
}
