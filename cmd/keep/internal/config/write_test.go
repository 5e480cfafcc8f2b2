package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

const twoLLMs = "[llm.a]\napi = 'anthropic'\nprice = { in = 3, out = 15 }\n[llm.b]\napi = 'openai'\n"

func TestWrite(t *testing.T) {
	t.Parallel()
	limits := law.Limits{Attempts: 3, Tokens: 200_000}
	for text, want := range map[string]config.Write{
		"": {Limits: limits, Questions: 3, Time: 10 * time.Minute},
		"[llm.b]\napi = 'openai'\n[write]\nmodel = 'm'\nquestions = 0": {Provider: "b", LLM: llm.Config{API: llm.OpenAI}, Model: "m",
			Limits: limits, Time: 10 * time.Minute},
		twoLLMs + "[repair]\nprovider = 'a'\nmodel = 'r'\ntokens = 5000\ncost = 2": {Provider: "a", LLM: llm.Config{API: llm.Anthropic, Price: llm.Price{In: 3, Out: 15}},
			Model: "r", Limits: law.Limits{Attempts: 3, Tokens: 5000, Cost: 2}, Questions: 3, Time: 10 * time.Minute},
		twoLLMs + "[repair]\nprovider = 'a'\nmodel = 'r'\n[write]\nprovider = 'b'\nmodel = 'w'\ntokens = 7": {Provider: "b", LLM: llm.Config{API: llm.OpenAI},
			Model: "w", Limits: law.Limits{Attempts: 3, Tokens: 7}, Questions: 3, Time: 10 * time.Minute},
		twoLLMs: {Limits: limits, Questions: 3, Time: 10 * time.Minute},
		twoLLMs + "[write]\nprovider = 'a'\nmodel = 'm'\ncost = 0.5\ntime = '1m'": {Provider: "a", Model: "m", Questions: 3, Time: time.Minute,
			LLM: llm.Config{API: llm.Anthropic, Price: llm.Price{In: 3, Out: 15}}, Limits: law.Limits{Attempts: 3, Tokens: 200_000, Cost: 0.5}},
	} {
		cfg, err := load(t, text+"\n")
		if err != nil || len(cfg.Warnings) > 0 {
			t.Errorf("%q: %v %v", text, err, cfg.Warnings)
			continue
		}
		if diff := cmp.Diff(want, cfg.Write); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"provider = 'c'":              "write.provider: there is no [llm.c]",
		"questions = 4":               "write.questions: must be from 0 to 3",
		"attempts = 0":                "write.attempts: must be from 1 to 10",
		"tokens = 0":                  "write.tokens: must be from 1",
		"cost = -1":                   "write.cost: must not be negative",
		"provider = 'b'\ncost = 1":    "write.cost: has no effect without llm.b.price",
		"time = '0s'":                 "write.time: must be more than zero",
		"time = '3h'":                 "write.time: must be more than zero, and 2h at most",
		"provider = 'a'\nretries = 2": "write.retries: unknown key",
	} {
		_, err := load(t, twoLLMs+"[write]\n"+text+"\n")
		if e, ok := errors.AsType[*config.Error](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
