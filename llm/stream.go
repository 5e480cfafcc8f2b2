package llm

import (
	"encoding/json"
	"strings"
)

// A stream makes an answer of events.
type stream interface {
	// event takes the data of an event, and reports whether it is the last one.
	event(data []byte) (done bool, err error)

	// answer returns the answer after the last event.
	answer() (Answer, error)

	// used returns what the service says was used; 0: it does not say.
	used() Usage
}

// newStream returns one that has no event yet.
func newStream(api API) stream {
	if api == OpenAI {
		return &chatStream{}
	}
	return &messagesStream{}
}

// maxCalls bounds the calls of one answer.
const maxCalls = 64

// garbage is the error of an answer that does not follow the protocol.
func garbage(why string) error { return &Error{Why: why, Again: true} }

// A draft is an answer as far as it came.
type draft struct {
	text   strings.Builder
	calls  []Call
	inputs [][]byte // the arguments of calls, as far as their parts have come; those of several may alternate
	cut    bool
	ended  bool
	usage  Usage
}

func (d *draft) used() Usage { return d.usage }

// answer returns the answer, if it came to its end.
func (d *draft) answer() (Answer, error) {
	if !d.ended {
		return Answer{}, garbage("the answer ended in the middle")
	}
	for i := range d.calls {
		arguments := d.inputs[i]
		if len(arguments) == 0 {
			arguments = []byte("{}")
		}
		if !json.Valid(arguments) {
			arguments = []byte("null")
		}
		d.calls[i].Arguments = arguments
	}
	return Answer{Text: d.text.String(), Calls: d.calls, Cut: d.cut}, nil
}

// call adds a call and returns its place.
func (d *draft) call(id, name string) (int, error) {
	if len(d.calls) >= maxCalls || id == "" || len(id) > 256 || name == "" || len(name) > 256 {
		return 0, garbage("the answer has a call without a name, or too many")
	}
	d.calls = append(d.calls, Call{ID: id, Name: name})
	d.inputs = append(d.inputs, nil)
	return len(d.calls) - 1, nil
}

// count takes a number of tokens; a service may say it more than once, and each time more.
func count(into *int64, n int64) {
	const most = 1 << 40
	if n > *into && n < most {
		*into = n
	}
}

// A messagesStream is one of Anthropic.
type messagesStream struct {
	draft
	blocks map[int]int // place of the call by the index of its block
}

// event takes one event.
func (s *messagesStream) event(data []byte) (bool, error) {
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message struct {
			Usage usageOfMessages `json:"usage"`
		} `json:"message"`
		Block struct {
			Type string `json:"type"`
			ID   string `json:"id"`
			Name string `json:"name"`
			Text string `json:"text"`
		} `json:"content_block"`
		Delta struct {
			Type string `json:"type"`
			Text string `json:"text"`
			JSON string `json:"partial_json"`
			Stop string `json:"stop_reason"`
		} `json:"delta"`
		Usage usageOfMessages `json:"usage"`
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &e) != nil {
		return false, garbage("an event of the answer is no JSON")
	}
	switch e.Type {
	case "message_start":
		e.Message.Usage.count(&s.usage)
	case "content_block_start":
		s.text.WriteString(e.Block.Text)
		if e.Block.Type != "tool_use" {
			return false, nil
		}
		place, err := s.call(e.Block.ID, e.Block.Name)
		if s.blocks == nil {
			s.blocks = map[int]int{}
		}
		s.blocks[e.Index] = place
		return false, err
	case "content_block_delta":
		s.text.WriteString(e.Delta.Text)
		if place, ok := s.blocks[e.Index]; ok {
			s.inputs[place] = append(s.inputs[place], e.Delta.JSON...)
		}
	case "message_delta":
		e.Usage.count(&s.usage)
		s.cut = e.Delta.Stop == "max_tokens"
	case "message_stop":
		s.ended = true
		return true, nil
	case "error":
		why := "the service failed while it answered"
		if kind().MatchString(e.Error.Type) {
			why += ": " + e.Error.Type
		}
		return false, garbage(why)
	}
	return false, nil
}

type usageOfMessages struct {
	In      int64 `json:"input_tokens"`
	Created int64 `json:"cache_creation_input_tokens"`
	Read    int64 `json:"cache_read_input_tokens"`
	Out     int64 `json:"output_tokens"`
}

func (u usageOfMessages) count(into *Usage) {
	count(&into.In, u.In+u.Created+u.Read)
	count(&into.Out, u.Out)
}

// A chatStream is one of chat completions.
type chatStream struct {
	draft
	finished bool
	places   map[int]int // of calls, by their index
}

// event takes one event.
func (s *chatStream) event(data []byte) (bool, error) {
	if string(data) == "[DONE]" {
		s.ended = s.finished
		return true, nil
	}
	var e struct {
		Choices []struct {
			Index int `json:"index"`
			Delta struct {
				Content string     `json:"content"`
				Calls   []chatCall `json:"tool_calls"`
			} `json:"delta"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			In  int64 `json:"prompt_tokens"`
			Out int64 `json:"completion_tokens"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &e) != nil {
		return false, garbage("an event of the answer is no JSON")
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return false, garbage("the service failed while it answered")
	}
	count(&s.usage.In, e.Usage.In)
	count(&s.usage.Out, e.Usage.Out)
	for _, c := range e.Choices {
		if c.Index != 0 {
			continue // one was asked for
		}
		s.text.WriteString(c.Delta.Content)
		for _, call := range c.Delta.Calls {
			if err := s.part(call); err != nil {
				return false, err
			}
		}
		if c.Finish != "" {
			s.finished, s.cut = true, c.Finish == "length"
		}
	}
	return false, nil
}

// part takes a part of a call.
func (s *chatStream) part(call chatCall) error {
	place, known := s.places[call.Index]
	// Some servers number no call, or all alike: what has a name and an id of its own is another one.
	if !known || call.Function.Name != "" && call.ID != "" && call.ID != s.calls[place].ID {
		var err error
		if place, err = s.call(call.ID, call.Function.Name); err != nil {
			return err
		}
		if s.places == nil {
			s.places = map[int]int{}
		}
		s.places[call.Index] = place
	}
	s.inputs[place] = append(s.inputs[place], call.Function.Arguments...)
	return nil
}

type chatCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}
