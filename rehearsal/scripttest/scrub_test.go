package scripttest

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a field with the name of a secret has is replaced, however the name is written, whatever it is, and wherever it is.
func TestScrubByName(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"password":"hunter22"}`, `{"api_key":"hunter22"}`, `{"apiKey":"hunter22"}`, `{"headers":{"X-Api-Key":"hunter22"}}`, `{"api-key":["hunter22"]}`,
		`{"private-key":"hunter22"}`, `{"client-secret":"hunter22"}`, `{"Proxy-Authorization":"Basic hunter22"}`,
		`{"token":{"value":"hunter22"}}`, `{"credentials":[{"user":"ann","is":"hunter22"}]}`,
		`{"body":"{\"password\":\"hunter22\"}"}`, `{"url":"https://api.test/x?a=1&token=hunter22"}`, `{"url":"https://ann:hunter22@api.test/x"}`,
		`{"line":"Authorization: Bearer hunter22"}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(payload), &v); err != nil {
			t.Fatal(err)
		}
		in := Test{Name: "a", Events: []Event{{Topic: "t", MessageID: "m", Payload: v}}, Reads: []Read{{Tool: "svc.get", Result: "before hunter22 after"}}}
		s := newScrubber(nil)
		out, err := s.test(in)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(File{Tests: []Test{out}}.TOML("")); strings.Contains(text, "hunter22") || len(s.said()) == 0 {
			t.Errorf("%s: %v\n%s", payload, s.said(), text)
		}
	}
}

// A port is no secret.
func TestScrubLeavesPorts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"http://127.0.0.1:8080/pay", "see https://shop.test:8443/a?page=2 and http://[::1]:7421"} {
		if got := newScrubber(nil).text(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// So is what is a number: a code that is typed, a token without letters.
func TestScrubNumbersByName(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"password":48213377}`, `{"token":{"value":48213377}}`, `{"credentials":[{"is":48213377}]}`, `{"body":"{\"password\":48213377}"}`, `{"secret":482133771234567890123}`,
		`{"token":48213377,"note":null}`,
	} {
		in := Test{Name: "a", Events: []Event{{Topic: "t", MessageID: "m"}}, Reads: []Read{{Tool: "svc.get", Result: map[string]any{"total_tokens": float64(48), "said": "before 48213377 after"}}}}
		in.Events[0].Payload, in.Events[0].JSON = fileValue(json.RawMessage(payload))
		s := newScrubber(nil)
		out, err := s.test(in)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(File{Tests: []Test{out}}.TOML("")); strings.Contains(text, "482133771") || !strings.Contains(payload, "482133771") && strings.Contains(text, "48213377") || len(s.said()) == 0 || !strings.Contains(text, "total_tokens = 48") {
			t.Errorf("%s: %v\n%s", payload, s.said(), text)
		}
	}
}
