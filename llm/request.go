package llm

import "encoding/json"

// maxTokens is how long an answer may be: what all models of Anthropic can do.
const maxTokens = 8192

// messagesRequest returns the body of a request of Anthropic's protocol.
func messagesRequest(q Request) map[string]any {
	messages := []any{}
	for _, m := range q.Messages {
		role := "user"
		if m.Model {
			role = "assistant"
		}
		content := []any{}
		for _, r := range m.Results {
			content = append(content, map[string]any{"type": "tool_result", "tool_use_id": r.ID, "content": r.Text, "is_error": r.Wrong})
		}
		if m.Text != "" {
			content = append(content, map[string]any{"type": "text", "text": m.Text})
		}
		for _, c := range m.Calls {
			content = append(content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object(c.Arguments)})
		}
		if len(content) > 0 {
			messages = append(messages, map[string]any{"role": role, "content": content})
		}
	}
	out := map[string]any{"model": q.Model, "max_tokens": maxTokens, "messages": messages, "stream": true}
	if q.System != "" {
		out["system"] = q.System
	}
	tools := []any{}
	for _, t := range q.Tools {
		tools = append(tools, map[string]any{"name": t.Name, "description": t.Description, "input_schema": t.Params})
	}
	if len(tools) > 0 {
		out["tools"] = tools
	}
	return out
}

// object returns arguments that the model wrote if they are an object, which is what the
// protocol takes.
func object(arguments json.RawMessage) any {
	var v map[string]any
	if json.Unmarshal(arguments, &v) != nil || v == nil {
		return map[string]any{}
	}
	return arguments
}

// chatRequest returns the body of a request for a chat completion.
func chatRequest(q Request) map[string]any {
	messages := []any{}
	if q.System != "" {
		messages = append(messages, map[string]any{"role": "system", "content": q.System})
	}
	for _, m := range q.Messages {
		for _, r := range m.Results {
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": r.ID, "content": r.Text})
		}
		switch {
		case m.Model && len(m.Calls) > 0:
			calls := []any{}
			for _, c := range m.Calls {
				calls = append(calls, map[string]any{"id": c.ID, "type": "function",
					"function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}})
			}
			messages = append(messages, map[string]any{"role": "assistant", "content": m.Text, "tool_calls": calls})
		case m.Model:
			messages = append(messages, map[string]any{"role": "assistant", "content": m.Text})
		case m.Text != "":
			messages = append(messages, map[string]any{"role": "user", "content": m.Text})
		}
	}
	out := map[string]any{"model": q.Model, "messages": messages, "stream": true,
		"stream_options": map[string]any{"include_usage": true}}
	tools := []any{}
	for _, t := range q.Tools {
		tools = append(tools, map[string]any{"type": "function",
			"function": map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Params}})
	}
	if len(tools) > 0 {
		out["tools"] = tools
	}
	return out
}
