package llmtest

import (
	"encoding/json"
	"errors"
	"strings"
)

// A message is one of either protocol.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
	CallID string `json:"tool_call_id"`
}

// A block is a part of the content of a message.
type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	UseID   string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	Input   json.RawMessage `json:"input"`
}

// read reads a request as strictly as services do: every call of the model is answered by the
// next message, and nothing else is.
func read(chat bool, body []byte) (q Request, err error) {
	var p struct {
		Model     string    `json:"model"`
		System    string    `json:"system"`
		MaxTokens int       `json:"max_tokens"`
		Stream    bool      `json:"stream"`
		Messages  []message `json:"messages"`
		Tools     []struct {
			Name     string `json:"name"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return q, err
	}
	if p.Model == "" || !p.Stream || len(p.Messages) == 0 || !chat && p.MaxTokens < 1 {
		return q, errors.New("model, stream, messages and max_tokens are needed")
	}
	q = Request{Chat: chat, Model: p.Model, System: p.System, Body: body}
	for _, t := range p.Tools {
		q.Tools = append(q.Tools, t.Name+t.Function.Name)
	}
	open := map[string]bool{}
	for _, m := range p.Messages {
		text, err := m.read(open)
		if err != nil {
			return q, err
		}
		switch m.Role {
		case "system":
			q.System = text
		case "assistant":
			q.Turns++
		default:
			q.Text, q.Last = q.Text+text+"\n", text
		}
	}
	if len(open) > 0 {
		return q, errors.New("a call has no result")
	}
	return q, nil
}

// read returns the text of a message. open are the calls that have no result yet.
func (m message) read(open map[string]bool) (string, error) {
	if m.Role == "assistant" && len(open) > 0 {
		return "", errors.New("a call has no result")
	}
	for _, c := range m.Calls {
		open[c.ID] = true
	}
	if m.CallID != "" {
		if !open[m.CallID] {
			return "", errors.New("a result of no call")
		}
		delete(open, m.CallID)
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var blocks []block
	if err := json.Unmarshal(m.Content, &blocks); err != nil {
		return "", err
	}
	var all strings.Builder
	for _, b := range blocks {
		switch b.Type {
		case "tool_use":
			if len(b.Input) == 0 || b.Input[0] != '{' {
				return "", errors.New("the input of a call is no object")
			}
			open[b.ID] = true
		case "tool_result":
			if !open[b.UseID] {
				return "", errors.New("a result of no call")
			}
			delete(open, b.UseID)
			var result string
			_ = json.Unmarshal(b.Content, &result) // a list of blocks is not sent by us
			all.WriteString(result)
		}
		all.WriteString(b.Text)
	}
	return all.String(), nil
}
