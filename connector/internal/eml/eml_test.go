package eml_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/keep-run/keep/connector/internal/eml"
)

// What is encoded in a list of addresses is a name, also where the list is none: no client shows it as the address.
func TestAddressIsNoEncodedWord(t *testing.T) {
	for in, want := range map[string]eml.Mailbox{
		`"<evil@example.com> =?utf-8?q?=3Cboss=40corp.com=3E?=`:      {Address: "evil@example.com"},
		`evil@example.com =?utf-8?q?=3Cboss=40corp.com=3E?= x`:       {Name: `evil@example.com <boss@corp.com> x`},
		`<evil@example.com> =?utf-8?q?=3Cboss=40corp.com=3E?=`:       {Address: "evil@example.com"},
		`=?utf-8?q?boss=40corp.com?=`:                                {Name: "boss@corp.com"},
		`=?utf-8?q?B=C3=B6ss?= x@y <boss@corp.com`:                   {Name: "Böss x@y <boss@corp.com"},
		`=?utf-8?q?B=C3=B6ss?= (a comment that has no end <a@b.com>`: {Name: "Böss (a comment that has no end", Address: "a@b.com"},
	} {
		if m := eml.Parse([]byte("From: " + in + "\n\nx")); m.From == nil || *m.From != want {
			t.Errorf("From: %s is %+v, want %+v", in, m.From, want)
		}
	}
}

// Base64 in pieces, each with its padding, is decoded whole.
func TestBase64InPieces(t *testing.T) {
	for in, want := range map[string]string{
		"YQ==\nYmM=\nZGVm\n": "abcdef", "YQ==YmM=ZGVm": "abcdef", "YWJj": "abc", "YW Jj=": "abc", "YWI": "ab", "YWJjZ": "abc", "=YWJj": "abc", "YQ=\n=": "a", "": "",
	} {
		m := eml.Parse([]byte("Content-Transfer-Encoding: base64\n\n" + in))
		if m.Text != want {
			t.Errorf("%q is %q, want %q (%v)", in, m.Text, want, m.Warnings)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--b--"), true)
	f.Add([]byte("Subject: =?utf-8?b?aGVsbG8=?=\nTo: \"a\" <b@c>, d\nDate: x\n\nbody"), false)
	f.Add([]byte("Content-Type: text/html; charset*0*=utf-8''%41; charset*1=b\nContent-Transfer-Encoding: quoted-printable\n\n=41=\n="), true)
	f.Add([]byte("Content-Disposition: attachment; filename*=iso-8859-1''%ff\nContent-Transfer-Encoding: base64\n\naGVsbG8"), true)
	f.Fuzz(func(t *testing.T, raw []byte, _ bool) {
		m := eml.Parse(raw)
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append([]string{m.Subject, m.Text, m.HTML, string(out)}, m.Warnings...) {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
		if len(m.Warnings) > 100 {
			t.Errorf("%d warnings", len(m.Warnings))
		}
	})
}
