package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
)

// A mailForm makes a mail of params and puts it into a member of the body.
type mailForm struct {
	into []string
	mark string // header with the token; empty: none
}

// mailConfig reads how params become a mail.
func (b *builder) mailConfig(t *tool, key string, cfg *Mail) {
	if cfg == nil {
		return
	}
	t.mail = &mailForm{into: strings.Split(cfg.Into, "."), mark: cfg.Mark}
	if slices.Contains(t.mail.into, "") || !t.hasBody() {
		b.addf(key+".into", "is %q, want names of the body with dots between them", cfg.Into)
	}
	if cfg.Mark != "" && (!isHeaderName(cfg.Mark) || slices.Contains(mailHeaders, textproto.CanonicalMIMEHeaderKey(cfg.Mark))) {
		b.addf(key+".mark", "%q cannot carry the token", cfg.Mark)
	}
	t.token.mail = cfg.Mark != ""
}

// mailHeaders are those that params make.
var mailHeaders = []string{"To", "Cc", "Bcc", "Subject", "Reply-To", "In-Reply-To", "References", "Mime-Version", "Content-Type", "Content-Transfer-Encoding"}

// addressParams are params that are addresses, one or a list, by their headers.
var addressParams = []struct{ header, param string }{{"To", "to"}, {"Cc", "cc"}, {"Bcc", "bcc"}, {"Reply-To", "reply_to"}}

// compose takes the params of a mail out of fields and puts the mail in. The same params
// make the same mail.
func (f *mailForm) compose(fields map[string]json.RawMessage, token string) error {
	var b bytes.Buffer
	recipients := 0
	for _, a := range addressParams {
		list, err := values{fields: fields}.list(a.param)
		if err != nil {
			return err
		}
		delete(fields, a.param)
		for i, s := range list {
			address, err := mail.ParseAddress(s)
			if err != nil {
				return fmt.Errorf("param %q: %q is not an address", a.param, s)
			}
			list[i] = address.String()
		}
		if len(list) > 0 {
			fmt.Fprintf(&b, "%s: %s\r\n", a.header, strings.Join(list, ",\r\n "))
		}
		if a.header != "Reply-To" {
			recipients += len(list)
		}
	}
	if recipients == 0 {
		return errors.New(`param "to" is required`)
	}
	texts := map[string]string{}
	for _, p := range []string{"subject", "in_reply_to", "references", "text", "html"} {
		if raw := bytes.TrimSpace(fields[p]); len(raw) > 0 && string(raw) != "null" && json.Unmarshal(raw, new(string)) != nil {
			return fmt.Errorf("param %q must be a string", p)
		} else if len(raw) > 0 {
			var s string
			json.Unmarshal(raw, &s) // checked above; null is empty
			texts[p] = s
		}
		delete(fields, p)
	}
	fmt.Fprintf(&b, "Subject: %s\r\n", mime.QEncoding.Encode("utf-8", oneLine(texts["subject"])))
	for _, h := range []struct{ header, param string }{{"In-Reply-To", "in_reply_to"}, {"References", "references"}} {
		if s := oneLine(texts[h.param]); s != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", h.header, s)
		}
	}
	if f.mark != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", f.mark, token)
	}
	b.WriteString("MIME-Version: 1.0\r\n")
	if err := writeMailBody(&b, texts["text"], texts["html"], token); err != nil {
		return err
	}
	return setMember(fields, f.into, base64.URLEncoding.EncodeToString(b.Bytes()))
}

// oneLine returns s without what would end a header.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\r' || r == '\n' }), " ")
}

// writeMailBody writes the text, the HTML, or both as alternatives.
func writeMailBody(b *bytes.Buffer, text, html, token string) error {
	part := func(h textproto.MIMEHeader, kind, s string) []byte {
		h.Set("Content-Type", kind+"; charset=utf-8")
		h.Set("Content-Transfer-Encoding", "quoted-printable")
		var out bytes.Buffer
		w := quotedprintable.NewWriter(&out)
		w.Write([]byte(s)) // into memory
		w.Close()
		return out.Bytes()
	}
	if text == "" || html == "" {
		kind, s := "text/plain", text
		if html != "" {
			kind, s = "text/html", html
		}
		h := textproto.MIMEHeader{}
		body := part(h, kind, s)
		fmt.Fprintf(b, "Content-Type: %s\r\nContent-Transfer-Encoding: %s\r\n\r\n", h.Get("Content-Type"), h.Get("Content-Transfer-Encoding"))
		b.Write(body)
		return nil
	}
	w := multipart.NewWriter(b)
	if err := w.SetBoundary("keep-" + formats["hex32"](token)); err != nil {
		return err
	}
	fmt.Fprintf(b, "Content-Type: multipart/alternative; boundary=%s\r\n\r\n", w.Boundary())
	for _, alternative := range []struct{ kind, text string }{{"text/plain", text}, {"text/html", html}} {
		h := textproto.MIMEHeader{}
		body := part(h, alternative.kind, alternative.text)
		p, err := w.CreatePart(h)
		if err != nil {
			return err
		}
		if _, err := p.Write(body); err != nil {
			return err
		}
	}
	return w.Close()
}
