package twin

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/mail"
	"slices"
	"strings"
)

// Gmail follows https://developers.google.com/workspace/gmail/api/guides/drafts and the
// reference: a draft that is sent is deleted, and a message with another id and the label SENT
// is in its thread; who sends it again gets 404; the index of the search lags, so that it finds
// nothing here; a list of nothing has no member messages.
type Gmail struct {
	Inbox []Received // what is in the inbox

	drafts   map[string]gmailMessage
	messages []gmailMessage
	labels   map[string]map[string]bool // by message
	made     int
}

// Received is a mail that somebody else sent.
type Received struct{ ID, From, Subject, Text string }

// received returns a mail of the inbox.
func (g *Gmail) received(id string) Reply {
	for _, m := range g.Inbox {
		if m.ID == id {
			headers := []map[string]string{{"name": "From", "value": m.From}, {"name": "Subject", "value": m.Subject}}
			return Reply{Status: http.StatusOK, Body: map[string]any{"id": m.ID, "threadId": m.ID, "labelIds": []string{"INBOX"}, "snippet": m.Text,
				"payload": map[string]any{"headers": headers, "mimeType": "text/plain",
					"body": map[string]any{"size": len(m.Text), "data": base64.URLEncoding.EncodeToString([]byte(m.Text))}}}}
		}
	}
	return notFound()
}

type gmailMessage struct {
	ID      string   `json:"id"`
	Thread  string   `json:"threadId"`
	Labels  []string `json:"labelIds"`
	headers mail.Header
}

// Change makes or sends a draft, or changes labels.
func (g *Gmail) Change(r *http.Request, body []byte) (string, func() Reply) {
	path, _ := strings.CutPrefix(r.URL.Path, "/gmail/v1/users/me")
	bad := func() Reply { return googleError(http.StatusBadRequest, "invalidArgument", "Invalid argument") }
	if id, ok := strings.CutSuffix(path, "/modify"); ok {
		return g.modify(strings.TrimPrefix(id, "/messages/"), body)
	}
	var p struct {
		ID      string
		Message struct{ Raw, ThreadID string }
	}
	if json.Unmarshal(body, &p) != nil {
		return "", bad
	}
	if path == "/drafts/send" {
		d, ok := g.drafts[p.ID]
		if !ok {
			return "", func() Reply { return notFound() }
		}
		return d.headers.Get("Subject"), func() Reply { return g.send(p.ID) }
	}
	raw, err := base64.URLEncoding.DecodeString(p.Message.Raw)
	if err != nil || path != "/drafts" {
		return "", bad
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil || m.Header.Get("To") == "" {
		return "", func() Reply {
			return googleError(http.StatusBadRequest, "invalidArgument", "Recipient address required")
		}
	}
	return "draft of " + m.Header.Get("Subject"), func() Reply {
		if g.drafts == nil {
			g.drafts = map[string]gmailMessage{}
		}
		g.made++
		id, thread := fmt.Sprintf("r-%d", g.made), p.Message.ThreadID
		thread = cmp.Or(thread, fmt.Sprintf("t%d", g.made))
		d := gmailMessage{ID: fmt.Sprintf("m%d", g.made), Thread: thread, Labels: []string{"DRAFT"}, headers: m.Header}
		g.drafts[id] = d
		return Reply{Status: http.StatusOK, Body: map[string]any{"id": id, "message": d}}
	}
}

// send sends a draft, once.
func (g *Gmail) send(id string) Reply {
	d, ok := g.drafts[id]
	if !ok {
		return notFound()
	}
	delete(g.drafts, id)
	g.made++
	d.ID, d.Labels = fmt.Sprintf("m%d", g.made), []string{"SENT"}
	g.messages = append(g.messages, d)
	return Reply{Status: http.StatusOK, Body: d}
}

// modify changes the labels of a message, which need not have been made.
func (g *Gmail) modify(id string, body []byte) (string, func() Reply) {
	var p struct{ AddLabelIDs, RemoveLabelIDs []string }
	if json.Unmarshal(body, &p) != nil || len(p.AddLabelIDs)+len(p.RemoveLabelIDs) == 0 {
		return "", func() Reply {
			return googleError(http.StatusBadRequest, "invalidArgument", "No label add or removes specified")
		}
	}
	return id, func() Reply {
		if g.labels == nil {
			g.labels = map[string]map[string]bool{}
		}
		if g.labels[id] == nil {
			g.labels[id] = map[string]bool{}
		}
		same := true
		for _, l := range p.AddLabelIDs {
			same = same && g.labels[id][l]
			g.labels[id][l] = true
		}
		for _, l := range p.RemoveLabelIDs {
			same = same && !g.labels[id][l]
			delete(g.labels[id], l)
		}
		return Reply{Status: http.StatusOK, Same: same, Body: map[string]any{"id": id}}
	}
}

// Read returns a draft, a thread, or a list.
func (g *Gmail) Read(r *http.Request) Reply {
	path, _ := strings.CutPrefix(r.URL.Path, "/gmail/v1/users/me")
	q := r.URL.Query()
	if id, ok := strings.CutPrefix(path, "/drafts/"); ok {
		d, ok := g.drafts[id]
		if !ok {
			return notFound()
		}
		return Reply{Status: http.StatusOK, Body: map[string]any{"id": id, "message": d}}
	}
	if id, ok := strings.CutPrefix(path, "/threads/"); ok {
		return g.thread(id, q["metadataHeaders"])
	}
	if path == "/labels" {
		return Reply{Status: http.StatusOK, Body: map[string]any{"labels": []any{}}}
	}
	if id, ok := strings.CutPrefix(path, "/messages/"); ok {
		return g.received(id)
	}
	found := []gmailMessage{}
	for _, m := range g.Inbox {
		if q.Get("labelIds") == "INBOX" {
			found = append(found, gmailMessage{ID: m.ID, Thread: m.ID, Labels: []string{"INBOX"}})
		}
	}
	for _, m := range slices.Backward(g.messages) {
		if !q.Has("q") && (!q.Has("labelIds") || slices.Contains(m.Labels, q.Get("labelIds"))) {
			found = append(found, m)
		}
	}
	body := paged(r, "messages", found, "maxResults", "pageToken", "nextPageToken")
	if len(found) == 0 {
		body = map[string]any{"resultSizeEstimate": 0}
	}
	return Reply{Status: http.StatusOK, Body: body}
}

// thread returns the messages of a thread, drafts too, with the headers that were asked for.
func (g *Gmail) thread(id string, names []string) Reply {
	messages := []map[string]any{}
	add := func(m gmailMessage) {
		headers := []map[string]string{}
		for _, name := range names {
			if v := m.headers.Get(name); v != "" {
				headers = append(headers, map[string]string{"name": name, "value": v})
			}
		}
		if m.Thread == id {
			messages = append(messages, map[string]any{"id": m.ID, "threadId": id, "labelIds": m.Labels, "payload": map[string]any{"headers": headers}})
		}
	}
	for _, m := range g.messages {
		add(m)
	}
	for _, d := range g.drafts {
		add(d)
	}
	if len(messages) == 0 {
		return notFound()
	}
	return Reply{Status: http.StatusOK, Body: map[string]any{"id": id, "messages": messages}}
}
