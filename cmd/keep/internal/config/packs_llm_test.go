package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/twin"
)

// Each tool of the pack for language models asks its route with the key where that service has it;
// what is paid for is asked for once, and what is free costs nothing.
func TestLLMPack(t *testing.T) {
	t.Parallel()
	service, err := twin.Start(new(twin.LLM))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	for _, tt := range []struct {
		base, tool, params string
		cost               bool
		want               string // a part of the result
		sold               string // the effect, if it is paid for
	}{
		{"", "messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"one"}]}`, true, `"stop_reason":"end_turn"`, "one"},
		{"", "countTokens", `{"model":"m","messages":[{"role":"user","content":"free"}]}`, false, `"input_tokens":`, ""},
		{"", "models", `{}`, false, `"id":"m1"`, ""}, // on the second page
		{"/v1", "chat", `{"model":"m","messages":[{"role":"user","content":"two"}]}`, true, `"choices":`, "two"},
		{"/v1", "embeddings", `{"model":"m","input":["three","four"],"dimensions":2}`, true, `"index":1`, "three"},
		{"/v1", "chatModels", `{}`, false, `"id":"m3"`, ""},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			ofAccount := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = \"llm\"\nbase_url = \"http://%s%s\"\naccount = \"svc\"\n", service.Addr(), tt.base), service.Secret)
			for _, tool := range ofAccount.Tools {
				if tool.Spec().Name != tt.tool || tt.cost {
					continue
				}
				if raw, err := tool.(connector.Reader).Read(t.Context(), json.RawMessage(tt.params)); err != nil || !strings.Contains(string(raw), tt.want) {
					t.Errorf("with an account: %s, %v; want %s", raw, err, tt.want)
				}
			}
			conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = \"llm\"\nbase_url = \"http://%s%s\"\nsecret = \"${secret:svc}\"\n", service.Addr(), tt.base), service.Secret)
			n := 0
			for _, tool := range conn.Tools {
				if tool.Spec().Name != tt.tool {
					continue
				}
				n++
				if tool.Spec().Cost != tt.cost {
					t.Errorf("cost is %v", tool.Spec().Cost)
				}
				raw, err := tool.(connector.Reader).Read(t.Context(), json.RawMessage(tt.params))
				if err != nil || !strings.Contains(string(raw), tt.want) {
					t.Errorf("%s, %v; want %s", raw, err, tt.want)
				}
			}
			if n != 1 {
				t.Fatalf("%d tools of that name", n)
			}
			if tt.sold != "" && service.Effects(tt.sold) != 1 {
				t.Errorf("%q was sold %d times", tt.sold, service.Effects(tt.sold))
			}
		})
	}
	if service.Effects("free") != 0 {
		t.Error("counting tokens was sold")
	}
}
