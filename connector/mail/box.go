package mail

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/eml"
)

// A mailID names one mail forever: servers number a folder anew under another validity.
type mailID struct {
	Folder   string
	Validity uint32
	UID      imap.UID
}

// String writes what parseID reads.
func (id mailID) String() string { return fmt.Sprintf("%s;%d;%d", id.Folder, id.Validity, id.UID) }

// parseID reads FOLDER;UIDVALIDITY;UID. The name of a folder may hold semicolons.
func parseID(s string) (mailID, error) {
	bad := fmt.Errorf("%q is not the id of a mail, such as INBOX;1700000000;42", s)
	rest, uid, ok1 := cutLast(s)
	folder, validity, ok2 := cutLast(rest)
	u, err1 := strconv.ParseUint(uid, 10, 32)
	v, err2 := strconv.ParseUint(validity, 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || u == 0 || checkFolder(folder) != nil {
		return mailID{}, bad
	}
	return mailID{folder, uint32(v), imap.UID(u)}, nil
}

// cutLast splits at the last semicolon.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ';')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// checkFolder refuses names that no folder can have.
func checkFolder(name string) error {
	if name == "" || len(name) > 1000 || hasControl(name) {
		return fmt.Errorf("folder: %q is not the name of a folder", name)
	}
	return nil
}

// open selects a folder. Without write nothing in it changes.
func (b *box) open(folder string, write bool) (*imap.SelectData, error) {
	b.conn.expect()
	data, err := b.Select(folder, &imap.SelectOptions{ReadOnly: !write}).Wait()
	if err != nil {
		return nil, fmt.Errorf("open the folder %q: %w", folder, b.cause(err))
	}
	return data, nil
}

// openFor selects the folder of id. If it was numbered anew, the mail is gone.
func (b *box) openFor(id mailID, write bool) error {
	data, err := b.open(id.Folder, write)
	if err != nil {
		return err
	}
	if err := lasting(id.Folder, data); err != nil {
		return err
	}
	if data.UIDValidity != id.Validity {
		return keep.Failf(keep.ClassPrecondition, "gone",
			"the server has numbered the mails of %s anew (UIDVALIDITY is %d), so that %s is gone; search for the mail", id.Folder, data.UIDValidity, id)
	}
	return nil
}

// lasting returns an error if the numbers of a folder name other mails tomorrow: a server without UIDVALIDITY says so (RFC 3501, 6.3.1).
func lasting(folder string, data *imap.SelectData) error {
	if data.UIDValidity != 0 {
		return nil
	}
	return keep.Failf(keep.ClassPrecondition, "no-uidvalidity", "the server gives the mails of %s no numbers that last (it has no UIDVALIDITY there), so no id can name one", folder)
}

// gone is the failure of a call for a mail that is not there.
func gone(id mailID) *keep.Failure {
	return keep.Failf(keep.ClassPrecondition, "gone", "there is no mail %s any more: it was moved or deleted", id)
}

// messageIDField is the one field that a lookup compares.
var messageIDField = &imap.FetchItemBodySection{Specifier: imap.PartSpecifierHeader, HeaderFields: []string{"Message-ID"}, Peek: true}

// peek returns flags and Message-ID of a mail; nil if it is not there.
func (b *box) peek(uid imap.UID) (*imapMail, error) {
	list, err := b.peekAll(imap.UIDSetNum(uid))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// An imapMail is what a change needs to know of a mail.
type imapMail struct {
	uid       imap.UID
	messageID string   // without brackets; empty: it has none
	others    []string // that were added to it
	flags     []string
}

// peekAll returns the mails of set that are there, and an error if the server says less of one
// than it was asked: what it left out is not absent.
func (b *box) peekAll(set imap.UIDSet) (out []imapMail, err error) {
	var partly imap.UID
	options := &imap.FetchOptions{Flags: true, BodySection: []*imap.FetchItemBodySection{messageIDField}}
	err = b.fetch(set, options, maxHeader, func(f told) {
		if f.flags == nil || !f.section {
			partly = f.uid
		}
		m := imapMail{uid: f.uid, flags: flagNames(f.flags)}
		if ids := eml.MessageIDs(f.raw); len(ids) > 0 {
			m.messageID, m.others = ids[0], ids[1:]
		}
		out = append(out, m)
	})
	if err == nil && partly != 0 {
		err = b.conn.bad("of mail %d it leaves out the flags or the Message-ID", partly)
	}
	if err != nil {
		return nil, fmt.Errorf("read the mail: %w", err)
	}
	return out, nil
}

// maxFound bounds the mails that are compared with a Message-ID.
const maxFound = 100

// look returns the mail with that Message-ID in a folder; nil if there is none.
func (a *account) look(ctx context.Context, folder, messageID string) (*mailID, error) {
	b, stop, err := a.mailbox(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	return b.look(folder, messageID)
}

// look returns the first of the mails with that Message-ID in a folder; nil if there is none.
func (b *box) look(folder, messageID string) (*mailID, error) {
	list, err := b.lookAll(folder, messageID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// lookAll searches and compares: a server searches for a part of the field. Of very many it returns some.
func (b *box) lookAll(folder, messageID string) (found []mailID, err error) {
	data, err := b.open(folder, false)
	if err != nil {
		return nil, err
	}
	criteria := &imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: "Message-ID", Value: messageID}}}
	uids, err := b.find(folder, criteria, 0, maxFound+1)
	if err != nil || len(uids) == 0 {
		return nil, err
	}
	list, err := b.peekAll(imap.UIDSetNum(uids[:min(len(uids), maxFound)]...))
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.messageID == messageID || slices.Contains(m.others, messageID) {
			found = append(found, mailID{folder, data.UIDValidity, m.uid})
		}
	}
	if len(found) == 0 && len(list) < len(uids) { // one that was not read may be the one
		return nil, keep.Failf(keep.ClassTransient, "incomplete",
			"the server found %d or more mails for the Message-ID %s in %q, and only %d could be compared; look there yourself if it stays so", len(uids), messageID, folder, len(list))
	}
	return found, nil
}

// flags by the names that scripts use. Others are keywords, the same in both.
var flagsByName = map[string]imap.Flag{
	"seen": imap.FlagSeen, "answered": imap.FlagAnswered, "flagged": imap.FlagFlagged, "draft": imap.FlagDraft, "deleted": imap.FlagDeleted,
}

// flagNames returns flags as scripts name them, sorted.
func flagNames(flags []imap.Flag) []string {
	out := []string{}
	for _, f := range flags {
		name := string(f)
		if system, ok := strings.CutPrefix(name, `\`); ok {
			name = strings.ToLower(system)
			if name == "recent" { // says that no other session has seen it, and nothing of the mail
				continue
			}
		}
		out = append(out, strings.ToValidUTF8(name, "\uFFFD"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parseFlags reads the names of scripts.
func parseFlags(names []string) ([]imap.Flag, error) {
	var out []imap.Flag
	for _, name := range names {
		f, ok := flagsByName[strings.ToLower(name)]
		if !ok {
			f = imap.Flag(name)
			if !isKeyword(name) {
				return nil, fmt.Errorf("%q is not a flag: seen, answered, flagged, draft, deleted, or a word of letters, digits, $, - and _", name)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// isKeyword reports whether a name is a keyword that any server can keep.
func isKeyword(s string) bool {
	for _, c := range []byte(s) {
		if c != '$' && c != '-' && c != '_' && !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= 50
}
