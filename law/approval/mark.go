package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/keep-run/keep"
)

// A Mark says that what is sent may not be what it seems to a reader.
type Mark struct {
	Mark   string `json:"mark" enum:"invisible,bidi,look-alike,long,html"`
	Path   string `json:"path"` // in the payload, or in what the script says of it: then it begins with ui.
	Detail string `json:"detail"`
}

// What marks say.
const (
	Invisible = "invisible"
	Bidi      = "bidi"
	LookAlike = "look-alike"
	Long      = "long"
	HTML      = "html"
)

// maxMarks bounds the marks of one call.
const maxMarks = 50

// Marks returns what a reader of the call should know about its texts, and about those of the
// script's claim, in the order of their paths.
func Marks(a keep.Approval) []Mark {
	marks := marksIn(a.Payload, "")
	for _, m := range marksIn(ClaimOf(a.Claim).texts(), "ui") {
		if m.Mark != Long { // nothing that is sent is out of sight
			marks = append(marks, m)
		}
	}
	if more := len(marks) - maxMarks; more > 0 {
		marks = marks[:maxMarks]
		marks[maxMarks-1].Detail += fmt.Sprintf("; %d more marks are not listed", more)
	}
	return marks
}

// marksIn returns the marks of the texts of a value, which is at a path.
func marksIn(value json.RawMessage, at string) (marks []Mark) {
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	texts := map[string]string{}
	walk(v, at, texts)
	domains := map[string]string{} // by what they look like
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		marks = append(marks, marksOf(Visible(path), path+"\n"+texts[path], texts[path], domains)...)
	}
	return marks
}

// walk collects the texts of a value by path; names count as well, with an empty text.
func walk(v any, path string, texts map[string]string) {
	switch v := v.(type) {
	case string:
		texts[path] = v
	case []any:
		for i, e := range v {
			walk(e, fmt.Sprintf("%s[%d]", path, i), texts)
		}
	case map[string]any:
		for name, e := range v {
			at := member(path, name)
			texts[at] = ""
			walk(e, at, texts)
		}
	}
}

var (
	tagged  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<[a-zA-Z!/][^>]*>`) })
	address = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:https?://)?(?:[^\s<>"'(),;:/@]+@)*[^\s<>"'(),;:/@]+\.[^\s<>"'(),;:/@]+`)
	})
)

// marksOf returns the marks of one text. named is the text with the name of its param.
func marksOf(path, named, text string, domains map[string]string) (marks []Mark) {
	add := func(mark, format string, args ...any) {
		marks = append(marks, Mark{mark, path, fmt.Sprintf(format, args...)})
	}
	if chars := chars(named, func(r rune) bool { return unseen(r) && !turns(r) && !control(r) }); chars != "" {
		add(Invisible, "has characters that cannot be seen: %s", chars)
	}
	if chars := chars(named, control); chars != "" {
		add(Invisible, "has control characters: %s", chars)
	}
	if chars := chars(named, turns); chars != "" {
		add(Bidi, "has characters that reverse the direction of text: %s", chars)
	}
	lines := strings.Count(text, "\n") + 1
	if longest := slices.MaxFunc(strings.Split(text, "\n"), func(a, b string) int { return len(a) - len(b) }); lines > maxLines || len(longest) > maxLine {
		add(Long, "has %d bytes in %d lines; its middle is not shown here", len(text), lines)
	}
	if tagged().MatchString(text) {
		add(HTML, "has HTML, which is shown as text; nothing of it is loaded or run")
	}
	for _, word := range slices.Compact(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })) {
		if mixed(word) {
			add(LookAlike, "“%s” mixes letters of several alphabets: %s", Visible(word), foreign(word))
			break
		}
	}
	if !strings.Contains(text, ".") { // base64 has megabytes without
		return marks
	}
	for i, found := range address().FindAllString(text, maxMarks+1) {
		if i == maxMarks {
			add(LookAlike, "has more than %d addresses; the others are not compared", maxMarks)
			break
		}
		if why := odd(found, domains); why != "" {
			add(LookAlike, "%s", why)
		}
	}
	return marks
}

// odd returns why an address may be taken for another one.
func odd(found string, domains map[string]string) string {
	bare := found
	if _, rest, ok := strings.Cut(found, "://"); ok {
		bare = rest
		if strings.Contains(rest, "@") {
			return fmt.Sprintf("“%s” leads to %s, and not to what stands before the @", Visible(found), Visible(rest[strings.LastIndex(rest, "@")+1:]))
		}
	}
	domain := strings.ToLower(bare[strings.LastIndex(bare, "@")+1:])
	if ascii := strings.IndexFunc(bare, func(r rune) bool { return r > 0x7e }) < 0; !ascii {
		return fmt.Sprintf("the address “%s” has letters that are not ASCII: %s", Visible(bare), foreign(bare))
	}
	if slices.ContainsFunc(strings.Split(domain, "."), func(part string) bool { return strings.HasPrefix(part, "xn--") }) {
		return fmt.Sprintf("the address “%s” is written in another alphabet where it is shown", bare)
	}
	seems := skeleton.Replace(domain)
	if other, known := domains[seems]; known && other != domain {
		return fmt.Sprintf("“%s” and “%s” look alike, and are two", other, domain)
	}
	domains[seems] = domain
	return ""
}

