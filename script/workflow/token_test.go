package workflow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The reader of tokens is not fooled by what looks like code and is not.
func TestScan(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"names and punctuation", `ctx?.crm.create({...a}) => 1.5e3`, `ctx ?. crm . create ( { ... a } ) => 1.5e3`},
		{"comments", "a // b '\n/* c \" */ d /*", `a d`},
		{"ends of a line in comments", "a // b\rc // d\u2028e // f\u2029g", "a c e g"},
		{"strings", `'a\'b' "c//d" 'open` + "\n" + `e`, `'a\'b' "c//d" 'open e`},
		{"template", "`a${ b({c: `d${e}`}) }f` g", "`a ${ b ( { c : `d ${ e } ` } ) } f` g"},
		{"template, escaped", "`\\`${a}\\${` b", "`\\` ${ a } \\${` b"},
		{"regexp", `a = /[/'"]\//g; b / c / d; return /x/`, `a = /[/'"]\//g ; b / c / d ; return /x/`},
		{"regexp after a condition", `if (a) /'/.test(b); (a) / 'c' / d`, `if ( a ) /'/ . test ( b ) ; ( a ) / 'c' / d`},
		{"division of a call", `f(1) / 2; a[0] / 2 // "x`, `f ( 1 ) / 2 ; a [ 0 ] / 2`},
		{"hashbang", "#!/usr/bin/env 'keep\na", "a"},
		{"private and unicode", `#x ünï \u0061 "ü"`, `#x ünï \u0061 "ü"`},
		{"not a program", "}}}) \x80 ` ${", "} } } ) \x80 ` ${"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			tokens, _ := scan(tt.in)
			for _, tok := range tokens {
				got = append(got, strings.TrimSpace(tok.text))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("scan(%q): want -, got +:\n%s", tt.in, diff)
			}
		})
	}
}

// Columns count UTF-16 units, as the engine's do; both ways agree.
func TestPositions(t *testing.T) {
	f := newFile("a.js", "é𝄞x\n\ny")
	for _, tt := range []struct {
		off  int
		want Position
	}{
		{0, Position{"a.js", 1, 1}},
		{2, Position{"a.js", 1, 2}},
		{6, Position{"a.js", 1, 4}},
		{8, Position{"a.js", 2, 1}},
		{9, Position{"a.js", 3, 1}},
	} {
		if got := f.position(tt.off); got != tt.want {
			t.Errorf("position(%d) = %v, want %v", tt.off, got, tt.want)
		}
		if got := f.offset(tt.want); got != tt.off {
			t.Errorf("offset(%v) = %d, want %d", tt.want, got, tt.off)
		}
	}
	if got := f.offset(Position{"a.js", 9, 9}); got != len(f.text) {
		t.Errorf("offset past the end = %d, want %d", got, len(f.text))
	}
}

func TestNearest(t *testing.T) {
	words := []string{"subscribe", "publishes", "prepare", "mutate", "next"}
	for in, want := range map[string]string{
		"subscibe": "subscribe", "perpare": "prepare", "publish": "publishes", "Mutate": "mutate",
		"netx": "next", "handler": "", "x": "", "": "",
	} {
		if got := nearest(in, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

// The tokens of any text are pieces of it, in order and without overlap, and
// every place in it can be found.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"", "a/b/c", "`${`${`", "/[", "'\\", "#!", "if(/)/", "a\\", "\xff/", "…"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := newFile("f", text)
		end := 0
		for _, tok := range file.tokens {
			if tok.off < end || tok.off+len(tok.text) > len(text) || text[tok.off:tok.off+len(tok.text)] != tok.text {
				t.Fatalf("token %q at %d after %d is no piece of the text", tok.text, tok.off, end)
			}
			end = tok.off + len(tok.text)
			if p := file.position(tok.off); p.Line < 1 || p.Column < 1 {
				t.Fatalf("token %q at %v", tok.text, p)
			}
		}
		for i := range file.tokens {
			file.object(i, "{")
			for _, s := range file.parts(i) {
				file.keyText(file.keyOf(s))
			}
			if i > 200 {
				break
			}
		}
		file.call("workflow", Position{Line: 1, Column: 1})
	})
}
