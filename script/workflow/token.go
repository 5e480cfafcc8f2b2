package workflow

import "github.com/keep-run/keep/internal/javascript"

// A token is a piece of JavaScript or TypeScript. Comments and blanks are none.
type token struct {
	kind javascript.Kind
	text string
	off  int // bytes into the text
}

const (
	tName     = javascript.Name
	tString   = javascript.String
	tTemplate = javascript.Template
	tNumber   = javascript.Number
	tPunct    = javascript.Punct
)

// is reports whether t is that punctuator, and not a string that looks like it.
func (t token) is(punct string) bool { return t.kind == tPunct && t.text == punct }

// opens and closes recognise brackets, "${" among them.
func (t token) opens() bool {
	return t.kind == tPunct && (t.text == "{" || t.text == "(" || t.text == "[" || t.text == "${")
}

func (t token) closes() bool {
	return t.kind == tPunct && (t.text == "}" || t.text == ")" || t.text == "]")
}

// scan returns the tokens of text, and whether it is certain that they are those of the program.
func scan(text string) (tokens []token, certain bool) {
	certain = true
	for t := range javascript.Tokens(text) {
		certain = certain && t.Doubt == ""
		if t.Kind > javascript.Comment {
			tokens = append(tokens, token{t.Kind, t.Text, t.Off})
		}
	}
	return tokens, certain
}
