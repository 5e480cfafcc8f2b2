package mcp

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// message reads a frame of a server. All that a server says comes in here, whatever it is on, so that what holds of it
// holds everywhere:
//
//   - Secrets are hidden in it. A server may say again what it was sent, in a list as in a result.
//   - It has no member of Keep's names.
//   - Bytes that are no UTF-8 become U+FFFD: the answer is known, and only a text in it is not, so that neither the
//     record of a call nor its client gets what is no JSON.
func (c ServerConfig) message(text []byte) (m Message, err error) {
	if !utf8.Valid(text) {
		c.Logger.Warn("an MCP server wrote what is no UTF-8; it is replaced by U+FFFD", "server", c.Name, "bytes", len(text))
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if err = json.Unmarshal(text, &m); err != nil {
		return m, err
	}
	m.Method = string(c.hide.JSON([]byte(m.Method)))
	m.Params, m.Result = withoutKeep(c.hide.JSON(m.Params)), withoutKeep(c.hide.JSON(m.Result))
	if e := m.Error; e != nil {
		e.Message, e.Data = c.hide.Text(e.Message), c.hide.JSON(e.Data)
	}
	return m, nil
}

// codeTooLarge marks an answer that was too large to be read: no server uses it.
const codeTooLarge = -1

// standIn returns what stands for a message of a server that was too large to be read, and was discarded: an answer that says so, a
// request to be refused, or a notification of no method, which nobody takes. The ids of the server's own requests are of its choice, and
// may be those of ours.
func (c ServerConfig) standIn(e *TooLargeError) Message {
	switch {
	case !e.Asks:
		return Message{ID: e.ID, Error: &RPCError{codeTooLarge, e.Error(), nil}}
	case e.ID != nil:
		return Message{ID: e.ID, Method: "unread", Error: &RPCError{-32600, e.Error(), nil}}
	}
	c.Logger.Warn("an MCP server told something that is left out: "+e.Error(), "server", c.Name)
	return Message{}
}

// read returns an answer, or the error that stands for it.
func (m Message) read() (Message, error) {
	if m.Error != nil && m.Error.Code == codeTooLarge {
		return Message{}, m.Error
	}
	return m, nil
}

// keepNames begin the members that are Keep's alone: no server may say them.
const keepNames = "keep/"

// withoutKeep returns what a server said without Keep's names, in itself and in its _meta.
func withoutKeep(said json.RawMessage) json.RawMessage {
	if !bytes.Contains(said, []byte(keepNames)) && !bytes.ContainsRune(said, '\\') { // which may stand for a letter of it
		return said
	}
	out, _ := dropKeep(said, true)
	return out
}

// dropKeep drops the members of an object that have Keep's names, and reports whether it changed anything. Of a member that is
// repeated the last stays: a client may take another one. What is no object is returned as it is.
func dropKeep(object json.RawMessage, outer bool) (_ json.RawMessage, changed bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil || all == nil {
		return object, false
	}
	changed = membersOf(object) != len(all)
	for name, value := range all {
		switch {
		case strings.HasPrefix(name, keepNames):
			delete(all, name)
			changed = true
		case outer && strings.EqualFold(name, "_meta"): // as clients in Go do
			meta, had := dropKeep(value, false)
			all[name], changed = meta, changed || had
		}
	}
	if !changed {
		return object, false
	}
	out, err := json.Marshal(all)
	if err != nil {
		return object, false
	}
	return out, true
}

// membersOf returns how many members an object has, each as often as it is there.
func membersOf(object json.RawMessage) (n int) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	for err == nil && d.More() {
		var value json.RawMessage
		if _, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		n++
	}
	return n
}