// skeleton makes domains equal that look alike in usual fonts.
var skeleton = strings.NewReplacer("rn", "m", "vv", "w", "cl", "d", "0", "o", "1", "l", "i", "l", "5", "s", "-", "")

// mixed reports whether a word has letters of Latin and of an alphabet that looks like it.
func mixed(word string) bool {
	latin, like := false, false
	for _, r := range word {
		latin = latin || unicode.Is(unicode.Latin, r)
		like = like || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee)
	}
	return latin && like
}

// foreign lists the letters of s that are not ASCII.
func foreign(s string) string { return chars(s, func(r rune) bool { return r > 0x7e }) }

// chars lists up to five different characters of s by their numbers.
func chars(s string, is func(rune) bool) string {
	var list []string
	for _, r := range s {
		if !is(r) { // most are not
			continue
		}
		one := fmt.Sprintf("U+%04X", r)
		if unicode.IsLetter(r) {
			one = fmt.Sprintf("%c is U+%04X", r, r)
		}
		if slices.Contains(list, one) {
			continue
		}
		if list = append(list, one); len(list) == 5 {
			break
		}
	}
	return strings.Join(list, ", ")
}

// turns reports whether r changes the direction of the text around it.
func turns(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// control reports whether r is a control character beside ends of lines and tabs.
func control(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// unseen reports whether a reader does not see r, or sees other characters because of it.
func unseen(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case keep.Deceives(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0: // fillers
		return true
	case r >= 0x180b && r <= 0x180f, r >= 0xfe00 && r <= 0xfe0e, r >= 0xe0100 && r <= 0xe01ef: // variants
		return true
	case unicode.Is(unicode.Zs, r) && r != ' ': // spaces of other widths
		return true
	}
	return false
}

var (
	silent = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)<(script|style|template)\b[^>]*>.*?(</(script|style|template)\s*>|$)`)
	})
	breaks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)</?(br|p|div|tr|li|h[1-6]|ul|ol|table|blockquote)\b[^>]*>`)
	})
	anchor = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)<(a|img|form|iframe)\b[^>]*?\b(?:href|src|action)\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)[^>]*>`)
	})
)

var (
	// said are attributes whose text a receiver sees. A tag may end within the quotes of one.
	said = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)\b(alt|label|placeholder|srcdoc|title|value)\s*=\s*("[^"]*"?|'[^']*'?|[^\s>]+)`)
	})
	asWritten = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)(<(?:textarea|xmp)\b[^>]*>)(.*?)(</(?:textarea|xmp)\s*>|$)`)
	})
)

// inert returns HTML as text: what is hidden by its looks is there, links show where they
// lead, and nothing is loaded or run. What a browser is thought to show nothing of comes last: whether
// it does depends on comments and quotes before it.
func inert(s string) string {
	var unshown []string
	s = silent().ReplaceAllStringFunc(s, func(all string) string {
		name := silent().FindStringSubmatch(all)[1]
		if text := plainHTML(all); text != "" {
			unshown = append(unshown, "["+name+"] "+text)
		}
		return " [" + name + "] "
	})
	return strings.Join(append([]string{plainHTML(s)}, unshown...), "\n")
}

// plainHTML is HTML without its tags, but for what these link to and what their attributes say.
func plainHTML(s string) string {
	s = asWritten().ReplaceAllStringFunc(s, func(all string) string {
		m := asWritten().FindStringSubmatch(all)
		return m[1] + strings.ReplaceAll(m[2], "<", "&lt;") + m[3]
	})
	s = anchor().ReplaceAllStringFunc(s, func(tag string) string {
		m := anchor().FindStringSubmatch(tag)
		return saidIn(tag) + fmt.Sprintf("[%s: %s] ", map[string]string{"a": "link to", "img": "picture from", "form": "form for", "iframe": "page from"}[strings.ToLower(m[1])],
			strings.ReplaceAll(strings.Trim(m[2], `"'`), "<", "&lt;"))
	})
	s = breaks().ReplaceAllString(s, "\n")
	return strings.TrimSpace(html.UnescapeString(tagged().ReplaceAllStringFunc(s, saidIn)))
}

// saidIn returns, as HTML, what a tag says to a reader by its attributes. It begins no tag.
func saidIn(tag string) (out string) {
	for _, m := range said().FindAllStringSubmatch(tag, -1) {
		out += fmt.Sprintf("[%s: %s] ", strings.ToLower(m[1]), strings.ReplaceAll(strings.Trim(m[2], `"'>`), "<", "&lt;"))
	}
	return out
}
