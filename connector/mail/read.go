package mail

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/eml"
	"github.com/keep-run/keep/connector/internal/native"
)

// Bounds.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxMail      = 25 << 20  // of a mail whose text is read
	maxHeader    = 256 << 10 // of the header of one mail
	maxPiece     = 700 << 10 // of an attachment in one result
	maxFolders   = 5000
)

// mailProperties are what search and get return of a mail.
const mailProperties = `
	"id":{"type":"string"},"message_id":{"type":["string","null"]},"folder":{"type":"string"},"uid":{"type":"integer"},
	"subject":{"type":["string","null"]},
	"from":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/mailbox"}]},
	"to":{"type":"array","items":{"$ref":"#/$defs/mailbox"}},"cc":{"type":"array","items":{"$ref":"#/$defs/mailbox"}},
	"date":{"type":["string","null"]},"flags":{"type":"array","items":{"type":"string"}},
	"size":{"type":["integer","null"]},"problems":{"type":"array","items":{"type":"string"}}`

const mailRequired = `"id","message_id","folder","uid","subject","from","to","cc","date","flags","size","problems"`

const mailDefs = `"mailbox":{"type":"object","required":["name","address"],"properties":{"name":{"type":"string"},"address":{"type":"string"}}}`

// readTools are the tools that read a mailbox.
func (a *account) readTools() []connector.Tool {
	tool := func(spec connector.Spec, read func(context.Context, json.RawMessage) (any, error)) connector.Tool {
		spec.Timeout = a.timeout
		return native.NewReader(spec, a.failf, func(ctx context.Context, params json.RawMessage) (any, error) {
			v, err := read(ctx, params)
			if err != nil {
				return nil, a.fail(ctx, spec.Name, err)
			}
			return v, nil
		})
	}
	return []connector.Tool{
		tool(connector.Spec{
			Name: "folders", Effect: connector.List, Description: "Lists the folders, with what the server uses them for.",
			Params: native.Object("", ""),
			Result: json.RawMessage(`{"type":"array","items":{"type":"object","required":["name","use","selectable"],"properties":{
				"name":{"type":"string"},"use":{"type":["string","null"],"description":"sent, trash, drafts, junk, archive, all, flagged"},
				"selectable":{"type":"boolean"}}}}`),
		}, a.folders),
		tool(connector.Spec{
			Name: "search", Effect: connector.List, Pages: true,
			Description: "Lists the mails of a folder, oldest first. next of the result is where to continue: also at the next run, for the mails that came since. What is odd in a mail is listed in problems.",
			Params: native.Object("", `"folder":{"type":"string","minLength":1,"default":"INBOX"},
				"from":{"type":"string"},"to":{"type":"string"},"subject":{"type":"string"},
				"text":{"type":"string","description":"anywhere in the mail"},
				"since":{"type":"string","description":"day, 2026-11-22: mails that came then or later"},
				"before":{"type":"string","description":"day: mails that came before it"},
				"unseen":{"type":"boolean"},
				"limit":{"type":"integer","minimum":1,"maximum":1000,"default":100},
				"cursor":{"type":["string","null"],"description":"next of an earlier result"}`),
			Result: json.RawMessage(`{"type":"array","items":{"type":"object","required":[` + mailRequired + `],"properties":{` + mailProperties + `}},"$defs":{` + mailDefs + `}}`),
		}, a.search),
		tool(connector.Spec{
			Name: "get", Effect: connector.Get,
			Description: "Reads a mail. What is broken in it is listed in problems. A mail over 25 MiB has no text, and truncated is true.",
			Params:      native.Object(`"id"`, `"id":{"type":"string","minLength":5}`),
			Result: json.RawMessage(`{"type":"object","required":[` + mailRequired + `,"text","html","headers","attachments","truncated"],"properties":{` + mailProperties + `,
				"text":{"type":["string","null"]},"html":{"type":["string","null"]},
				"headers":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}}},
				"attachments":{"type":"array","items":{"type":"object","required":["name","type","size","part"],"properties":{
					"name":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"},"part":{"type":"string"}}}},
				"in_reply_to":{"type":["string","null"]},"references":{"type":"array","items":{"type":"string"}},
				"reply_to":{"type":"array","items":{"$ref":"#/$defs/mailbox"}},
				"truncated":{"type":"boolean"}},"$defs":{` + mailDefs + `}}`),
		}, a.get),
		tool(connector.Spec{
			Name: "attachment", Effect: connector.Get,
			Description: "Reads the bytes of an attachment. One over 700 KiB is read in parts: pass offset 0, then next of each part, until it is null. Without offset it fails.",
			Params: native.Object(`"id","part"`, `"id":{"type":"string","minLength":5},"part":{"type":"string","minLength":1},
				"offset":{"type":"integer","minimum":0}`),
			Result: json.RawMessage(`{"type":"object","required":["name","type","size","base64","next"],"properties":{
				"name":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"},"base64":{"type":"string"},"next":{"type":["integer","null"]}}}`),
		}, a.attachment),
	}
}

