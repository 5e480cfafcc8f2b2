//go:build unix

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A proxy whose file is removed or replaced under it passes nothing on any more, says so, and ends as a host does.
func TestProxyOnAReplacedFile(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path, other string) error{
		"removed": func(path, _ string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		},
		"replaced": func(path, other string) error { return os.Rename(other, path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			did := new(counter)
			up := httptest.NewServer(did)
			defer up.Close()
			path, other := filepath.Join(t.TempDir(), "keys.db"), filepath.Join(t.TempDir(), "other.db")
			_, end, err := openKeys(t.Context(), other, false)
			if err := errors.Join(err, end()); err != nil {
				t.Fatal(err)
			}
			p := startProxy(t, path, up.URL, "lease = '30s'")
			transport := newTransport(t)
			if status, body := try(transport, p.url, "a"); status != 201 {
				t.Fatalf("before: %d %s", status, body)
			}
			if err := harm(path, other); err != nil {
				t.Fatal(err)
			}
			if status, body := try(transport, p.url, "b"); status != 503 || !strings.Contains(body, "store-unavailable") {
				t.Errorf("after: %d %s", status, body)
			}
			said := <-p.said
			if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.ExitCode() != exit.Unreachable || !strings.Contains(said, "removed or replaced; nothing is executed") {
				t.Errorf("the proxy ended with %v and said:\n%s", err, said)
			}
			did.mu.Lock()
			defer did.mu.Unlock()
			if did.done["b"] != 0 {
				t.Error("the request was passed on")
			}
		})
	}
}

// A proxy whose server lacks keys that it said are stored passes nothing on any more, and ends; one that is started then
// waits for a person's word.
func TestProxyWhoseServerLostKeys(t *testing.T) {
	t.Parallel()
	did := new(counter)
	up := httptest.NewServer(did)
	defer up.Close()
	url := pgtest.SchemaURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	p := startProxyIn(t, dir, url, up.URL, "lease = '30s'")
	transport := newTransport(t)
	pay := func(k string, want int) {
		t.Helper()
		if status, body := try(transport, p.url, k); status != want {
			t.Errorf("%s: %d %s, want %d", k, status, body, want)
		}
	}
	pay("a", 201)
	do(`CREATE TABLE past AS SELECT * FROM idempotency_key`)
	pay("b", 201)
	do(`DELETE FROM idempotency_key; INSERT INTO idempotency_key OVERRIDING SYSTEM VALUE SELECT * FROM past`)
	pay("b", 503)
	said := <-p.said
	if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.ExitCode() != exit.Unreachable || !strings.Contains(said, "keep proxy --new") {
		t.Errorf("the proxy ended with %v and said:\n%s", err, said)
	}
	if status, _, said := keepIn(t, dir, "proxy"); status != exit.Unreachable || !strings.Contains(said, "keep proxy --new") {
		t.Errorf("the next proxy ended with %d and said:\n%s", status, said)
	}
	_, end, err := openKeys(t.Context(), url, true)
	if err := errors.Join(err, end()); err != nil {
		t.Fatal(err)
	}
	p = startProxyIn(t, dir, url, up.URL, "lease = '30s'")
	pay("a", 201)
	pay("c", 201)
	did.mu.Lock()
	defer did.mu.Unlock()
	if did.done["a"] != 1 || did.done["b"] != 1 || did.done["c"] != 1 {
		t.Errorf("it was done %v times, want once each", did.done)
	}
}

// Two processes on one database run a key once, however many ask for it at once.
func TestProxiesShareADatabase(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		did := new(counter)
		up := httptest.NewServer(did)
		defer up.Close()
		const lease = "lease = '30s'" // nobody dies here, and a busy machine may be late
		urls := []string{startProxy(t, db, up.URL, lease).url, startProxy(t, db, up.URL, lease).url}
		transport := newTransport(t)
		for round := range 5 {
			k := fmt.Sprint("k", round)
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					if status, body := settled(t, transport, urls[i%2], k); status != 201 || body != "did "+k {
						t.Errorf("duplicate %d of %s: %d %s", i, k, status, body)
					}
				})
			}
			wg.Wait()
			did.mu.Lock()
			if did.done[k] != 1 {
				t.Errorf("%s ran %d times, want once", k, did.done[k])
			}
			did.mu.Unlock()
		}
	})
}

// A process that is stopped past its lease and continues finds that another one has
// the key: its answer is not shown, the other's is.
func TestProxyStoppedPastItsLeaseIsFenced(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		var calls atomic.Int64
		reached, hold := make(chan struct{}), make(chan struct{})
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n := calls.Add(1); n == 1 {
				close(reached)
				<-hold
				fmt.Fprint(w, "late")
			} else {
				fmt.Fprint(w, "second")
			}
		}))
		defer up.Close()
		const again = "[[proxy.routes]]\nafter_crash = 'retry'"
		a, b := startProxy(t, db, up.URL, again), startProxy(t, db, up.URL, again)
		transport := newTransport(t)
		first := make(chan string, 1)
		go func() {
			_, body := try(transport, a.url, "k")
			first <- body
		}()
		<-reached
		a.signal(t, syscall.SIGSTOP)
		if status, body := settled(t, transport, b.url, "k"); status != 200 || body != "second" {
			t.Errorf("the other process: %d %s", status, body)
		}
		close(hold)
		a.signal(t, syscall.SIGCONT)
		if got := <-first; got != "second" {
			t.Errorf("the stopped process answered %q, want the other's answer", got)
		}
		if _, body := try(transport, a.url, "k"); body != "second" || calls.Load() != 2 {
			t.Errorf("afterwards %q after %d calls", body, calls.Load())
		}
	})
}

