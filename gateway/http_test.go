//go:build unix

package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
)

// A note is what the tool of the server adds.
type note struct{ Title, Body string }

// serveHTTP starts a server of the official SDK, whose notes are in a file of dir. The answer of the
// next create is cut after *cut bytes of its body; negative: it is whole.
func serveHTTP(t *testing.T, dir string, asJSON bool, cut *atomic.Int64) string {
	t.Helper()
	file := filepath.Join(dir, "effects")
	s := sdk.NewServer(&sdk.Implementation{Name: "notes", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "create"}, func(_ context.Context, _ *sdk.CallToolRequest, n map[string]any) (*sdk.CallToolResult, any, error) {
		row, _ := json.Marshal(note{fmt.Sprint(n["title"]), fmt.Sprint(n["body"])})
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		_, err = f.Write(append(row, '\n'))
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "created"}}}, nil, err
	})
	sdk.AddTool(s, &sdk.Tool{Name: "list"}, func(context.Context, *sdk.CallToolRequest, map[string]any) (*sdk.CallToolResult, any, error) {
		text, _ := os.ReadFile(file)
		rows := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		list := []json.RawMessage{}
		for _, r := range rows {
			if len(r) > 0 {
				list = append(list, r)
			}
		}
		return nil, map[string]any{"notes": list}, nil
	})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{JSONResponse: asJSON})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if n := cut.Load(); n >= 0 && bytes.Contains(body, []byte(`"create"`)) {
			cut.Store(-1)
			whole := httptest.NewRecorder()
			h.ServeHTTP(whole, r)
			maps.Copy(w.Header(), whole.Header())
			w.WriteHeader(whole.Code)
			_, _ = w.Write(whole.Body.Bytes()[:n])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestServerByHTTP loses the answers of a server by HTTP at many bytes of their bodies.
func TestServerByHTTP(t *testing.T) {
	step := 23
	if *everyByte {
		step = 1
	}
	for _, asJSON := range []bool{true, false} {
		for _, isPaired := range []bool{true, false} {
			t.Run(fmt.Sprintf("json=%t,paired=%t", asJSON, isPaired), func(t *testing.T) {
				t.Parallel()
				var cut atomic.Int64
				cut.Store(-1)
				s := setup{Dir: t.TempDir(), Agent: "a"}
				s.URL = serveHTTP(t, s.Dir, asJSON, &cut)
				if isPaired {
					s.Rules = paired()
				}
				d := open(t, s, nil)
				questions := 0
				for at := 0; at < 70; at += step {
					title := fmt.Sprintf("n%d", at)
					cut.Store(int64(at))
					r := d.make(title)
					n := effects(t, s.Dir, title)
					want := "applied"
					if !isPaired {
						want = "indeterminate"
						questions++
					}
					if n != 1 || r.state() != want {
						t.Errorf("byte %d: %d effects, %s", at, n, r.raw)
					}
					if again := d.make(title); again.state() != want || effects(t, s.Dir, title) != 1 {
						t.Errorf("byte %d, again: %s", at, again.raw)
					}
				}
				list, _, err := d.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
				if err != nil || len(list) != questions {
					t.Errorf("%d questions, want %d: %v", len(list), questions, err)
				}
			})
		}
	}
}

// A server that cannot be reached is known to have done nothing, and is tried again.
func TestServerDown(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", URL: "http://127.0.0.1:1", Rules: paired()}
	d := open(t, s, nil)
	if r := d.make("x"); !r.Result.IsError || r.Error != nil || r.state() != "failed" {
		t.Errorf("%s", r.raw)
	}
	if r, _ := d.ask(5, "tools/list", `{}`); len(r.Result.Tools) != 1 {
		t.Errorf("%s", r.raw)
	}
}
