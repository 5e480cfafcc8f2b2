package llm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/llm"
)

// TestConversationEnds has models that answer nothing that can be used: what is wrong is said, and a limit holds over the
// tries of one request, too.
func TestConversationEnds(t *testing.T) {
	propose := []llmtest.Call{{Name: "check", Arguments: map[string]string{"x": "y"}}}
	for _, c := range []struct {
		name     string
		reply    llmtest.Reply
		why      string
		requests int
		called   bool
		final    bool
	}{
		{"no key", llmtest.Reply{Status: 403}, "does not accept the key", 1, false, true},
		{"broken arguments", llmtest.Reply{Calls: []llmtest.Call{{Name: "check", Arguments: "{\"x"}}}, "arguments that are no JSON, 3 times", 3, true, false},
		{"cut at its length", llmtest.Reply{Calls: propose, Long: true}, "proposed nothing in 4 answers", 4, false, false},
		{"cut before it called", llmtest.Reply{Text: "Let me think.", Long: true}, "proposed nothing in 4 answers", 4, false, false},
		{"no call", llmtest.Reply{Text: "I cannot."}, "answered without a proposal", 1, false, false},
		{"whole", llmtest.Reply{Calls: propose}, "", 1, true, false},
		{"breaks, and costs", llmtest.Reply{Fault: llmtest.Cut, Text: "x"}, "; it is not asked again: enough", 2, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, chat bool) {
				s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return c.reply })
				waits := 0
				model := client(t, s.Base(chat), chat, func(cfg *llm.Config) {
					cfg.Retry = policy.Backoff{First: time.Millisecond, Max: time.Millisecond, Attempts: 9}
					cfg.Waits = func(*llm.Error, time.Duration) { waits++ }
				})
				called, first := false, int64(0)
				talk := llm.Conversation{Model: model, Turns: 4, Stop: func(u llm.Usage) string {
					if first == 0 {
						first = u.Tokens()
					}
					if c.reply.Fault == llmtest.Cut && first > 0 && u.Tokens() >= 2*first {
						return "enough"
					}
					return ""
				}, Call: func(_ context.Context, call llm.Call) (llm.Result, bool, error) {
					called = true
					return llm.Result{}, string(call.Arguments) != "null", nil
				}}
				end, err := talk.Run(t.Context(), question)
				if n := len(s.Requests()); err != nil || !strings.Contains(end.Why, c.why) || (end.Why == "") != (c.why == "") || n != c.requests || called != c.called || end.Final != c.final {
					t.Errorf("%+v, %v after %d requests; called: %t", end, err, n, called)
				}
				if c.reply.Fault == llmtest.Cut && waits != 1 {
					t.Errorf("%d waits were told", waits)
				}
			})
		})
	}
}

// TestLastError has the time end while a busy service is waited for: the error says that, and what the service said.
func TestLastError(t *testing.T) {
	both(t, func(t *testing.T, chat bool) {
		s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Status: 429} })
		ctx, cancel := context.WithCancel(t.Context())
		c := client(t, s.Base(chat), chat, func(cfg *llm.Config) {
			cfg.Retry = policy.Backoff{First: time.Hour, Max: time.Hour, Attempts: 9}
			cfg.Waits = func(*llm.Error, time.Duration) { cancel() }
		})
		_, _, err := c.Ask(ctx, question)
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Status != 429 || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