// An upstream may take longer than the lease: it is renewed, and nobody else runs
// the key.
func TestProxyRenewsItsLease(t *testing.T) {
	t.Parallel()
	// A process that does not get the processor for as long has lost its lease, as it should.
	const lease = 3 * time.Second
	onBothStores(t, func(t *testing.T, db string) {
		var calls atomic.Int64
		reached := make(chan struct{})
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if calls.Add(1) == 1 {
				close(reached)
			}
			<-time.After(3 * lease)
			fmt.Fprint(w, "slow")
		}))
		defer up.Close()
		config := fmt.Sprintf("lease = '%s'\n[[proxy.routes]]\nafter_crash = 'retry'", lease)
		a, b := startProxy(t, db, up.URL, config), startProxy(t, db, up.URL, config)
		transport := newTransport(t)
		first := make(chan string, 1)
		go func() {
			_, body := try(transport, a.url, "k")
			first <- body
		}()
		<-reached
		if status, body := settled(t, transport, b.url, "k"); status != 200 || body != "slow" {
			t.Errorf("the other process: %d %s", status, body)
		}
		if got := <-first; got != "slow" || calls.Load() != 1 {
			t.Errorf("the first client got %q after %d calls, want one call", got, calls.Load())
		}
	})
}

// A zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Long bodies pass through both ways, byte by byte, and the process does not grow
// with them.
func TestProxyStreamsInBoundedMemory(t *testing.T) {
	t.Parallel()
	const long, longer = 32 << 20, 512 << 20
	uploaded := make(chan [32]byte, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			sum := sha256.New()
			_, _ = io.Copy(sum, r.Body)
			uploaded <- [32]byte(sum.Sum(nil))
		case "/down":
			_, _ = w.Write(pattern(long))
		case "/zeros":
			_, _ = io.CopyN(w, zeros{}, longer)
		}
	}))
	defer up.Close()
	p := startProxy(t, filepath.Join(t.TempDir(), "keys.db"), up.URL, "")
	client := &http.Client{Transport: newTransport(t)}
	send := func(path, k string, body io.Reader, into hash.Hash) (n int64) {
		t.Helper()
		r, err := http.NewRequest("POST", p.url+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if k != "" {
			r.Header["idempotency-key"] = []string{k}
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err = io.Copy(into, resp.Body); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d after %d bytes: %v", path, resp.StatusCode, n, err)
		}
		return n
	}
	want := sha256.Sum256(pattern(long))
	sum := sha256.New()
	if n := send("/down", "k", nil, sum); n != long || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("the answer has %d bytes, or others", n)
	}
	if status, body := try(newTransport(t), p.url, "k"); status != 422 && status != 409 {
		t.Errorf("a retry got %d %s", status, body)
	}
	send("/up", "", io.MultiReader(bytes.NewReader(pattern(long))), sha256.New())
	if got := <-uploaded; got != want {
		t.Error("the upload arrived with other bytes")
	}
	before, err := peakMemory(p.cmd.Process.Pid)
	if err != nil {
		t.Skip(err) // there is no /proc here
	}
	send("/zeros", "k2", nil, sha256.New())
	send("/up", "", io.LimitReader(zeros{}, longer), sha256.New())
	<-uploaded
	after, err := peakMemory(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak memory %d MiB after %d MiB each way, %d MiB after %d", before>>20, long>>20, after>>20, longer>>20)
	if after > 160<<20 {
		t.Errorf("the proxy took %d MiB for %d MiB, %d MiB before", after>>20, longer>>20, before>>20)
	}
}

// pattern returns n bytes in which every page is another.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		b[i], b[i+1], b[i+2], b[i+3], b[i+7] = byte(i>>3), byte(i>>11), byte(i>>19), 0xff, '\n'
	}
	return b
}

// Clients may speak HTTPS, and then HTTP/2.
func TestProxySpeaksTLS(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	defer up.Close()
	cert, key, roots := certificate(t)
	p := startProxy(t, filepath.Join(t.TempDir(), "keys.db"), up.URL, fmt.Sprintf("tls_cert = %q\ntls_key = %q", cert, key))
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	for i, replayed := range []string{"", "true"} {
		r, err := http.NewRequest("POST", p.url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["idempotency-key"] = []string{"k"}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || string(body) != "https" || resp.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("answer %d: %s %q, replayed %q, %v", i, resp.Proto, body, resp.Header.Get("Idempotent-Replayed"), err)
		}
	}
	plain, err := http.Get("http://" + strings.TrimPrefix(p.url, "https://"))
	if err == nil {
		plain.Body.Close()
		if plain.StatusCode != 400 {
			t.Errorf("plain HTTP got %s", plain.Status)
		}
	}
}

// certificate makes a certificate for 127.0.0.1, and returns its files and who
// trusts it.
func certificate(t testing.TB) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
	return cert, key, roots
}
