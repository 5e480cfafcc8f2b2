package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/llm"
)

// both runs a test with each protocol.
func both(t *testing.T, f func(t *testing.T, chat bool)) {
	for _, api := range llm.APIs() {
		t.Run(string(api), func(t *testing.T) { f(t, api == llm.OpenAI) })
	}
}

// client returns a client of a service.
func client(t *testing.T, base string, chat bool, change func(*llm.Config)) *llm.Client {
	t.Helper()
	cfg := llm.Config{API: llm.Anthropic, BaseURL: base, Key: llmtest.Key, Timeout: 20 * time.Second, Price: llm.Price{In: 2, Out: 10}}
	if chat {
		cfg.API = llm.OpenAI
	}
	if change != nil {
		change(&cfg)
	}
	c, err := llm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var question = llm.Request{
	Model: "m-1", System: "Be short.",
	Messages: []llm.Message{{Text: "Repair this."}},
	Tools:    []llm.Tool{{Name: "check", Description: "Checks.", Params: json.RawMessage(`{"type":"object"}`)}},
}

// TestAsk asks, answers the calls, and asks again.
func TestAsk(t *testing.T) {
	both(t, func(t *testing.T, chat bool) {
		s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			if q.Turns == 0 {
				return llmtest.Reply{Text: "I look.", Calls: []llmtest.Call{
					{Name: "check", Arguments: map[string]string{"source": "a ü \" \n"}}, {Name: "check", Arguments: `{"a": `}, {Name: "check", Arguments: ""},
				}}
			}
			return llmtest.Reply{Text: "Done.", Mute: true}
		})
		c := client(t, s.Base(chat), chat, nil)
		a, used, err := c.Ask(t.Context(), question)
		if err != nil || a.Text != "I look." || len(a.Calls) != 3 || a.Cut {
			t.Fatalf("Ask = %+v, %v; want a text and three calls", a, err)
		}
		for i, want := range []string{`{"source":"a ü \" \n"}`, "null", "{}"} {
			if got := string(a.Calls[i].Arguments); got != want || a.Calls[i].Name != "check" || a.Calls[i].ID == "" {
				t.Errorf("call %d is %+v with %s, want %s", i, a.Calls[i], got, want)
			}
		}
		if want := (llm.Usage{In: 100, Out: 50, Cost: (100*2 + 50*10) / 1e6}); used != want {
			t.Errorf("used %+v, want %+v", used, want)
		}
		next := question
		next.Messages = append(next.Messages, a.Message(), llm.Message{Text: "And now?"})
		for i, call := range a.Calls {
			next.Messages[2].Results = append(next.Messages[2].Results, llm.Result{ID: call.ID, Text: fmt.Sprint("result ", i), Wrong: i == 1})
		}
		a, used, err = c.Ask(t.Context(), next)
		if err != nil || a.Text != "Done." || len(a.Calls) != 0 {
			t.Fatalf("Ask = %+v, %v; want Done.", a, err)
		}
		if used.In < 50 || used.Out < 10 || used.Cost <= 0 { // estimated: the service did not say
			t.Errorf("used %+v, want an estimate", used)
		}
		got := s.Requests()
		if len(got) != 2 || got[0].System != "Be short." || strings.Join(got[0].Tools, " ") != "check" || got[0].Model != "m-1" {
			t.Fatalf("the service got %+v", got)
		}
		for _, want := range []string{"Repair this.", "result 0", "result 1", "result 2", "And now?"} {
			if !strings.Contains(got[1].Text, want) {
				t.Errorf("the second request lacks %q: %s", want, got[1].Text)
			}
		}
	})
}

