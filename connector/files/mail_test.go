package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/connector/files"
	"github.com/keep-run/keep/connector/internal/eml"
)

// readMail returns the result of the tool for a mail with these lines.
func readMail(t testing.TB, mail, params string) eml.Mail {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.eml"), []byte(mail), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := read(t, open(t, files.Config{Root: dir}), "readMail", params)
	if err != nil {
		t.Fatal(err)
	}
	var m eml.Mail
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// crlf writes the lines as mail does.
func crlf(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

func TestReadMail(t *testing.T) {
	m := readMail(t, crlf(
		"Return-Path: <x@y>",
		`From: =?utf-8?q?Al=C3=AFce?= <alice@example.com>`,
		`To: "Doe, John" <john@example.com>, bob@example.com`,
		"Cc: undisclosed-recipients:;",
		"Subject: =?iso-8859-1?Q?Rechnung_f=FCr?=",
		" =?utf-8?b?IE1haSDigqw=?=",
		"Date: Fri, 20 Nov 2026 11:22:33 +0100 (CET)",
		"Message-ID: <abc@example.com>",
		"References: <a@b> <c@d>",
		"MIME-Version: 1.0",
		`Content-Type: multipart/mixed; boundary="outer"`,
		"",
		"preamble",
		"--outer",
		`Content-Type: multipart/alternative; boundary=inner`,
		"",
		"--inner",
		"Content-Type: text/plain; charset=iso-8859-15",
		"Content-Transfer-Encoding: quoted-printable",
		"",
		"10 =A4 f=FCr=",
		" dich",
		"--inner",
		"Content-Type: text/html; charset=utf-8",
		"Content-Transfer-Encoding: base64",
		"",
		"PGI+MTAg4oKsPC9iPg==",
		"--inner--",
		"--outer",
		"Content-Type: application/pdf",
		"Content-Disposition: attachment;",
		" filename*0*=iso-8859-1'de'%DCber;",
		` filename*1="sicht.pdf"`,
		"Content-Transfer-Encoding: base64",
		"",
		"JVBERg==",
		"--outer",
		`Content-Type: image/png; name="=?utf-8?q?b=C3=A4r.png?="`,
		"Content-Disposition: inline",
		"Content-ID: <img1>",
		"",
		"PNG",
		"--outer--",
		"epilogue",
	), `{"name":"m.eml","content":true}`)
	str := func(s string) *string { return &s }
	want := eml.Mail{
		Name: "m.eml", MessageID: str("abc@example.com"), References: []string{"a@b", "c@d"},
		Subject: "Rechnung für Mai €", From: &eml.Mailbox{Name: "Alïce", Address: "alice@example.com"},
		To: []eml.Mailbox{{Name: "Doe, John", Address: "john@example.com"}, {Address: "bob@example.com"}},
		Cc: []eml.Mailbox{}, Bcc: []eml.Mailbox{}, ReplyTo: []eml.Mailbox{},
		Date: str("2026-11-20T10:22:33Z"), Text: "10 € für dich", HTML: "<b>10 €</b>",
		Attachments: []eml.Attachment{
			{Name: "Übersicht.pdf", Type: "application/pdf", Size: 4, Content: str("JVBERg==")},
			{Name: "bär.png", Type: "image/png", Size: 3, ContentID: "img1", Inline: true, Content: str("UE5H")},
		},
		Warnings: []string{},
	}
	headers := m.Headers
	m.Headers = nil
	if diff := cmp.Diff(want, m, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Raw" || p.Last().String() == ".Part" }, cmp.Ignore())); diff != "" {
		t.Errorf("mail (-want +got):\n%s", diff)
	}
	if got := headers["subject"]; len(got) != 1 || got[0] != want.Subject {
		t.Errorf("headers.subject = %q", got)
	}
}

func TestBrokenMailsLoseNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		mail    string
		text    string // what must still be there
		warning string // part of one warning; empty: none
	}{
		"plain":                 {crlf("Subject: s", "", "hello"), "hello\n", ""},
		"bare newlines":         {"Subject: s\n\nhello\n", "hello\n", ""},
		"mbox separator":        {"From x Fri\nSubject: s\n\nhello\n", "hello\n", ""},
		"no header":             {"hello there\n", "hello there\n", "no header"},
		"empty":                 {"", "", ""},
		"header only":           {"Subject: s", "", ""},
		"junk line in header":   {crlf("Subject: s", "junk", "To: a@b", "", "hello"), "hello\n", "no fields"},
		"junk with fold":        {crlf("junk", " more", "Subject: s", "", "hello"), "hello\n", "no fields"},
		"bad date":              {crlf("Date: yesterday", "", "hello"), "hello\n", "date"},
		"bad address":           {crlf("From: alice at example.com", "", "hello"), "hello\n", "list of addresses"},
		"invalid UTF-8":         {crlf("Subject: s", "", "h\xffllo"), "h\uFFFDllo\n", "U+FFFD"},
		"invalid UTF-8 subject": {crlf("Subject: \xff", "", "hello"), "hello\n", "U+FFFD"},
		"unknown charset":       {crlf("Content-Type: text/plain; charset=klingon", "", "hello"), "hello\n", "klingon"},
		"unknown word charset":  {crlf("Subject: =?klingon?q?x?=", "", "hello"), "hello\n", "decoded"},
		"unknown encoding":      {crlf("Content-Transfer-Encoding: uuencode", "", "hello"), "hello\n", "uuencode"},
		"cut base64":            {crlf("Content-Transfer-Encoding: base64", "", "aGVsbG8gd"), "hello ", "cut off"},
		"dirty base64":          {crlf("Content-Transfer-Encoding: base64", "", "aGVs!bG8="), "hello", "do not belong"},
		"broken escapes":        {crlf("Content-Transfer-Encoding: quoted-printable", "", "a=ZZb=41"), "a=ZZbA\n", "escapes"},
		"missing end":           {crlf("Content-Type: multipart/mixed; boundary=b", "", "--b", "", "hello"), "hello\n", "no end"},
		"missing boundary":      {crlf("Content-Type: multipart/mixed", "", "hello"), "hello\n", "boundary"},
		"boundary never used":   {crlf("Content-Type: multipart/mixed; boundary=b", "", "hello"), "hello\n", "no part"},
		"broken type":           {crlf("Content-Type: text plain; ; =x; charset=\"utf-8", "", "hello"), "hello\n", ""},
		"part without header":   {crlf("Content-Type: multipart/mixed; boundary=b", "", "--b", "", "hello", "--b--"), "hello", ""},
		"comment in type":       {crlf("Content-Type: text/plain (x); charset=us-ascii", "", "hello"), "hello\n", ""},
		"broken file name": {crlf(`Content-Type: multipart/mixed; x="a\"b; boundary=no"; boundary=b; name=a b"c`, "",
			"--b", "", "hello", "--b", `Content-Disposition: attachment; filename*=klingon''%ZZ`, "", "x", "--b--"), "hello", "klingon"},
	} {
		m := readMail(t, c.mail, `{"name":"m.eml"}`)
		if m.Text != c.text {
			t.Errorf("%s: text %q, want %q", name, m.Text, c.text)
		}
		all := strings.Join(m.Warnings, "\n")
		if (all == "") != (c.warning == "") || !strings.Contains(all, c.warning) {
			t.Errorf("%s: warnings %q, want one with %q", name, all, c.warning)
		}
	}
}

func TestMailIsBounded(t *testing.T) {
	nested := strings.Repeat("Content-Type: multipart/mixed; boundary=b\n\n--b\n", 200) + "\nhello"
	parts := "Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat("--b\n\nx\n", 5000)
	fold := "Subject: s\n" + strings.Repeat(" x\n", 200_000) + "\nhello"
	fields := strings.Repeat("A: b\n", 100_000) + "\nhello"
	control := "Subject: " + strings.Repeat("\x01", 100_000) + "\nContent-Type: text/html\n\n" + strings.Repeat("\x01", 3<<20)
	for name, mail := range map[string]string{
		"nested": nested, "parts": parts, "fold": fold, "fields": fields, "control characters": control,
		"text": "Subject: s\n\n" + strings.Repeat("é", 1<<20),
	} {
		m := readMail(t, mail, `{"name":"m.eml"}`)
		if len(m.Warnings) == 0 {
			t.Errorf("%s: no warning", name)
		}
	}
}
