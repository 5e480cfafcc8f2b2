package llm_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep/llm"
)

// alternating are answers with two calls whose parts come in turns, as both protocols allow.
var alternating = map[llm.API][]string{
	llm.OpenAI: {
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"check","arguments":""}},{"index":1,"id":"b","function":{"name":"check"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\":"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"n\":2}"}},{"index":0,"function":{"arguments":"1}"}}]}}]}`,
		`{"choices":[{"finish_reason":"tool_calls"}]}`,
		`[DONE]`,
	},
	llm.Anthropic: {
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"check"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"partial_json":"{\"n\":"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"b","name":"check"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"partial_json":"{\"n\":2}"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"partial_json":"1}"}}`,
		`{"type":"message_stop"}`,
	},
}

func TestCallsInTurns(t *testing.T) {
	for api, events := range alternating {
		got, err := llm.ReadAnswer(api, strings.NewReader("data: "+strings.Join(events, "\n\ndata: ")+"\n\n"))
		if err != nil || len(got.Calls) != 2 || string(got.Calls[0].Arguments) != `{"n":1}` || string(got.Calls[1].Arguments) != `{"n":2}` {
			t.Errorf("%s: %+v, %v", api, got, err)
		}
	}
}

// Some servers of chat completions number no call, or all of an answer alike. What begins with a name and an id of its own is another
// call: a model that asked for the guide and handed over a script had the guide called with the script, and nothing else.
func TestCallsWithoutNumbers(t *testing.T) {
	for _, index := range []string{"", `"index":0,`} {
		events := []string{
			`{"choices":[{"delta":{"tool_calls":[{` + index + `"id":"a","function":{"name":"guide","arguments":""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{` + index + `"id":"b","function":{"name":"check","arguments":"{\"n\":"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{` + index + `"id":"b","function":{"arguments":"2}"}}]}}]}`,
			`{"choices":[{"finish_reason":"tool_calls"}]}`,
			`[DONE]`,
		}
		got, err := llm.ReadAnswer(llm.OpenAI, strings.NewReader("data: "+strings.Join(events, "\n\ndata: ")+"\n\n"))
		if err != nil || len(got.Calls) != 2 || got.Calls[0].Name != "guide" || string(got.Calls[0].Arguments) != `{}` ||
			got.Calls[1].Name != "check" || string(got.Calls[1].Arguments) != `{"n":2}` {
			t.Errorf("with %q: %+v, %v", index, got, err)
		}
	}
}

// FuzzAnswer reads what a service may answer: a model wrote a part of it.
func FuzzAnswer(f *testing.F) {
	for _, events := range alternating {
		f.Add("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, api := range llm.APIs() {
			got, err := llm.ReadAnswer(api, strings.NewReader(body))
			if err != nil {
				continue
			}
			for _, c := range got.Calls {
				if c.ID == "" || c.Name == "" || !json.Valid(c.Arguments) {
					t.Errorf("%s: a call %+v of %q", api, c, body)
				}
			}
		}
	})
}
