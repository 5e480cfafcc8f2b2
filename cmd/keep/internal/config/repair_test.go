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

const someLLM = "[llm.claude]\napi = 'anthropic'\nprice = { in = 3, out = 15 }\n"

func TestRepair(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, someLLM+"[repair]\nprovider = 'claude'\nmodel = 'm-1'\n", "KEEP_REPAIR_ACTIVATE=safe", "KEEP_REPAIR_COST=0.5")
	if err != nil || len(cfg.Warnings) > 0 {
		t.Fatal(err, cfg.Warnings)
	}
	want := &config.Repair{
		LLM: llm.Config{API: llm.Anthropic, Price: llm.Price{In: 3, Out: 15}}, Model: "m-1", Activate: law.WhenSafe, Replay: 7 * 24 * time.Hour,
		Limits: law.Limits{Attempts: 3, Tokens: 200_000, Cost: 0.5, PerDay: 10},
	}
	if diff := cmp.Diff(want, cfg.Repair); diff != "" {
		t.Error(diff)
	}
	for text, warns := range map[string]bool{"": false, someLLM: false, "[repair]\n": false, "[repair]\nattempts = 2\n": true} {
		cfg, err := load(t, text)
		if err != nil || cfg.Repair != nil || len(cfg.Warnings) > 0 != warns {
			t.Errorf("%q: %+v, %v, %v; want no repair, a warning: %t", text, cfg.Repair, cfg.Warnings, err, warns)
		}
	}
}

func TestRepairProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"provider = 'claud'\nmodel = 'm'":                               `keep.toml:5:1: repair.provider: there is no [llm.claud] (did you mean claude?)`,
		"provider = 'claude'":                                           "repair.model: is missing",
		"provider = 'claude'\nmodel = 'm'\nattempts = 0":                "repair.attempts: must be from 1 to 10",
		"provider = 'claude'\nmodel = 'm'\nattempts = 11":               "repair.attempts: must be from 1 to 10",
		"provider = 'claude'\nmodel = 'm'\ntokens = 0":                  "repair.tokens: must be from 1",
		"provider = 'claude'\nmodel = 'm'\ncost = -1":                   "repair.cost: must not be negative",
		"provider = 'free'\nmodel = 'm'\ncost = 1":                      "repair.cost: has no effect without llm.free.price",
		"provider = 'claude'\nmodel = 'm'\nper_day = 0":                 "repair.per_day: must be from 1",
		"provider = 'claude'\nmodel = 'm'\nreplay = '0s'":               "repair.replay: must be more than zero",
		"provider = 'claude'\nmodel = 'm'\nactivate = 'always'":         `repair.activate: "always" is none: want "ask" or "safe"`,
		"provider = 'claude'\nmodel = 'm'\nretries = 2":                 "repair.retries: unknown key",
		"activate = 'always'":                                           `want "ask" or "safe"`,
		"provider = 'claude'\nmodel = 'm'\n[repair.limits]\ntokens = 1": "repair.limits: unknown key",
	} {
		_, err := load(t, someLLM+"[repair]\n"+text+"\n[llm.free]\napi = 'openai'\n")
		if e, ok := errors.AsType[*config.Error](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
