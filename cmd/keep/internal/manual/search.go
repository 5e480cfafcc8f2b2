package manual

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Hit is a heading below which all words of a search stand.
type Hit struct {
	Page    string `json:"page"`
	Title   string `json:"title"` // of the page
	Anchor  string `json:"anchor"`
	Heading string `json:"heading"`
	Text    string `json:"text"` // the line that has most of the words; the first if only the heading has them; may be empty
}

// Topic is the hit as keep docs takes it.
func (h Hit) Topic() string { return h.Page + "#" + h.Anchor }

// lineLength is how many characters of a line a hit has.
const lineLength = 200

// Search returns the sections that have every word, in any case, at its beginning or within; those that
// have them in their heading come first. At most limit are returned.
func (l *Library) Search(query string, limit int) []Hit {
	words := strings.Fields(strings.ToLower(query))
	type scored struct {
		Hit
		score int
	}
	var found []scored
	if len(words) == 0 {
		return []Hit{}
	}
	for _, p := range l.pages {
		for _, s := range p.sections {
			if score, line := s.score(p, words); score > 0 {
				found = append(found, scored{Hit{p.Name, p.Title, s.anchor, s.heading, around(line, words)}, score})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	out := []Hit{}
	for _, f := range found[:min(limit, len(found))] {
		out = append(out, f.Hit)
	}
	return out
}

// score says how well a section answers, 0 if it lacks a word, and the line that has
// most of the words.
//
// The title of a page helps to order its sections, but no section is found by it alone: otherwise a word of
// the title would find all of them.
func (s section) score(p *Page, words []string) (score int, best string) {
	title, heading := strings.ToLower(p.Title+" "+p.Name), strings.ToLower(s.heading+" "+s.anchor)
	in := make([]int, len(words)) // lines that have each word
	most := 0
	if len(s.lines) > 0 {
		best = s.lines[0]
	}
	for _, line := range s.lines {
		lower, n := strings.ToLower(line), 0
		for i, w := range words {
			if strings.Contains(lower, w) {
				in[i]++
				n++
			}
		}
		if n > 1 && strings.Contains(lower, strings.Join(words, " ")) {
			n, score = n+1, score+1
		}
		if n > most {
			most, best = n, line
		}
	}
	local := false // a word stands here, not just in the title of the page
	for i, w := range words {
		value := min(in[i], 4)
		if strings.Contains(heading, w) {
			value += 8
		}
		if local = local || value > 0; strings.Contains(title, w) {
			value += 3
		}
		if value == 0 {
			return 0, ""
		}
		score += value
	}
	if !local {
		return 0, ""
	}
	return score + most, best
}

// around returns the part of a line that has the first word found in it.
func around(line string, words []string) string {
	if utf8.RuneCountInString(line) <= lineLength {
		return line
	}
	lower, at := []rune(strings.ToLower(line)), -1
	for _, w := range words {
		if i := strings.Index(string(lower), w); i >= 0 {
			if n := utf8.RuneCountInString(string(lower)[:i]); at < 0 || n < at {
				at = n
			}
		}
	}
	runes := []rune(line)
	from := max(0, min(at-lineLength/3, len(runes)-lineLength))
	out := string(runes[from : from+lineLength])
	if from > 0 { // at the beginning of a word
		_, out, _ = strings.Cut(out, " ")
		out = "… " + out
	}
	if from+lineLength < len(runes) {
		out += " …"
	}
	return out
}
