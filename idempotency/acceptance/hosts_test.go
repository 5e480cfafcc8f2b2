//go:build unix

package acceptance_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
)

// A client may name any host by HTTP/2, in any bytes above ASCII, too. Each is one of its own, and its keys are kept.
func TestHostsThatAreNoNames(t *testing.T) {
	t.Parallel()
	pg := postgres.New(pgtest.URL(t), postgres.Config{})
	if err := pg.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	for name, store := range map[string]idempotency.Store{"memory": new(memory.Keys), "postgres": pg.Keys()} {
		var runs atomic.Int64
		g, err := idempotency.New(store, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs.Add(1) })))
		s.EnableHTTP2 = true
		s.StartTLS()
		defer s.Close()
		hosts := []string{"\xff.example", "\xfe.example", "k.example", "\u212a.example", strings.Repeat("\u00e9", 150) + ".example", strings.Repeat("\u00e9", 150) + ".other"}
		for i, host := range hosts {
			for range 2 {
				postAs(t, s, host)
			}
			if got := runs.Load(); got != int64(i+1) {
				t.Errorf("%s: after %d hosts, the last one %q, it ran %d times", name, i+1, host, got)
			}
		}
	}
}

// postAs sends a POST with a key by HTTP/2 to a host in any bytes, and waits for the end of its answer.
func postAs(t *testing.T, s *httptest.Server, host string) {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var fields bytes.Buffer
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/orders"}, {":authority", host}, {"idempotency-key", "k"}} {
		fields.WriteByte(0) // a literal with a new name (RFC 7541 section 6.2.2)
		for _, text := range f {
			fields.Write(prefixed(len(text)))
			fields.WriteString(text)
		}
	}
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		b := append([]byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}, binary.BigEndian.AppendUint32(nil, stream)...)
		return append(b, payload...)
	}
	request := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(frame(4, 0, 0, nil)) + string(frame(1, 1|4, 1, fields.Bytes()))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			t.Fatal(err)
		}
		switch kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:]); {
		case kind == 3 || kind == 7:
			t.Fatal(fmt.Errorf("the server ended the stream: frame %d", kind))
		case stream == 1 && flags&1 != 0:
			return
		}
	}
}

// prefixed returns a length as HPACK has it, with a prefix of seven bits.
func prefixed(n int) (b []byte) {
	if n < 127 {
		return []byte{byte(n)}
	}
	b = []byte{127}
	for n -= 127; n >= 128; n /= 128 {
		b = append(b, byte(n%128)|128)
	}
	return append(b, byte(n))
}
