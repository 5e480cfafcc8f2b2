package files

import (
	"context"
	"encoding/json"
	"io"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/eml"
	"github.com/keep-run/keep/connector/internal/native"
)

// maxMail bounds the file of a mail.
const maxMail = 32 << 20

var mailSpec = connector.Spec{
	Name:   "readMail",
	Effect: connector.Get,
	Description: "Reads a mail (RFC 5322): from, to, cc, subject, date, messageId, text, html, attachments, headers, decoded. " +
		"What is broken in it is listed in warnings. Null if there is no such file.",
	Params: native.Object(`"name"`, `
		"name":{"type":"string","minLength":1},
		"content":{"type":"boolean","description":"true: attachments have their bytes as base64 in content"}`),
	Result: json.RawMessage(`{"type":["object","null"],
		"required":["name","messageId","subject","from","to","cc","replyTo","date","text","html","attachments","headers","warnings"],
		"properties":{
		"name":{"type":"string"},
		"messageId":{"type":["string","null"]},
		"inReplyTo":{"type":["string","null"]},
		"references":{"type":"array","items":{"type":"string"}},
		"subject":{"type":"string"},
		"from":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/mailbox"}]},
		"to":{"$ref":"#/$defs/mailboxes"},"cc":{"$ref":"#/$defs/mailboxes"},
		"bcc":{"$ref":"#/$defs/mailboxes"},"replyTo":{"$ref":"#/$defs/mailboxes"},
		"date":{"type":["string","null"],"format":"date-time"},
		"text":{"type":"string"},"html":{"type":"string"},
		"attachments":{"type":"array","items":{"type":"object","required":["name","type","size"],"properties":{
			"name":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"},
			"contentId":{"type":"string"},"inline":{"type":"boolean"},"content":{"type":"string"}}}},
		"headers":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}}},
		"warnings":{"type":"array","items":{"type":"string"}}},
		"$defs":{
		"mailbox":{"type":"object","required":["name","address"],"properties":{"name":{"type":"string"},"address":{"type":"string"}}},
		"mailboxes":{"type":"array","items":{"$ref":"#/$defs/mailbox"}}}}`),
}

type mailParams struct {
	Name    string `json:"name"`
	Content bool   `json:"content"`
}

// readMail returns a mail, or null.
func (d *dir) readMail(_ context.Context, params json.RawMessage) (any, error) {
	var p mailParams
	if err := d.decode("readMail", params, &p); err != nil {
		return nil, err
	}
	f, info, err := d.openFile("readMail", p.Name)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxMail {
		return nil, d.failf("readMail", keep.ClassLogic, "answer-too-large", "%q has %d bytes, more than %d", p.Name, info.Size(), maxMail)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxMail))
	if err != nil {
		return nil, d.fail("readMail", "read "+p.Name, err)
	}
	m := eml.Parse(raw)
	m.Name = p.Name
	if p.Content {
		m.Attach(native.MaxResult / 2)
	}
	m.Fit(native.MaxResult)
	return m, nil
}
