package eml_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/keep-run/keep/connector/internal/eml"
)

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
