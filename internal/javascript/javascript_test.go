package javascript_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/javascript"
)

// split returns the tokens of a text that are of the grammar, each with a space behind it, and the doubts about them.
func split(text string) (tokens string, doubts []javascript.Doubt) {
	var b strings.Builder
	for t := range javascript.Tokens(text) {
		if t.Doubt != "" {
			doubts = append(doubts, t.Doubt)
		}
		if t.Kind > javascript.Comment {
			b.WriteString(t.Text + " ")
		}
	}
	return strings.TrimSpace(b.String()), doubts
}

// What is a token, and where nobody knows, by ECMA-262.
func TestTokens(t *testing.T) {
	const none = javascript.Doubt("")
	for _, tt := range []struct {
		in, want string
		doubt    javascript.Doubt
	}{
		{"ctx?.crm.create({...a}) => 1.5e3", "ctx ?. crm . create ( { ... a } ) => 1.5e3", none},
		{"a // b '\n/* c \" */ d", "a d", none},
		{"a // b\rc // d\u2028e // f\u2029g", "a c e g", none},
		{"#!/usr/bin/env 'keep\na", "a", none},
		{" #!a", "# ! a", javascript.Foreign},
		{"#x ünï \\u0061 c\\u0074x \\u{63}tx", "#x ünï \\u0061 c\\u0074x \\u{63}tx", none},
		{"a\\x", "a \\ x", javascript.Foreign},
		{"return\u2003/a'/\u3000.b\ufeff", "return /a'/ . b", none},

		{"'a\\\r\nb' 'c\\\nd' \"e\u2028f\" 'g\\'h'", "'a\\\r\nb' 'c\\\nd' \"e\u2028f\" 'g\\'h'", none},
		{"'a\nb", "'a b", javascript.Unended},
		{"'a\rb", "'a b", javascript.Unended},
		{"`a${ b({c: `d${e}`}) }f` g", "`a ${ b ( { c : `d ${ e } ` } ) } f` g", none},
		{"`\\`${a}\\${` `${b}${c}`", "`\\` ${ a } \\${` ` ${ b } ${ c } `", none},
		{"`${a", "` ${ a", javascript.Unended},
		{"`${a}", "` ${ a }", javascript.Unended},
		{"f(a", "f ( a", javascript.Unended},
		{"a /* b", "a", javascript.Unended},
		{"(a]", "( a ]", javascript.Unmatched},
		{"a}", "a }", javascript.Unmatched},

		{"1..a 07.a 1.5.b 0x1.c 1e+5 1e-5 0xe+5 .5 a?.5:1 1_0n [...5]", "1. . a 07 . a 1.5 . b 0x1 . c 1e+5 1e-5 0xe + 5 .5 a ? .5 : 1 1_0n [ ... 5 ]", none},
		{"a+++b - --c", "a ++ + b - -- c", none},

		{"a = /[/'\"]\\//gi; b / c / d; return /x/ / 2", "a = /[/'\"]\\//gi ; b / c / d ; return /x/ / 2", none},
		{"a = /[[']]/v", "a = /[[']]/v", none},
		{"if (a) /'/.test(b); (a) / 'c' / d; for await (a of b) /'/", "if ( a ) /'/ . test ( b ) ; ( a ) / 'c' / d ; for await ( a of b ) /'/", none},
		{"a.if(b) /c/ 'd'; a?.return / 'd' / e; #of / 'f' / g", "a . if ( b ) / c / 'd' ; a ?. return / 'd' / e ; #of / 'f' / g", none},
		{"do a(); while (b) /'/.c", "do a ( ) ; while ( b ) /'/ . c", none},
		{"class A extends /'/.b {} export default /'/", "class A extends /'/ . b { } export default /'/", none},
		{"a++ / 'b' / c; ++/'/.d; e\n++/'/.f", "a ++ / 'b' / c ; ++ /'/ . d ; e ++ /'/ . f", none},
		{"!/'/.a; b !== /'/", "! /'/ . a ; b ! = = /'/", none},

		{"{} /'/.a", "{ } /'/ . a", javascript.Slash},
		{"() => {} /'/.a", "( ) => { } /'/ . a", javascript.Slash},
		{"a = {} / 'b'", "a = { } / 'b'", javascript.Slash},
		{"await /'/", "await /'/", javascript.Slash},
		{"a as void / b / c", "a as void / b / c", javascript.Slash},
		{"a! /b/ c", "a ! /b/ c", javascript.Slash},
		{"a as B<c> /b/ c", "a as B < c > /b/ c", javascript.Slash},
		{"let x\n/a'/.b", "let x / a '/.b", javascript.Slash},
		{"a\n/b", "a / b", javascript.Slash},
		{"a /*\n*/ / b", "a / b", javascript.Slash},
		{"a = /b\n'c'", "a = / b 'c'", javascript.Unended},
		{"a = /[/[/[", "a = / [ / [ / [", javascript.Unended},
		{"a <!--b", "a < ! -- b", javascript.HTML},
		{"a\n/**/-->b", "a -- > b", javascript.HTML},
		{"a-->b", "a -- > b", none},
		{"\x80 \x01", "\x80 \x01", javascript.Foreign},
	} {
		got, doubts := split(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: want -, got +:\n%s", tt.in, diff)
		}
		if len(doubts) == 0 && tt.doubt != none || len(doubts) > 0 && doubts[0] != tt.doubt {
			t.Errorf("%q: the doubts %q, want %q first", tt.in, doubts, tt.doubt)
		}
	}
}

// The tokens of any text are the text, and only the last one is empty.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "a/b/c", "`${`${`", "/[", "'\\", "#!", "if(/)/", "a\\", "\xff/", "…", "\\u{", "1.e+", "`a${}b", "\r\n", "<!--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		end, n := 0, 0
		for tok := range javascript.Tokens(text) {
			if tok.Off != end || text[end:end+len(tok.Text)] != tok.Text {
				t.Fatalf("token %q at %d, want it at %d", tok.Text, tok.Off, end)
			}
			if end += len(tok.Text); tok.Text == "" && (end < len(text) || tok.Kind != javascript.Blank || tok.Doubt == "") {
				t.Fatalf("an empty token at %d of %d", end, len(text))
			}
			if tok.Kind != javascript.Regexp && tok.Kind != javascript.String && tok.Kind != javascript.Template && tok.Kind != javascript.Comment && tok.Kind != javascript.LineEnd && tok.Ends() {
				t.Fatalf("token %q has the end of a line", tok.Text)
			}
			n++
		}
		if end != len(text) {
			t.Fatalf("the tokens end at %d of %d", end, len(text))
		}
	})
}

// However a text is written, splitting it takes a time that grows with its length.
func TestTime(t *testing.T) {
	if cputime.Used() == 0 {
		t.Skip("this system does not say what a process has used")
	}
	measure := func(part string, size int) time.Duration {
		text := strings.Repeat(part, size/len(part))
		start := cputime.Used()
		for range javascript.Tokens(text) {
		}
		return cputime.Used() - start
	}
	const small = 128 << 10
	for _, part := range []string{"/[", "=/", "=/\\", "/*", "/*/", "`${", "`${`", "'", "'\\", "\\", "\\u{1", "\\u{", "a.", "(", ")", "}", "1.e+", "<!--", "-->", "//", "#!", "\xff", "\u2028", "a\n/", "`", "if(a)/[", "++", "?.5"} {
		before := max(measure(part, small), 50*time.Millisecond)
		if after := measure(part, 4*small); after > 10*before {
			t.Errorf("%q: %v for %d bytes, %v for %d", part, before, small, after, 4*small)
		}
	}
}
