package workflow

import (
	"regexp"
	"strings"
	"sync"
)

// An ItemPattern is the form of the ids that a job gives its items: text in which
// each * stands for something that is computed.
type ItemPattern string

// Matches reports whether an id can be of that form.
func (p ItemPattern) Matches(id string) bool {
	parts := strings.Split(string(p), "*")
	if len(parts) == 1 {
		return id == parts[0]
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(id, first) || !strings.HasSuffix(id[len(first):], last) {
		return false
	}
	rest := id[len(first) : len(id)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// What is read of a script at most: the calls, the names and the terms that are
// followed, and how deep. What is beyond is not known.
const (
	maxItemCalls = 50
	maxNames     = 50
	maxTerms     = 2000
	maxNested    = 4
	maxText      = 4 << 10 // of an expression, in bytes
)

var withItem = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bwithItem\b\s*(\(?)\s*`) })

// ItemPatterns returns the forms of the ids in the withItem calls of a script. It
// reads the text of its bundle, local imports included, and runs nothing: strings,
// templates and sums of them, with what constants and functions of one expression
// add to them. Whatever else is computed is a *.
//
// known is false if there is no call, or if nothing can be said about the ids of
// one: then nothing can be said about any item.
func ItemPatterns(code []byte) (patterns []ItemPattern, known bool) {
	r := &idReader{text: string(code)}
	for i, m := range withItem().FindAllStringSubmatchIndex(r.text, maxItemCalls+1) {
		if m[2] == m[3] || i == maxItemCalls {
			return nil, false // it is called by another name, perhaps
		}
		p, _ := r.sum(r.from(m[1]), 0)
		if p == "*" || strings.ContainsAny(p, "\\\n") {
			return nil, false
		}
		patterns = append(patterns, ItemPattern(p))
	}
	return patterns, len(patterns) > 0
}

// An idReader reads expressions in the text of a script.
type idReader struct {
	text         string
	names, terms int // that were followed
}

// from returns the text from i on, as far as an expression is read.
func (r *idReader) from(i int) string { return r.text[i:min(len(r.text), i+maxText)] }

// sum reads terms with + between them, and returns their pattern and what is left
// of the text.
func (r *idReader) sum(text string, depth int) (pattern, rest string) {
	var out strings.Builder
	whole := text
	for {
		p, after := r.term(strings.TrimSpace(text), depth)
		out.WriteString(p)
		after = strings.TrimLeft(after, " \t\r\n")
		switch {
		case after == "" || strings.ContainsRune(",);}]", rune(after[0])):
			return stars().ReplaceAllString(out.String(), "*"), after
		case after[0] != '+' || strings.HasPrefix(after, "++"):
			return "*", skip(whole) // another operator
		}
		text = after[1:]
	}
}

var (
	stars = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\*+`) })
	name  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_$][\w$]*`) })
)

// term reads one term.
func (r *idReader) term(text string, depth int) (pattern, rest string) {
	if r.terms++; text == "" || r.terms > maxTerms {
		return "*", ""
	}
	p := "*"
	switch id := name().FindString(text); {
	case strings.ContainsRune("\"'`", rune(text[0])):
		p, rest = r.literal(text, depth)
	case id != "" && depth < maxNested:
		if rest = text[len(id):]; strings.HasPrefix(rest, "(") {
			p, rest = r.function(id, depth), strings.TrimPrefix(skip(rest[1:]), ")")
		} else {
			p = r.constant(id, depth)
		}
	default:
		return "*", skipTerm(text)
	}
	if rest != "" && strings.ContainsRune(".([`?", rune(rest[0])) { // something is made of it
		return "*", skipTerm(rest)
	}
	return p, rest
}

// literal reads a string or a template.
func (r *idReader) literal(text string, depth int) (pattern, rest string) {
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			return out.String(), text[i+1:]
		case text[i] == '\\' || text[i] == '*': // rare enough to leave
			return "*", skipTerm(text)
		case text[0] == '`' && strings.HasPrefix(text[i:], "${"):
			p, after := r.sum(text[i+2:], depth)
			if !strings.HasPrefix(after, "}") {
				return "*", skipTerm(text)
			}
			out.WriteString(p)
			i = len(text) - len(after)
		default:
			out.WriteByte(text[i])
		}
	}
	return "*", ""
}

// constant returns what a name stands for, if it is given a value once and is no
// parameter.
func (r *idReader) constant(id string, depth int) string {
	if r.names++; r.names > maxNames {
		return "*"
	}
	q := regexp.QuoteMeta(id)
	set := regexp.MustCompile(`(?:^|[^\w$.])` + q + `\s*(?:[-+*/%&|^?<>]*=[^=>]|\+\+|--)`)
	param := regexp.MustCompile(`(?:[(,]|(?:^|[^$])\{)\s*(?:\.\.\.)?` + q + `\s*[,)=}]|(?:^|[^\w$.])` + q + `\s*=>`)
	declared := regexp.MustCompile(`\b(?:const|let|var)\s+`+q+`\s*=\s*`).FindAllStringIndex(r.text, 2)
	if len(declared) != 1 || len(set.FindAllStringIndex(r.text, 2)) != 1 || param.MatchString(r.text) {
		return "*"
	}
	p, _ := r.sum(r.from(declared[0][1]), depth+1)
	return p
}

// function returns what a function gives back, if it is one expression.
func (r *idReader) function(id string, depth int) string {
	if r.names++; r.names > maxNames {
		return "*"
	}
	q := regexp.QuoteMeta(id)
	bodies := regexp.MustCompile(`\bfunction\s+`+q+`\s*\([^()]*\)\s*\{\s*return\b|\b(?:const|let|var)\s+`+q+`\s*=\s*(?:\([^()]*\)|[\w$]+)\s*=>`).
		FindAllStringIndex(r.text, 2)
	made := regexp.MustCompile(`\bfunction\s+`+q+`\b|(?:^|[^\w$.])`+q+`\s*=[^=>]`).FindAllStringIndex(r.text, 2)
	if len(bodies) != 1 || len(made) != 1 {
		return "*"
	}
	body := strings.TrimSpace(r.from(bodies[0][1]))
	if strings.HasPrefix(body, "{") {
		inner := strings.TrimSpace(body[1:])
		if !strings.HasPrefix(inner, "return ") && !strings.HasPrefix(inner, "return`") {
			return "*"
		}
		body = inner[len("return"):]
	}
	p, _ := r.sum(body, depth+1)
	return p
}

// skip returns what is left of text after an expression: from the comma, the
// semicolon or the bracket that ends it.
func skip(text string) string { return text[end(text, ",;"):] }

// skipTerm is skip for one term: it ends at an operator, too.
func skipTerm(text string) string { return text[end(text, ",;+ \n"):] }

// end returns the index of the first of these characters, or of a closing bracket,
// outside of strings and brackets.
func end(text, ends string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte("\"'`", c) >= 0:
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			if depth == 0 {
				return i
			}
			depth--
		case depth == 0 && strings.IndexByte(ends, c) >= 0:
			return i
		}
	}
	return len(text)
}
