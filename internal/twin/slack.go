package twin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Slack follows https://docs.slack.dev/reference/methods/chat.postMessage and
// .../conversations.history, .../conversations.replies: everything answers 200, ok says what
// it means, a message that is posted again is there twice, replies are not in the history,
// and metadata shows only if it is asked for.
// A text or reaction that is there already is answered so (.../chat.update, .../reactions.add).
type Slack struct {
	messages  []slackMessage
	texts     map[string]string // by channel and ts, of messages that were changed
	reactions map[string]bool
}

type slackMessage struct {
	channel  string
	Type     string          `json:"type"`
	TS       string          `json:"ts"`
	ThreadTS string          `json:"thread_ts,omitempty"`
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// no is how Slack refuses.
func no(reason string) Reply {
	return Reply{Status: http.StatusOK, Body: map[string]any{"ok": false, "error": reason}}
}

// Change posts a message.
func (s *Slack) Change(r *http.Request, body []byte) (string, func() Reply) {
	var p struct {
		Channel, Text string
		ThreadTS      string `json:"thread_ts"`
		Metadata      json.RawMessage
	}
	switch err := json.Unmarshal(body, &p); {
	case err == nil && r.URL.Path == "/api/chat.update":
		return s.update(body)
	case err == nil && r.URL.Path == "/api/reactions.add":
		return s.react(body)
	case err != nil || r.URL.Path != "/api/chat.postMessage":
		return "", func() Reply { return no("unknown_method") }
	}
	if p.Text == "" || p.Channel == "" {
		return "", func() Reply { return no("no_text") }
	}
	return p.Text, func() Reply {
		m := slackMessage{channel: p.Channel, Type: "message", TS: s.ts(), ThreadTS: p.ThreadTS, Text: p.Text, Metadata: p.Metadata}
		s.messages = append(s.messages, m)
		return Reply{Status: http.StatusOK, Body: map[string]any{"ok": true, "channel": p.Channel, "ts": m.TS, "message": m}}
	}
}

// update changes the text of a message.
func (s *Slack) update(body []byte) (string, func() Reply) {
	var p struct{ Channel, TS, Text string }
	if json.Unmarshal(body, &p) != nil || p.Text == "" {
		return "", func() Reply { return no("no_text") }
	}
	return p.Text, func() Reply {
		if s.texts == nil {
			s.texts = map[string]string{}
		}
		at := p.Channel + " " + p.TS
		same := s.texts[at] == p.Text
		s.texts[at] = p.Text
		return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"ok": true, "channel": p.Channel, "ts": p.TS, "text": p.Text}}
	}
}

// react adds a reaction to a message.
func (s *Slack) react(body []byte) (string, func() Reply) {
	var p struct{ Channel, Timestamp, Name string }
	if json.Unmarshal(body, &p) != nil || p.Name == "" {
		return "", func() Reply { return no("invalid_name") }
	}
	return p.Name, func() Reply {
		if s.reactions == nil {
			s.reactions = map[string]bool{}
		}
		at := p.Channel + " " + p.Timestamp + " " + p.Name
		if s.reactions[at] {
			reply := no("already_reacted")
			reply.Same = true
			return reply
		}
		s.reactions[at] = true
		return Reply{Status: http.StatusOK, Body: map[string]any{"ok": true}}
	}
}

// ts returns a new time stamp, which no other message has.
func (s *Slack) ts() string {
	now := time.Now()
	return fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000%900_000+len(s.messages))
}

// Read lists messages, newest first.
func (s *Slack) Read(r *http.Request) Reply {
	q := r.URL.Query()
	thread := q.Get("ts")
	if r.URL.Path != "/api/conversations.history" && r.URL.Path != "/api/conversations.replies" {
		return no("unknown_method")
	}
	oldest, _ := strconv.ParseFloat(q.Get("oldest"), 64)
	found := []slackMessage{}
	for _, m := range slices.Backward(s.messages) {
		if at, _ := strconv.ParseFloat(m.TS, 64); m.channel == q.Get("channel") && m.ThreadTS == thread && at >= oldest {
			if q.Get("include_all_metadata") != "true" {
				m.Metadata = nil
			}
			found = append(found, m)
		}
	}
	from, _ := strconv.Atoi(q.Get("cursor"))
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		limit = 100
	}
	end, next := min(from+limit, len(found)), ""
	if end < len(found) {
		next = strconv.Itoa(end)
	}
	return Reply{Status: http.StatusOK, Body: map[string]any{
		"ok": true, "messages": found[min(from, end):end], "has_more": next != "",
		"response_metadata": map[string]string{"next_cursor": next},
	}}
}
