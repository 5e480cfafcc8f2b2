package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// LLM follows https://docs.anthropic.com/en/api/messages and
// https://platform.openai.com/docs/api-reference/chat/create: every request that is answered is
// paid for, and the same request again is another answer. Messages want x-api-key and a
// version, chat a bearer token. Effects counts the answers to a text.
type LLM struct {
	// Answer is what is said to a text. Nil: which answer it is, and to what.
	Answer func(asked string) string

	sold int
}

// Authorized wants the key where the API has it, and nowhere else.
func (*LLM) Authorized(r *http.Request, _ []byte, secret string) bool {
	if r.URL.Path == "/v1/messages" {
		return r.Header.Get("X-Api-Key") == secret && r.Header.Get("Anthropic-Version") != "" && r.Header.Get("Authorization") == ""
	}
	return r.Header.Get("Authorization") == "Bearer "+secret && r.Header.Get("X-Api-Key") == ""
}

// Change sells an answer.
func (l *LLM) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	bad := func() Reply {
		return Reply{Status: http.StatusBadRequest, Body: map[string]any{"type": "error", "error": map[string]string{"type": "invalid_request_error"}}}
	}
	chat := r.URL.Path == "/v1/chat/completions"
	if json.Unmarshal(body, &p) != nil || len(p.Messages) == 0 || p.Model == "" || !chat && r.URL.Path != "/v1/messages" {
		return "", bad
	}
	asked := p.Messages[len(p.Messages)-1].Content
	return asked, func() Reply {
		l.sold++
		id, text := fmt.Sprintf("msg_%d", l.sold), fmt.Sprintf("answer %d to: %s", l.sold, asked)
		if l.Answer != nil {
			text = l.Answer(asked)
		}
		if chat {
			return Reply{Status: http.StatusOK, Body: map[string]any{"id": id, "object": "chat.completion", "model": p.Model,
				"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]string{"role": "assistant", "content": text}}}}}
		}
		return Reply{Status: http.StatusOK, Body: map[string]any{"id": id, "type": "message", "role": "assistant", "model": p.Model,
			"content": []any{map[string]string{"type": "text", "text": text}}, "stop_reason": "end_turn"}}
	}
}

// Read answers that there is nothing to read.
func (*LLM) Read(*http.Request) Reply { return Reply{Status: http.StatusMethodNotAllowed} }
