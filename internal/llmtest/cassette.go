package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A Recorded turn is a request with its answer, as a cassette has it: without headers and ids, and
// with what is secret scrubbed.
type Recorded struct {
	Chat   bool
	Model  string
	System string
	Text   string // of all messages of the host
	Reply  Reply
}

// A Recorder stands between a client and a service, and writes what both say to a cassette. Nothing
// is on disk before it is scrubbed.
type Recorder struct {
	upstream string // without a path
	file     string
	secrets  []string

	mu    sync.Mutex
	turns []Recorded
	err   error
}

// NewRecorder returns a recorder of a service. Secrets, and the keys that clients send, are scrubbed
// wherever they are.
func NewRecorder(upstream, file string, secrets ...string) *Recorder {
	return &Recorder{upstream: strings.TrimSuffix(upstream, "/"), file: file, secrets: secrets}
}

// Err returns why a turn was not written.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// ServeHTTP passes a request on, and its answer back.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(io.LimitReader(in.Body, 32<<20))
	if err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	out, err := http.NewRequestWithContext(in.Context(), in.Method, r.upstream+in.URL.Path, bytes.NewReader(body))
	if err != nil {
		http.Error(w, "the request cannot be made", http.StatusBadRequest)
		return
	}
	out.Header = in.Header.Clone()
	out.Header.Del("Accept-Encoding") // what is recorded is text
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, "the service cannot be reached", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	var said bytes.Buffer
	_, err = io.Copy(io.MultiWriter(w, &said), io.LimitReader(resp.Body, 32<<20))
	keys := []string{in.Header.Get("X-Api-Key"), strings.TrimPrefix(in.Header.Get("Authorization"), "Bearer ")}
	r.keep(strings.HasSuffix(in.URL.Path, "/chat/completions"), body, resp.StatusCode, said.Bytes(), err, keys)
}

// keep adds a turn to the cassette.
func (r *Recorder) keep(chat bool, body []byte, status int, said []byte, err error, keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, bad := read(chat, body)
	if err == nil {
		err = bad
	}
	if err == nil {
		t := Recorded{Chat: chat, Model: q.Model, System: q.System, Text: q.Text, Reply: heard(status, said)}
		r.turns = append(r.turns, r.scrubbed(t, append(keys, r.secrets...)))
		err = writeCassette(r.file, r.turns)
	}
	if r.err == nil {
		r.err = err
	}
}

// heard reads an answer of either protocol. The parts of a text are joined, so that a secret that
// was cut in two is found.
func heard(status int, said []byte) (a Reply) {
	if status != http.StatusOK {
		var e struct{ Error struct{ Type string } }
		_ = json.Unmarshal(said, &e) // a page of somebody in between has no type
		return Reply{Status: status, Kind: e.Error.Type}
	}
	arguments := map[int]*strings.Builder{}
	var order []int
	call := func(i int, name, more string) {
		if arguments[i] == nil {
			arguments[i], order = new(strings.Builder), append(order, i)
			a.Calls = append(a.Calls, Call{Name: name})
		}
		arguments[i].WriteString(more)
	}
	for line := range strings.Lines(string(said)) {
		data, ok := strings.CutPrefix(line, "data:")
		var e struct {
			Index   int
			Block   struct{ Type, Name string } `json:"content_block"`
			Message struct{ Usage usage }
			Usage   usage
			Delta   struct {
				Text string
				JSON string `json:"partial_json"`
			}
			Choices []struct {
				Delta struct {
					Content string
					Calls   []struct {
						Index    int
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
		}
		if !ok || json.Unmarshal([]byte(data), &e) != nil {
			continue
		}
		a.Text += e.Delta.Text
		if e.Block.Type == "tool_use" || e.Delta.JSON != "" {
			call(e.Index, e.Block.Name, e.Delta.JSON)
		}
		for _, c := range e.Choices {
			a.Text += c.Delta.Content
			for _, t := range c.Delta.Calls {
				call(t.Index, t.Function.Name, t.Function.Arguments)
			}
		}
		for _, u := range []usage{e.Message.Usage, e.Usage} {
			a.In, a.Out = max(a.In, u.In, u.Prompt), max(a.Out, u.Out, u.Completion)
		}
	}
	for n, i := range order {
		a.Calls[n].Arguments = arguments[i].String()
	}
	return a
}

type usage struct {
	In         int64 `json:"input_tokens"`
	Out        int64 `json:"output_tokens"`
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// private is what keys, and ids of accounts, look like.
var private = regexp.MustCompile(`\b(sk|pk|rk|key|org|acct|account|proj|user|workspace|wrkspc|req|keep)[-_][A-Za-z0-9_-]{6,}|(?i:bearer)\s+[A-Za-z0-9._~+/-]{8,}=*`)

// scrubbed returns a turn without secrets.
func (r *Recorder) scrubbed(t Recorded, secrets []string) Recorded {
	clean := func(s string) string {
		for _, secret := range secrets {
			if len(secret) > 3 {
				s = strings.ReplaceAll(s, secret, "SCRUBBED")
			}
		}
		return private.ReplaceAllString(s, "SCRUBBED")
	}
	t.System, t.Text, t.Reply.Text = clean(t.System), clean(t.Text), clean(t.Reply.Text)
	for i, c := range t.Reply.Calls {
		t.Reply.Calls[i].Name = clean(c.Name)
		t.Reply.Calls[i].Arguments = clean(c.arguments())
	}
	return t
}

// writeCassette writes a cassette whole.
func writeCassette(file string, turns []Recorded) error {
	text, err := json.MarshalIndent(turns, "", "  ")
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(temp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, file)
}

// Replay starts a service that answers as a cassette has it, turn by turn. A request too many fails
// the test.
func Replay(tb testing.TB, file string) *Server {
	tb.Helper()
	text, err := os.ReadFile(file)
	var turns []Recorded
	if err == nil {
		err = json.Unmarshal(text, &turns)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return Start(tb, func(q Request) Reply {
		if q.N > len(turns) {
			tb.Errorf("request %d, and the cassette has %d turns", q.N, len(turns))
			return Reply{Status: http.StatusGone, Kind: "gone"}
		}
		if t := turns[q.N-1]; t.Chat != q.Chat {
			tb.Error(fmt.Errorf("request %d is of the other protocol", q.N))
		}
		return turns[q.N-1].Reply
	})
}