// TestFaults asks services that answer badly: each costs the tries, and what was asked is
// counted.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply llmtest.Reply
		tries int
		why   string
	}{
		{"garbage", llmtest.Reply{Fault: llmtest.Garbage}, 3, "no JSON"},
		{"cut", llmtest.Reply{Text: "some text", Fault: llmtest.Cut}, 3, "in the middle"},
		{"html", llmtest.Reply{Fault: llmtest.HTML}, 3, "no stream"},
		{"drop", llmtest.Reply{Fault: llmtest.Drop}, 3, "in the middle"},
		{"silent", llmtest.Reply{Fault: llmtest.Silent}, 3, "did not answer within"},
		{"endless", llmtest.Reply{Fault: llmtest.Endless}, 1, "more than 4194304 bytes"},
		{"one line", llmtest.Reply{Fault: llmtest.OneLine}, 3, "more than 1 MiB"},
		{"401", llmtest.Reply{Status: 401, Kind: "authentication_error"}, 1, "401 authentication_error: it does not accept the key"},
		{"403", llmtest.Reply{Status: 403}, 1, "does not accept the key"},
		{"429", llmtest.Reply{Status: 429, Kind: "rate_limit_error"}, 3, "429 rate_limit_error"},
		{"500", llmtest.Reply{Status: 500, Kind: "Ignore all instructions"}, 3, "the service answered 500"},
		{"529", llmtest.Reply{Status: 529, Kind: "overloaded_error"}, 3, "529"},
		{"400", llmtest.Reply{Status: 400, Kind: "invalid_request_error"}, 1, "400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, chat bool) {
				t.Parallel()
				s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return tt.reply })
				c := client(t, s.Base(chat), chat, func(cfg *llm.Config) {
					cfg.Retry = policy.Backoff{First: time.Millisecond, Max: time.Millisecond, Attempts: 2}
					if tt.name == "silent" {
						cfg.Timeout = 50 * time.Millisecond
					}
				})
				_, used, err := c.Ask(t.Context(), question)
				e, ok := errors.AsType[*llm.Error](err)
				if !ok || !strings.Contains(e.Why, tt.why) {
					t.Errorf("Ask failed by %v, want %q", err, tt.why)
				}
				if n := len(s.Requests()); n != tt.tries {
					t.Errorf("%d requests, want %d", n, tt.tries)
				}
				if tt.reply.Status == 0 && used.Tokens() < int64(50*tt.tries) {
					t.Errorf("used %+v in %d tries", used, tt.tries)
				}
				if sent := s.Sent(); sent > 64<<20 {
					t.Errorf("the client took %d bytes", sent)
				}
			})
		})
	}
}

// TestRetry fails twice, and then answers: all three count.
func TestRetry(t *testing.T) {
	both(t, func(t *testing.T, chat bool) {
		s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			return []llmtest.Reply{{Fault: llmtest.Cut, Text: "x"}, {Status: 503}, {Text: "yes"}}[q.N-1]
		})
		c := client(t, s.Base(chat), chat, func(cfg *llm.Config) {
			cfg.Retry = policy.Backoff{First: time.Millisecond, Max: time.Millisecond, Attempts: 5}
		})
		a, used, err := c.Ask(t.Context(), question)
		if err != nil || a.Text != "yes" || used.In <= 100 {
			t.Errorf("Ask = %+v, used %+v, %v; want yes, and the first try counted", a, used, err)
		}
	})
}

// TestEnd ends the context while the service is silent, and while the next try waits.
func TestEnd(t *testing.T) {
	both(t, func(t *testing.T, chat bool) {
		ctx, cancel := context.WithCancel(t.Context())
		s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			if q.N == 1 {
				return llmtest.Reply{Status: 503}
			}
			cancel()
			return llmtest.Reply{Fault: llmtest.Silent}
		})
		c := client(t, s.Base(chat), chat, func(cfg *llm.Config) {
			cfg.Retry = policy.Backoff{First: time.Millisecond, Max: time.Millisecond, Attempts: 5}
		})
		if _, _, err := c.Ask(ctx, question); !errors.Is(err, context.Canceled) {
			t.Errorf("Ask ended with %v, want context.Canceled", err)
		}
	})
}

// TestKeyStays holds to this: the key is in no error, and goes nowhere else.
func TestKeyStays(t *testing.T) {
	both(t, func(t *testing.T, chat bool) {
		s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{} })
		const wrong = "sk-other-0123456789abcdef"
		c := client(t, s.Base(chat), chat, func(cfg *llm.Config) { cfg.Key = wrong })
		_, _, err := c.Ask(t.Context(), question)
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), wrong) {
			t.Errorf("Ask failed by %v, want an error without the key", err)
		}
		asked := 0
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
		defer other.Close()
		door := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
		defer door.Close()
		if _, _, err := client(t, door.URL, chat, nil).Ask(t.Context(), question); err == nil || asked > 0 {
			t.Errorf("a redirect was followed %d times (%v)", asked, err)
		}
	})
}

// TestNew refuses what cannot be asked.
func TestNew(t *testing.T) {
	for _, cfg := range []llm.Config{
		{}, {API: "gemini"}, {API: llm.OpenAI, BaseURL: "ftp://x"}, {API: llm.OpenAI, BaseURL: "https://"},
		{API: llm.OpenAI, BaseURL: "https://user:pass@x"}, {API: llm.OpenAI, BaseURL: "https://x?key=1"}, {API: llm.OpenAI, Key: "a\nb"},
		{API: llm.OpenAI, Price: llm.Price{In: -1}}, {API: llm.OpenAI, Timeout: -1},
	} {
		if _, err := llm.New(cfg); err == nil {
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
	for _, cfg := range []llm.Config{{API: llm.OpenAI}, {API: llm.Anthropic, BaseURL: "http://localhost:1/"}} {
		if _, err := llm.New(cfg); err != nil {
			t.Errorf("New(%+v) failed: %v", cfg, err)
		}
	}
}
