package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/ceiling"
)

// mega is how long hostile bodies are: an answer of one byte more is cut.
const mega = 1 << 20

// hostileBodies are answers that make a reader compute or hold much.
func hostileBodies() map[string]string {
	fill := func(text string) string { return strings.Repeat(text, mega/len(text)-8) }
	var zip bytes.Buffer
	z := gzip.NewWriter(&zip)
	for range 256 {
		_, _ = z.Write(make([]byte, mega))
	}
	_ = z.Close()
	return map[string]string{
		"brackets":            fill("["),
		"balanced brackets":   strings.Repeat("[", mega/2-8) + strings.Repeat("]", mega/2-8),
		"nested objects":      strings.Repeat(`{"a":`, mega/7) + "1" + strings.Repeat("}", mega/7),
		"nested below limits": strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000),
		"names":               `{` + strings.TrimSuffix(fill(`"a":1,`), ",") + `}`,
		"long number":         fill("9"),
		"exponents":           `[` + strings.TrimSuffix(fill(`1e999999,`), ",") + `]`,
		"small exponents":     `[` + strings.TrimSuffix(fill(`1e-399,`), ",") + `]`,
		"escapes":             `"` + fill(`\u0000`) + `"`,
		"secrets":             `"` + fill(`s3cr3t-value`) + `"`,
		"almost secrets":      `"` + fill(`s3cr3t-valu`) + `"`,
		"encoded secrets":     `"` + fill(`%73%33%63%72%33%74`) + `"`,
		"line breaks":         `"` + fill(`\n`) + `"`,
		"pairs of breaks":     `"` + fill(`\r\n`) + `"`,
		"records":             `{"data":[` + strings.TrimSuffix(fill(`{},`), ",") + `]}`,
		"records almost ours": `{"data":[` + strings.TrimSuffix(fill(`{"id":7,"email":"a","ref":"tok-"},`), ",") + `]}`,
		"records of records":  `{"data":[` + strings.TrimSuffix(fill(`[{"id":[{"id":7}]}],`), ",") + `]}`,
		"page":                "<!doctype html>" + fill("<b>"),
		"spaces":              fill(" "),
		"invalid text":        fill("\xff\xfe"),
		"gzip":                zip.String(),
	}
}

// hostileHeaders are what may come beside a body, or instead of one. Each writes to the
// connection until nobody reads.
var hostileHeaders = map[string]func(w io.Writer) error{
	"endless headers":   endless("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("b", 1000)+"\r\n"),
	"one endless line":  endless("HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("b", 1000)),
	"endless status":    endless("HTTP/1.1 200 ", strings.Repeat("b", 1000)),
	"endless 103":       endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"),
	"endless body":      endless("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", strings.Repeat("[", 1000)),
	"endless chunks":    endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n[\r\n"),
	"endless extension": endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("b", 1000)),
	"endless trailers":  endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-A: "+strings.Repeat("b", 1000)+"\r\n"),
	"huge length":       endless("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000000000000000000\r\n\r\n[", ""),
	"huge Retry-After":  endless("HTTP/1.1 429 No\r\nContent-Length: 0\r\nRetry-After: "+strings.Repeat("9", 200_000)+"\r\n\r\n", ""),
	"a redirect":        endless("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /contacts\r\n\r\n", ""),
	"another protocol":  endless("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", strings.Repeat("b", 1000)),
	"silence":           endless("", ""),
	"no HTTP":           endless("", strings.Repeat("SSH-2.0 ", 1000)),
}

// endless writes head once, and then the rest until nobody reads.
func endless(head, rest string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for err == nil && rest != "" {
			_, err = io.WriteString(w, rest)
		}
		return err
	}
}

// raw answers a request by what write writes to its connection, and holds the connection
// until the client has gone.
func raw(write func(io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		if err = write(conn); err == nil {
			_, _ = io.Copy(io.Discard, buf) // ends when the client goes
		}
	}
}

// Law bounded: whatever a service answers to a read, a call or a lookup, it takes little of
// memory and processor, and no longer than the call has.
func TestHostileAnswers(t *testing.T) {
	ceiling.Need(t)
	cases := make(map[string]http.HandlerFunc)
	for name, body := range hostileBodies() {
		cases[name] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if name == "gzip" {
				w.Header().Set("Content-Encoding", "gzip")
			}
			_, _ = io.WriteString(w, body)
		}
		cases["refused with "+name] = status(422, body)
	}
	for name, write := range hostileHeaders {
		cases[name] = raw(write)
	}
	for name, h := range cases {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			conn := open(t, h)
			ceiling.Ceiling{CPU: 6 * time.Second, Memory: 96 << 20}.Check(t, func() {
				for _, try := range hostileTries(conn) {
					inTime(t, try)
				}
			})
		})
	}
}

// hostileTries are a read, calls and lookups of the CRM.
func hostileTries(conn *connector.Connection) (tries []func(context.Context, *testing.T) string) {
	m := mutation(`{"id":7,"email":"a"}`)
	for _, tl := range conn.Tools {
		name := tl.Spec().Name
		if r, ok := tl.(connector.Reader); ok {
			tries = append(tries, func(ctx context.Context, _ *testing.T) string {
				out, err := r.Read(ctx, m.Payload)
				return fmt.Sprintf("read %s: %.100s, %.200v", name, out, err)
			})
		}
		if mu, ok := tl.(connector.Mutator); ok {
			tries = append(tries, func(ctx context.Context, _ *testing.T) string {
				out, err := mu.Mutate(ctx, m)
				return fmt.Sprintf("call %s: %.100s, %.200v", name, out.Result, err)
			})
		}
		if rec, ok := tl.(connector.Reconciler); ok {
			tries = append(tries, func(ctx context.Context, t *testing.T) string {
				answer, err := rec.Reconcile(ctx, m)
				if answer.Verdict == connector.Happened && name == "marked" { // nothing holds the mark
					t.Errorf("%s is believed to have happened: %.200s", name, answer.Detail)
				}
				return fmt.Sprintf("lookup %s: %s %.100s, %.200v", name, answer.Verdict, answer.Detail, err)
			})
		}
	}
	return tries
}

// inTime makes one try, which has a quarter of a second to end. On a busy machine it takes seconds more of the time, but not
// of the processor, which the ceiling counts.
func inTime(t *testing.T, try func(context.Context, *testing.T) string) {
	t.Helper()
	const limit = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	said := try(ctx, t)
	if took := time.Since(start); took > limit+time.Minute {
		t.Errorf("it took %v: %s", took, said)
	}
}
