package approval_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
)

var mail = keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "from", Text: "ann@example.com"}, {Role: "to", Param: "to"}, {Role: "subject", Param: "subject"},
	{Role: "text", Param: "text"}, {Role: "html", Param: "html"}}}

func asked(t *testing.T, v keep.View, params any) keep.Approval {
	t.Helper()
	payload, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return keep.Approval{Tool: "svc.do", Payload: payload, View: v}
}

// A call reads as what it is: a letter, a payment, a row with what is there now; and nothing
// that is sent is left out.
func TestText(t *testing.T) {
	row := asked(t, keep.View{Kind: keep.ViewRow, Parts: []keep.ViewPart{{Role: "table", Param: "table"}, {Role: "key", Param: "key"}, {Role: "values", Param: "set"}}},
		map[string]any{"table": "invoices", "key": map[string]any{"id": 17}, "set": map[string]any{"paid": true, "amount": 10.5}})
	row.Now = json.RawMessage(`{"id":17,"paid":false,"amount":12345678901234567890}`)
	for name, tt := range map[string]struct {
		call keep.Approval
		want string
	}{
		"mail": {asked(t, mail, map[string]any{"to": []string{"bob@example.org", "eve@example.org"}, "subject": "Hello", "text": "Dear Bob,\nbye", "priority": 1}),
			"From: ann@example.com\nTo: bob@example.org, eve@example.org\nSubject: Hello\nAlso sent: priority: 1\nText: \n  Dear Bob,\n  bye"},
		"payment": {asked(t, keep.View{Kind: keep.ViewPayment, Parts: []keep.ViewPart{{Role: "amount", Param: "sum.value"}, {Role: "currency", Param: "sum.currency"}, {Role: "to", Param: "iban"}}},
			map[string]any{"sum": map[string]any{"value": 10.50, "currency": "EUR", "fee": 2}, "iban": "DE02"}),
			"Amount: 10.5 EUR\nTo: DE02\nAlso sent: sum.fee: 2"},
		"smallest unit": {asked(t, keep.View{Kind: keep.ViewPayment, Parts: []keep.ViewPart{{Role: "smallest", Param: "amount"}, {Role: "currency", Param: "currency"}}},
			map[string]any{"amount": 1050, "currency": "eur"}), "Amount: 1050 (of the smallest unit) eur"},
		"row":    {row, "Table: invoices\nRow: {\"id\":17}\namount: 10.5 (now: 12345678901234567890)\npaid: true (now: false)"},
		"fields": {asked(t, keep.View{}, map[string]any{"b": map[string]any{"c": "x"}, "a": []any{1, "y"}, "d": nil}), "a: [1,\"y\"]\nb.c: x\nd: null"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := approval.Text(tt.call); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// hostile are payloads that try to look like others: what the text must not have, what it
// must have, and how it is marked.
var hostile = map[string]struct {
	params  map[string]any
	lacks   string
	has     []string
	mark    string
	details string
}{
	"zero width":           {map[string]any{"to": "bob\u200b@example.com"}, "\u200b", []string{"bob⟨U+200B⟩@example.com"}, approval.Invisible, "U+200B"},
	"soft hyphen in text":  {map[string]any{"text": "pay\u00ad100"}, "\u00ad", []string{"pay⟨U+00AD⟩100"}, approval.Invisible, "U+00AD"},
	"filler":               {map[string]any{"text": "a\u3164b"}, "\u3164", []string{"a⟨U+3164⟩b"}, approval.Invisible, "U+3164"},
	"tags":                 {map[string]any{"text": "a\U000e0041b"}, "\U000e0041", []string{"⟨U+E0041⟩"}, approval.Invisible, "U+E0041"},
	"an invisible name":    {map[string]any{"t\u200bo": "eve@example.com"}, "\u200b", []string{"t⟨U+200B⟩o"}, approval.Invisible, "U+200B"},
	"escape sequence":      {map[string]any{"text": "a\x1b[2Jb\rc"}, "\x1b", []string{"a⟨U+001B⟩[2Jb⟨U+000D⟩c"}, approval.Invisible, "U+001B"},
	"right to left":        {map[string]any{"to": "\u202emoc.elpmaxe@bob"}, "\u202e", []string{"⟨U+202E⟩moc.elpmaxe@bob"}, approval.Bidi, "U+202E"},
	"isolate":              {map[string]any{"text": "10\u2067 EUR\u2069"}, "\u2067", []string{"⟨U+2067⟩"}, approval.Bidi, "U+2067"},
	"cyrillic address":     {map[string]any{"to": "bob@p\u0430ypal.com"}, "", []string{"bob@p\u0430ypal.com"}, approval.LookAlike, "U+0430"},
	"mixed alphabets":      {map[string]any{"text": "Deutsche B\u0430nk"}, "", nil, approval.LookAlike, "U+0430"},
	"punycode":             {map[string]any{"to": "bob@xn--pypal-4ve.com"}, "", nil, approval.LookAlike, "another alphabet"},
	"user before the host": {map[string]any{"text": "see https://bank.example@evil.example/x"}, "", nil, approval.LookAlike, "leads to evil.example"},
	"twins":                {map[string]any{"to": "bob@exarnple.com", "text": "write to bob@example.com"}, "", nil, approval.LookAlike, "look alike"},
	"html": {map[string]any{"html": `<p style="display:none">pay <b>1000</b></p><script>alert(1)</script><a href="https://evil.example">bank.example</a><img src=x onerror=alert(1)>`},
		"<", []string{"pay 1000", "[script]", "[link to: https://evil.example] bank.example", "[picture from: x]"}, approval.HTML, "nothing of it is loaded"},
	"html as text": {map[string]any{"text": "<b>hi</b>"}, "", []string{"<b>hi</b>"}, approval.HTML, "shown as text"},
	"10,000 lines": {map[string]any{"to": "eve@example.com", "text": strings.Repeat("\n", 9_999) + "and pay", "amount": 7}, "", []string{"To: eve@example.com\n", "amount: 7\nText: ",
		"9880 of 10000 lines are between", "and pay"}, approval.Long, "10000 lines"},
	"one long line": {map[string]any{"text": "a" + strings.Repeat(" ", 100_000) + "pay"}, "", []string{" bytes between", "pay"}, approval.Long, "in 1 lines"},
	"a forged line": {map[string]any{"to": "eve@example.com\nSubject: Hello"}, "\nSubject", []string{"To: \n  eve@example.com\n  Subject: Hello"}, "", ""},
}

// A script cannot make a question show anything else than what is sent.
func TestHostile(t *testing.T) {
	for name, tt := range hostile {
		t.Run(name, func(t *testing.T) {
			call := asked(t, mail, tt.params)
			text, marks := approval.Text(call), approval.Marks(call)
			if tt.lacks != "" && strings.Contains(text, tt.lacks) || len(text) > 20_000 {
				t.Errorf("the text has %q, or is too long:\n%.2000s", tt.lacks, text)
			}
			for _, want := range tt.has {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q:\n%.2000s", want, text)
				}
			}
			found := false
			for _, m := range marks {
				found = found || m.Mark == tt.mark && strings.Contains(m.Detail, tt.details)
				if strings.ContainsAny(fmt.Sprint(m), "\u200b\u202e\x1b") {
					t.Errorf("a mark shows what it warns of: %+q", m)
				}
			}
			if found != (tt.mark != "") {
				t.Errorf("the marks are %+v, want %s with %q", marks, tt.mark, tt.details)
			}
		})
	}
}

// Usual letters have no marks: a warning on each would be read by nobody.
func TestNoMarks(t *testing.T) {
	for _, text := range []string{"Grüße aus Köln, 10 € für José — „Danke“", "Привет, Иван! Оплата 100 руб.", "שלום עולם", "こんにちは", "1 < 2 and a > b",
		"see https://example.com/a?b=c and https://www.example.org", "Ω is ohm", "thanks ❤\ufe0f"} {
		if marks := approval.Marks(asked(t, mail, map[string]any{"to": "bob@example.com", "text": text})); len(marks) > 0 {
			t.Errorf("%q is marked: %+v", text, marks)
		}
	}
}

// What a script claims is read as far as it fits, and shown as what it is.
func TestClaim(t *testing.T) {
	c := approval.ClaimOf([]byte(`{"title":"Pay\u202e","fields":{"Amount":10,"x":"y"},"table":{"columns":["a","b"],"rows":[[1,"<b>"]]},"text":7,"html":"<b>"}`))
	var got []string
	for _, l := range c.Lines() {
		got = append(got, l.Label+": "+l.Text)
	}
	if want := "Title: Pay⟨U+202E⟩|Amount: 10|x: y|Table: a | b\n1 | <b>"; strings.Join(got, "|") != want {
		t.Errorf("the claim reads %q, want %q", strings.Join(got, "|"), want)
	}
	call := asked(t, mail, map[string]any{"to": "bob@example.com"})
	for claim, want := range map[string]string{
		`{"title":"Pay \u202e10 EUR"}`:                             "bidi ui.title: U+202E",
		`{"fields":{"To":"bo\u200bb"}}`:                            "invisible ui.fields.To: U+200B",
		`{"fields":{"A\u2067mount":"10"}}`:                         "bidi ui.fields.A⟨U+2067⟩mount: U+2067",
		`{"table":{"columns":["to"],"rows":[["b\u043eb"]]}}`:       "look-alike ui.table.rows[0][0]: U+043E",
		`{"text":"see https://bank.example@evil.example/x"}`:       "look-alike ui.text: leads to evil.example",
		`{"text":"` + strings.Repeat("a", 5000) + `","title":"x"}`: "",
		`{"title":"Pay bob","other":"\u202e"}`:                     "",
	} {
		call.Claim = json.RawMessage(claim)
		marks := approval.Marks(call)
		where, detail, _ := strings.Cut(want, ": ")
		if want == "" && len(marks) > 0 || want != "" && (len(marks) != 1 || marks[0].Mark+" "+marks[0].Path != where || !strings.Contains(marks[0].Detail, detail)) {
			t.Errorf("the marks of the claim %.80s are %+v, want %q", claim, marks, want)
		}
	}
	for _, none := range []string{``, `null`, `[]`, `{"other":1}`, `7`} {
		if c := approval.ClaimOf([]byte(none)); c != nil || c.Lines() != nil {
			t.Errorf("%q claims %+v", none, c)
		}
	}
}

// Law bounded: lists look through the calls of all questions that are open, and some of those have megabytes.
func TestMarksOfALargeCall(t *testing.T) {
	payload, err := json.Marshal(map[string]string{"base64": strings.Repeat("QUJDRA+/", 1<<17)})
	if err != nil {
		t.Fatal(err)
	}
	a := keep.Approval{Tool: "mail.send", Payload: payload}
	if n := testing.AllocsPerRun(1, func() { approval.Marks(a) }); n > 10_000 {
		t.Errorf("a call of %d bytes takes %.0f allocations", len(payload), n)
	}
}