// A folder is one folder of the result of folders.
type folder struct {
	Name       string  `json:"name"`
	Use        *string `json:"use"`
	Selectable bool    `json:"selectable"`
}

func (a *account) folders(ctx context.Context, params json.RawMessage) (any, error) {
	if err := native.Decode(params, &struct{}{}); err != nil {
		return nil, a.bad("folders", err)
	}
	out := []folder{}
	err := a.read(ctx, func(b *box) error {
		b.conn.expect()
		list, err := b.List("", "*", &imap.ListOptions{ReturnSpecialUse: b.Caps().Has(imap.CapSpecialUse)}).Collect()
		if err != nil {
			return fmt.Errorf("list the folders: %w", b.cause(err))
		}
		out = out[:0]
		for _, data := range list[:min(len(list), maxFolders)] {
			out = append(out, newFolder(data))
		}
		return nil
	})
	slices.SortFunc(out, func(a, b folder) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

func newFolder(data *imap.ListData) folder {
	f := folder{Name: strings.ToValidUTF8(data.Mailbox, "\uFFFD"), Selectable: true}
	for _, attr := range data.Attrs {
		switch attr {
		case imap.MailboxAttrNoSelect, imap.MailboxAttrNonExistent:
			f.Selectable = false
		case imap.MailboxAttrAll, imap.MailboxAttrArchive, imap.MailboxAttrDrafts, imap.MailboxAttrFlagged,
			imap.MailboxAttrJunk, imap.MailboxAttrSent, imap.MailboxAttrTrash:
			use := strings.ToLower(strings.TrimPrefix(string(attr), `\`))
			f.Use = &use
		}
	}
	return f
}

// A summary is what a list tells of a mail.
type summary struct {
	ID        string        `json:"id"`
	MessageID *string       `json:"message_id"`
	Folder    string        `json:"folder"`
	UID       imap.UID      `json:"uid"`
	Subject   *string       `json:"subject"`
	From      *eml.Mailbox  `json:"from"`
	To        []eml.Mailbox `json:"to"`
	Cc        []eml.Mailbox `json:"cc"`
	Date      *string       `json:"date"`
	Flags     []string      `json:"flags"`
	Size      *int64        `json:"size"`
	Problems  []string      `json:"problems"`
}

// Bounds of what a list tells of one mail: a stranger wrote it.
const (
	maxListed  = 20
	maxSubject = 1000
)

// summarize tells what a list tells; m is nil if the mail cannot be read.
func summarize(id mailID, flags []imap.Flag, size *int64, m *eml.Mail) summary {
	s := summary{ID: id.String(), Folder: id.Folder, UID: id.UID, Flags: flagNames(flags), Size: size,
		To: []eml.Mailbox{}, Cc: []eml.Mailbox{}, Problems: []string{}}
	if m == nil {
		return s
	}
	s.MessageID, s.From, s.Date, s.To, s.Cc, s.Problems = m.MessageID, m.From, m.Date, m.To, m.Cc, m.Warnings
	if m.Headers["subject"] != nil || m.Subject != "" {
		s.Subject = &m.Subject
	}
	if s.MessageID != nil {
		if err := keep.MessageID(*s.MessageID).Validate(); err != nil { // a script that publishes it would fail at each look
			s.MessageID = nil
			s.Problems = append([]string{"message_id is null: the Message-ID cannot be the id of an event: " + err.Error()}, s.Problems...)
		}
	}
	return s
}

// short leaves out of a summary what would fill a list.
func (s *summary) short() {
	for _, list := range []*[]eml.Mailbox{&s.To, &s.Cc} {
		if len(*list) > maxListed {
			s.Problems = append(s.Problems, fmt.Sprintf("only the first %d of %d recipients are listed; get has the others", maxListed, len(*list)))
			*list = (*list)[:maxListed]
		}
	}
	if s.Subject != nil && len(*s.Subject) > maxSubject {
		text := strings.ToValidUTF8((*s.Subject)[:maxSubject], "")
		s.Subject = &text
		s.Problems = append(s.Problems, "the subject is cut; get has all of it")
	}
	s.Problems = s.Problems[:min(len(s.Problems), maxListed)]
}

type searchParams struct {
	Folder  string  `json:"folder"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Subject string  `json:"subject"`
	Text    string  `json:"text"`
	Since   string  `json:"since"`
	Before  string  `json:"before"`
	Unseen  bool    `json:"unseen"`
	Limit   int     `json:"limit"`
	Cursor  *string `json:"cursor"`
}

// A listing is what scripts get as an array with two more properties.
type listing struct {
	Items     []json.RawMessage `json:"$list"`
	Truncated bool              `json:"truncated"`
	Next      *string           `json:"next"`
}

func (a *account) search(ctx context.Context, params json.RawMessage) (any, error) {
	p := searchParams{Folder: "INBOX", Limit: defaultLimit}
	if err := native.Decode(params, &p); err != nil {
		return nil, a.bad("search", err)
	}
	criteria, err := p.criteria()
	if err != nil {
		return nil, a.bad("search", err)
	}
	validity, after, err := p.from()
	if err != nil {
		return nil, a.bad("search", err)
	}
	var out listing
	err = a.read(ctx, func(b *box) error {
		data, err := b.open(p.Folder, false)
		if err != nil {
			return err
		}
		a.saw(p.Folder, data)
		if err := lasting(p.Folder, data); err != nil {
			return err
		}
		if p.Cursor != nil && data.UIDValidity != validity {
			return keep.Failf(keep.ClassPrecondition, "uidvalidity",
				"the server has numbered the mails of %s anew (UIDVALIDITY was %d and is %d), so the cursor means nothing; forget it (keep checkpoints reset WORKFLOW PRODUCER) and retry: all mails of the folder then come as new ones", p.Folder, validity, data.UIDValidity)
		}
		if data.UIDNext > 0 && data.UIDNext <= after { // it may be a copy of the folder that is behind
			return keep.Failf(keep.ClassTransient, "uidvalidity",
				"the next mail of %s is numbered %d, and a search has passed %d: mails that come now would be passed over; if it stays so, the folder was restored, so forget the cursor (keep checkpoints reset WORKFLOW PRODUCER) and retry: all mails of the folder then come as new ones", p.Folder, data.UIDNext, after)
		}
		// n:* names the last mail even if it is before n.
		uids, err := b.find(p.Folder, criteria, after, p.Limit+1)
		if err != nil {
			return err
		}
		out, err = a.page(ctx, b, pageOf{p.Folder, data, uids, p.Limit, after})
		return err
	})
	return out, err
}

// from reads the cursor.
func (p *searchParams) from() (validity uint32, after imap.UID, err error) {
	if p.Cursor == nil {
		return 0, 0, nil
	}
	v, u, ok := strings.Cut(*p.Cursor, ";")
	n, err1 := strconv.ParseUint(v, 10, 32)
	last, err2 := strconv.ParseUint(u, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("cursor: %q is not the next of an earlier result", *p.Cursor)
	}
	return uint32(n), imap.UID(last), nil
}

// criteria writes what to search for.
func (p *searchParams) criteria() (*imap.SearchCriteria, error) {
	c := &imap.SearchCriteria{}
	if err := checkFolder(p.Folder); err != nil {
		return nil, err
	}
	if p.Limit < 1 || p.Limit > maxLimit {
		return nil, fmt.Errorf("limit must be 1 to %d", maxLimit)
	}
	for _, f := range []struct{ key, value string }{{"From", p.From}, {"To", p.To}, {"Subject", p.Subject}, {"Text", p.Text}} {
		switch {
		case f.value == "":
		case hasControl(f.value):
			return nil, fmt.Errorf("%s must be one line", strings.ToLower(f.key))
		case f.key == "Text":
			c.Text = []string{f.value}
		default:
			c.Header = append(c.Header, imap.SearchCriteriaHeaderField{Key: f.key, Value: f.value})
		}
	}
	var err1, err2 error
	c.Since, err1 = day("since", p.Since)
	c.Before, err2 = day("before", p.Before)
	if p.Unseen {
		c.NotFlag = []imap.Flag{imap.FlagSeen}
	}
	if _, after, err := p.from(); err == nil && after > 0 && after < 1<<32-1 {
		var set imap.UIDSet
		set.AddRange(after+1, 0) // 0 is *
		c.UID = []imap.UIDSet{set}
	}
	return c, errors.Join(err1, err2)
}

// day reads a date, or the date of a time.
func day(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.DateOnly, text[:min(len(text), len(time.DateOnly))])
	if err != nil {
		return t, fmt.Errorf("%s: %q is not a day such as 2026-11-22", name, text)
	}
	return t, nil
}

// A full is the result of get.
type full struct {
	summary
	Text        *string             `json:"text"`
	HTML        *string             `json:"html"`
	Headers     map[string][]string `json:"headers"`
	Attachments []part              `json:"attachments"`
	InReplyTo   *string             `json:"in_reply_to"`
	References  []string            `json:"references"`
	ReplyTo     []eml.Mailbox       `json:"reply_to"`
	Truncated   bool                `json:"truncated"`
}

// A part is an attachment without its bytes.
type part struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size int    `json:"size"`
	Part string `json:"part"`
}

func (a *account) get(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ID string `json:"id"`
	}
	if err := native.Decode(params, &p); err != nil {
		return nil, a.bad("get", err)
	}
	id, err := parseID(p.ID)
	if err != nil {
		return nil, a.bad("get", err)
	}
	var s summary
	var m *eml.Mail
	whole := false
	err = a.read(ctx, func(b *box) (err error) {
		s, m, whole, err = b.whole(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	m.Fit(native.MaxResult - 64<<10)
	out := full{summary: summarize(id, nil, s.Size, m), Headers: m.Headers, InReplyTo: m.InReplyTo, References: m.References, ReplyTo: m.ReplyTo, Attachments: []part{}, Truncated: !whole}
	out.Flags = s.Flags
	if whole {
		out.Text, out.HTML = &m.Text, &m.HTML
		for _, at := range m.Attachments {
			out.Attachments = append(out.Attachments, part{at.Name, at.Type, at.Size, at.Part})
		}
	} else {
		out.Problems = append(out.Problems, fmt.Sprintf("the mail has more than %d MiB; its text and attachments were not read", maxMail>>20))
	}
	return out, nil
}

// whole reads a mail; only its header if it is too large.
func (b *box) whole(id mailID) (s summary, m *eml.Mail, whole bool, err error) {
	if err := b.openFor(id, false); err != nil {
		return s, nil, false, err
	}
	found, err := b.one(id, &imap.FetchOptions{Flags: true, RFC822Size: true}, 0)
	if err != nil {
		return s, nil, false, err
	}
	section, most := &imap.FetchItemBodySection{Peek: true}, int64(maxRaw)
	if found.size > maxMail {
		section, most = headerSection, maxHeader
	}
	text, err := b.one(id, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}, most)
	switch {
	case err != nil:
		return s, nil, false, err
	case !text.section:
		return s, nil, false, b.conn.bad("of mail %d it leaves out the text", id.UID)
	case text.raw == nil:
		return s, nil, false, gone(id)
	}
	m = eml.Parse(text.raw)
	return summarize(id, found.flags, &found.size, m), m, section != headerSection, nil
}

// one asks for something of one mail.
func (b *box) one(id mailID, options *imap.FetchOptions, most int64) (told, error) {
	var found told
	if err := b.fetch(imap.UIDSetNum(id.UID), options, most, func(m told) { found = m }); err != nil {
		return found, fmt.Errorf("read the mail: %w", err)
	}
	if found.uid == 0 {
		return found, gone(id)
	}
	return found, nil
}

func (a *account) attachment(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ID     string `json:"id"`
		Part   string `json:"part"`
		Offset *int   `json:"offset"` // nil: all of it, or nothing
	}
	if err := native.Decode(params, &p); err != nil {
		return nil, a.bad("attachment", err)
	}
	id, err := parseID(p.ID)
	if err != nil {
		return nil, a.bad("attachment", err)
	}
	var m *eml.Mail
	whole := false
	err = a.read(ctx, func(b *box) (err error) {
		_, m, whole, err = b.whole(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !whole {
		return nil, a.failf("attachment", keep.ClassLogic, "too-large", "the mail has more than %d MiB", maxMail>>20)
	}
	for _, at := range m.Attachments {
		if at.Part != p.Part {
			continue
		}
		offset := 0
		if p.Offset != nil {
			offset = *p.Offset
		}
		if offset < 0 || offset > len(at.Raw) {
			return nil, a.bad("attachment", fmt.Errorf("offset is beyond the %d bytes of the attachment", len(at.Raw)))
		}
		piece := at.Raw[offset:]
		if p.Offset == nil && len(piece) > maxPiece {
			return nil, a.failf("attachment", keep.ClassLogic, "answer-too-large",
				"%q has %d bytes, more than the %d of one answer; read it in parts: pass offset: 0, then next of each part as offset until it is null", at.Name, len(piece), maxPiece)
		}
		out := map[string]any{"name": at.Name, "type": at.Type, "size": at.Size, "next": nil}
		if len(piece) > maxPiece {
			piece = piece[:maxPiece]
			out["next"] = offset + maxPiece
		}
		out["base64"] = base64.StdEncoding.EncodeToString(piece)
		return out, nil
	}
	return nil, a.failf("attachment", keep.ClassPrecondition, "no-part", "the mail %s has no attachment %q", id, p.Part)
}
