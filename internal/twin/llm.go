package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// LLM follows https://docs.anthropic.com/en/api/messages, messages-count-tokens and models-list,
// and https://platform.openai.com/docs/api-reference/chat/create, embeddings/create and
// models/list: every request that is answered is
// paid for, and the same request again is another answer. Tokens are counted for
// nothing. Anthropic wants x-api-key and a version, OpenAI a bearer token. Effects counts the answers to a text.
type LLM struct {
	// Answer is what is said to a text. Nil: which answer it is, and to what.
	Answer func(asked string) string

	sold int
}

// Authorized wants the key where the API has it, and nowhere else.
func (*LLM) Authorized(r *http.Request, _ []byte, secret string) bool {
	if anthropic(r) {
		return r.Header.Get("X-Api-Key") == secret && r.Header.Get("Anthropic-Version") != "" && r.Header.Get("Authorization") == ""
	}
	return r.Header.Get("Authorization") == "Bearer "+secret && r.Header.Get("X-Api-Key") == ""
}

// anthropic reports whether a request is to one of Anthropic's routes. Both have models.
func anthropic(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/v1/messages") || r.URL.Path == "/v1/models" && r.Header.Get("Anthropic-Version") != "" && r.Header.Get("X-Api-Key") != ""
}

// Change sells an answer.
func (l *LLM) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Model    string
		Messages []struct{ Role, Content string }
		Input    []string
	}
	bad := func() Reply {
		return Reply{Status: http.StatusBadRequest, Body: map[string]any{"type": "error", "error": map[string]string{"type": "invalid_request_error"}}}
	}
	chat := r.URL.Path == "/v1/chat/completions"
	if r.URL.Path == "/v1/embeddings" && json.Unmarshal(body, &p) == nil && p.Model != "" && len(p.Input) > 0 {
		return p.Input[0], func() Reply { return embeddings(p.Model, p.Input) }
	}
	if r.URL.Path == "/v1/messages/count_tokens" && json.Unmarshal(body, &p) == nil && len(p.Messages) > 0 {
		return "", func() Reply { return Reply{Status: http.StatusOK, Body: map[string]int{"input_tokens": len(body)}} }
	}
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

// embeddings returns a vector of each text.
func embeddings(model string, texts []string) Reply {
	var data []any
	for i, text := range texts {
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": []float64{float64(len(text)), -0.5}})
	}
	return Reply{Status: http.StatusOK, Body: map[string]any{"object": "list", "model": model, "data": data}}
}

// Read lists three models: at Anthropic in pages, at OpenAI at once.
func (*LLM) Read(r *http.Request) Reply {
	if r.URL.Path != "/v1/models" {
		return Reply{Status: http.StatusMethodNotAllowed}
	}
	names := []string{"m3", "m2", "m1"}
	var data []any
	list := func(names []string) []any {
		for _, id := range names {
			data = append(data, map[string]string{"id": id, "type": "model", "object": "model"})
		}
		return data
	}
	if !anthropic(r) {
		return Reply{Status: http.StatusOK, Body: map[string]any{"object": "list", "data": list(names)}}
	}
	for i, id := range names {
		if r.URL.Query().Get("after_id") == id {
			names = names[i+1:]
			break
		}
	}
	shown := names[:min(2, len(names))]
	return Reply{Status: http.StatusOK, Body: map[string]any{"data": list(shown), "has_more": len(names) > len(shown), "first_id": shown[0], "last_id": shown[len(shown)-1]}}
}
