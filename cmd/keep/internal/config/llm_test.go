package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/llm"
)

func TestLLM(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `[llm.claude]
api = "anthropic"
key = "${secret:claude}"
price = { in = 3, out = 15.5 }
[llm.local]
api = "openai"
base_url = "http://127.0.0.1:11434/v1"
timeout = "5m"
`, "KEEP_SECRET_CLAUDE=sk-ant-123456", "KEEP_LLM_CLAUDE_TIMEOUT=30s")
	if err != nil || len(cfg.Warnings) > 0 || len(cfg.Missing) > 0 {
		t.Fatal(err, cfg.Warnings, cfg.Missing)
	}
	want := map[string]llm.Config{
		"claude": {API: llm.Anthropic, Key: "sk-ant-123456", Timeout: 30 * time.Second, Price: llm.Price{In: 3, Out: 15.5}},
		"local":  {API: llm.OpenAI, BaseURL: "http://127.0.0.1:11434/v1", Timeout: 5 * time.Minute},
	}
	if diff := cmp.Diff(want, cfg.LLMs); diff != "" {
		t.Error(diff)
	}
}

func TestLLMProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"key = '${secret:x}'":                              "llm.a.api: is missing",
		"api = 'gemini'":                                   `llm.a.api: "gemini" is none: want anthropic or openai`,
		"api = 'openai'\nbase_url = 'api.openai.com'":      "keep.toml:3:1: llm.a.base_url: want https://",
		"api = 'openai'\nbase_url = 'https://u:p@x'":       "llm.a.base_url: want https://",
		"api = 'openai'\nprice = { in = -1 }":              "llm.a.price: must not be negative",
		"api = 'openai'\ntimeout = '0s'":                   "llm.a.timeout: must be more than zero",
		"api = 'openai'\nmodel = 'x'":                      "llm.a.model: unknown key",
		"api = 'openai'\n[llm.'a b']\napi = 'openai'":      "is no name",
		"api = 'openai'\nprice = { in = 1, cached = 0.1 }": "llm.a.price.cached: unknown key",
	} {
		_, err := load(t, "[llm.a]\n"+text+"\n", "KEEP_SECRET_X=sk-123456")
		if e, ok := errors.AsType[*config.Error](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"api = 'openai'\nkey = 'sk-plain-123456'":           "looks like a secret in plain text",
		"api = 'openai'\nbase_url = 'http://example.com/v'": "can be read on the way",
	} {
		cfg, err := load(t, "[llm.a]\n"+text+"\n")
		if err != nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), want) {
			t.Errorf("%q: %v, warnings %v, want %q", text, err, cfg.Warnings, want)
		}
		if strings.Contains(cfg.Warnings[0].String(), "sk-plain") {
			t.Errorf("%q: the warning shows the key", text)
		}
	}
	if cfg, err := load(t, "[llm.a]\napi = 'openai'\nkey = '${secret:gone}'\n"); err != nil || len(cfg.Missing) != 1 {
		t.Errorf("a key that is not there: %v, missing %v; want one", err, cfg.Missing)
	}
}
