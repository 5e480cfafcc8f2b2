package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/keep-run/keep/connector"
)

// TextOf returns the text of a result of a tool.
func TextOf(result json.RawMessage) string {
	var r struct {
		Content []struct {
			Type, Text string
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	var texts []string
	for _, c := range r.Content {
		if c.Type == "text" {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// receipt returns what is kept of a result: all of it, unless it is too large.
func (t *tool) receipt(result json.RawMessage) connector.Receipt {
	if !t.whole {
		return t.plain(result)
	}
	if len(result) > t.limit {
		cut, _ := json.Marshal(map[string]any{"content": []any{
			map[string]string{"type": "text", "text": shorten(TextOf(result), t.limit/2)},
			map[string]string{"type": "text", "text": fmt.Sprintf("(The call was made. Its result of %d bytes was cut: at most %s are kept.)", len(result), bytesText(t.limit))},
		}})
		return connector.Receipt{Result: cut, Warning: fmt.Sprintf("the result of %d bytes was cut", len(result))}
	}
	if connector.CheckNumbers(result) != nil {
		result, _ = json.Marshal(map[string]string{rawMember: string(result)})
	}
	return connector.Receipt{Result: result}
}

// listed returns a result whose content is a list. Of one that is something else, which no client takes, it is one text.
func listed(result json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(result, &all) != nil || len(all["content"]) == 0 || all["content"][0] == '[' {
		return result
	}
	text := string(all["content"])
	_ = json.Unmarshal(all["content"], &text) // what is no text stays as it is written
	all["content"], _ = json.Marshal([]any{map[string]string{"type": "text", "text": text}})
	out, err := json.Marshal(all)
	if err != nil {
		return result
	}
	return out
}

// plain returns what a script gets of a result.
func (t *tool) plain(result json.RawMessage) connector.Receipt {
	value, err := scriptValue(result)
	switch {
	case err != nil:
		return connector.Receipt{Warning: fmt.Sprintf("the call was made; its result can't be kept: %v", err)}
	case len(value) > t.limit:
		return connector.Receipt{Warning: fmt.Sprintf("the call was made; its result of %d bytes is larger than the %s that are kept", len(value), bytesText(t.limit))}
	}
	return connector.Receipt{Result: value}
}

// scriptValue returns what a script gets of a result of a tool: its structured content, else the
// JSON of its one text, else its texts. Of a result without any it is the content.
func scriptValue(result json.RawMessage) (json.RawMessage, error) {
	if !utf8.Valid(result) { // two texts of it could become one
		return nil, errors.New("the result is not UTF-8")
	}
	value, err := bodyOf(result)
	if err != nil {
		var r struct{ Content json.RawMessage }
		if text := TextOf(result); text != "" {
			value, err = json.Marshal(text)
		} else if err = json.Unmarshal(result, &r); err == nil {
			value = r.Content
		}
	}
	if err == nil {
		err = connector.CheckNumbers(value)
	}
	return value, err
}

// rawMember holds a result that is kept as a text, since no record may have its numbers.
const rawMember = "keep/raw"

// Unwrap returns the result of a tool as its server gave it, from what a record has: also one
// that a person typed in, who need not know the form.
func Unwrap(result json.RawMessage) json.RawMessage {
	var r map[string]json.RawMessage
	var raw string
	if json.Unmarshal(result, &r) == nil {
		if len(r) == 1 && json.Unmarshal(r[rawMember], &raw) == nil && json.Valid([]byte(raw)) {
			return json.RawMessage(raw)
		}
		if r["content"] != nil {
			return withoutKeep(result) // earlier versions kept what a server said in Keep's names
		}
	}
	return rowResult(result)
}

// rowResult returns the result that a row makes which a lookup found, or a person's word.
func rowResult(row json.RawMessage) json.RawMessage {
	out := map[string]any{"content": []any{map[string]string{"type": "text", "text": string(row)}}}
	if len(row) > 0 && row[0] == '{' {
		out["structuredContent"] = row
	}
	result, _ := json.Marshal(out)
	return result
}

// bodyOf returns the JSON that a result holds.
func bodyOf(result json.RawMessage) (json.RawMessage, error) {
	var r struct {
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct {
			Type, Text string
		} `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, err
	}
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		return r.Structured, nil
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" {
		return nil, errors.New("the answer has neither structuredContent nor one text")
	}
	if text := json.RawMessage(r.Content[0].Text); json.Valid(text) {
		return text, nil
	}
	quoted, err := json.Marshal(r.Content[0].Text)
	return quoted, err
}
