package hook_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api/hook"
)

// half begins a delivery, whose body is being read when half returns, and sends no more of it.
func (w *world) half(name string) *bufio.Reader {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", hook.Prefix, name)
	if line, err := in.ReadString('\n'); !strings.Contains(line, "100 Continue") {
		w.t.Fatalf("a delivery to %s is not read: %q, %v", name, line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "{")
	return in
}

// Whoever knows the name of a hook can begin deliveries. They keep no true one out, of whichever hook.
func TestHalfDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hook.Config{Name: "gh", Verify: hook.Token, Secrets: []string{"s"}, ID: "$.id"}, hook.Config{Name: "other", Verify: hook.Token, Secrets: []string{"s"}, ID: "$.id"})
	first := w.half("gh")
	for range 255 {
		w.half("gh")
	}
	for i, name := range []string{"gh", "other", "gh"} {
		if a := w.send("POST", name, fmt.Sprintf(`{"id":"%d"}`, i), "Authorization", "Bearer s"); a.status != http.StatusOK {
			t.Errorf("a true delivery to %s beside 256 half ones: %d %s", name, a.status, a.body)
		}
	}
	if t.Failed() {
		return
	}
	resp, err := http.ReadResponse(first, nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("the oldest half got %+v, %v, want 503 and its end", resp, err)
	}
	counts, err := w.receiver.Counts(t.Context())
	if err != nil || len(counts) != 2 || counts[0].Refused != 0 {
		t.Errorf("counts %+v, %v, want no refusal: half a delivery is none", counts, err)
	}
}
