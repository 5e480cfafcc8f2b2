package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// A DiffLine is a line of a comparison of two texts.
type DiffLine struct {
	Old, New int    // number in each file; 0: it is not there
	Text     string // empty and both numbers 0: lines are left out here
}

// Added reports whether only the new file has the line.
func (l DiffLine) Added() bool { return l.Old == 0 && l.New > 0 }

// Removed reports whether only the old file has the line.
func (l DiffLine) Removed() bool { return l.New == 0 && l.Old > 0 }

// Gap reports whether lines are left out here.
func (l DiffLine) Gap() bool { return l.Old == 0 && l.New == 0 }

// A FileDiff is a file of one of two versions, or of both.
type FileDiff struct {
	Name  string
	Lines []DiffLine // none: they are the same
}

// Files are the files of a version.
type Files struct {
	Entry string            // the one that declares the workflow; empty: it is not known
	Texts map[string]string // by name
}

// DiffFiles compares the files of two versions line by line: those of the newer one by name, and then those that it has
// no more, by the names that they had. Where no name is in both, they come from two working directories: the same names below
// the folder that the files of each share are the same files. A file that declares the workflow is compared with the one that did,
// if that is there no more: it has another name.
func DiffFiles(before, after Files) (list []FileDiff) {
	was := nameBefore(before.Texts, after.Texts)
	if renamed := was; movedEntry(before, after) {
		was = func(name string) string {
			if name == after.Entry {
				return before.Entry
			}
			return renamed(name)
		}
	}
	kept := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(after.Texts)) {
		kept[was(name)] = true
		list = append(list, FileDiff{name, Diff(before.Texts[was(name)], after.Texts[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(before.Texts)) {
		if !kept[name] {
			list = append(list, FileDiff{name, Diff(before.Texts[name], "")})
		}
	}
	return list
}

// movedEntry reports whether the file that declares the workflow is new, and the one that did is gone.
func movedEntry(before, after Files) bool {
	was := nameBefore(before.Texts, after.Texts)
	if _, there := before.Texts[was(after.Entry)]; there {
		return false
	}
	for name := range after.Texts {
		if was(name) == before.Entry {
			return false
		}
	}
	_, had := before.Texts[before.Entry]
	_, has := after.Texts[after.Entry]
	return had && has
}

// OtherEntry says that another file declares the workflow than in the version before, which DiffFiles does not see: each file may be as
// it was. Empty: it is the same file, by the names that DiffFiles takes for one.
func OtherEntry(before, after Files) string {
	if before.Entry == "" || nameBefore(before.Texts, after.Texts)(after.Entry) == before.Entry {
		return ""
	}
	return fmt.Sprintf("The workflow is declared in %s, and not in %s.", after.Entry, before.Entry)
}

// nameBefore returns by which name the version before has a file of the one after.
func nameBefore(before, after map[string]string) func(name string) string {
	if shareAName(before, after) {
		return func(name string) string { return name }
	}
	in, of := folderOf(before), folderOf(after)
	return func(name string) string { return in + strings.TrimPrefix(name, of) }
}

func shareAName(x, y map[string]string) bool {
	for name := range x {
		if _, both := y[name]; both {
			return true
		}
	}
	return false
}

// folderOf returns the folder in which all files are, with a slash at its end; empty: there is none.
func folderOf(files map[string]string) string {
	names := slices.Sorted(maps.Keys(files))
	if len(names) == 0 {
		return ""
	}
	first, last := names[0], names[len(names)-1]
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	return first[:strings.LastIndexByte(first[:n], '/')+1]
}

// DiffText is DiffFiles for who has no page: removed lines begin with "- ", added ones with "+ ", and "…" stands for what is far
// from a change. Where there are several files, a line "=== NAME" is above each that differs. None: they are the same.
func DiffText(before, after Files) (lines []string) {
	files := DiffFiles(before, after)
	for _, f := range files {
		if len(f.Lines) > 0 && len(files) > 1 {
			lines = append(lines, "=== "+f.Name)
		}
		for _, l := range f.Lines {
			lines = append(lines, l.String())
		}
	}
	return lines
}

// String returns the line as DiffText has it.
func (l DiffLine) String() string {
	switch {
	case l.Gap():
		return "…"
	case l.Added():
		return "+ " + l.Text
	case l.Removed():
		return "- " + l.Text
	}
	return "  " + l.Text
}

// maxDiff bounds the lines that differ and are compared one by one. Larger changes
// are shown as all old lines, then all new ones.
const maxDiff = 1000

// around is how many lines are shown before and after one that differs. maxLine is how much of a line
// is shown, in bytes, and maxChanged how much of one that differs.
const (
	around     = 4
	maxLine    = 400
	maxChanged = 4000
)

// Diff compares two texts line by line, and leaves out what is far from a change, also within a long
// line that begins as the one that it replaces. None: they are the same.
func Diff(before, after string) []DiffLine {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []DiffLine
	for i := range head {
		out = append(out, DiffLine{i + 1, i + 1, a[i]})
	}
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail], head)...)
	for i := range tail {
		x, y := len(a)-tail+i, len(b)-tail+i
		out = append(out, DiffLine{x + 1, y + 1, a[x]})
	}
	return shorten(out)
}

// middle finds the longest common subsequence of the lines in the middle, which
// begin after offset lines that both have.
func middle(a, b []string, offset int) []DiffLine {
	common := make([][]int32, len(a)+1) // common[i][j]: length for a[i:] and b[j:]
	if len(a) > maxDiff || len(b) > maxDiff {
		common = nil
	}
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	if common != nil {
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if a[i] == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
	}
	var out []DiffLine
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, DiffLine{offset + i + 1, offset + j + 1, a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			out = append(out, DiffLine{Old: offset + i + 1, Text: a[i]})
			i++
		default:
			out = append(out, DiffLine{New: offset + j + 1, Text: b[j]})
			j++
		}
	}
	return out
}

// shorten leaves out lines that are far from any change.
func shorten(lines []DiffLine) []DiffLine {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.Added() || l.Removed() {
			for j := max(i-around, 0); j <= min(i+around, len(lines)-1); j++ {
				near[j] = true
			}
		}
	}
	if !slices.Contains(near, true) {
		return nil
	}
	var out []DiffLine
	others := counterparts(lines)
	for i, l := range lines {
		if l.Added() || l.Removed() {
			l.Text = changedPart(l.Text, others[i])
		} else {
			l.Text = shortLine(l.Text)
		}
		switch {
		case near[i]:
			out = append(out, l)
		case len(out) == 0 || !out[len(out)-1].Gap():
			out = append(out, DiffLine{})
		}
	}
	return out
}

// counterparts returns the other line of each pair of a removed and an added line that begin with the
// same maxLine bytes, by index: the first removed one goes with the first added one.
func counterparts(lines []DiffLine) map[int]string {
	removed, others := make(map[string][]int), make(map[int]string)
	begin := func(l DiffLine) string { return l.Text[:min(maxLine, len(l.Text))] }
	for i, l := range lines {
		if l.Removed() && len(l.Text) >= maxLine {
			removed[begin(l)] = append(removed[begin(l)], i)
		}
	}
	for i, l := range lines {
		if alike := removed[begin(l)]; l.Added() && len(alike) > 0 {
			others[i], others[alike[0]] = lines[alike[0]].Text, l.Text
			removed[begin(l)] = alike[1:]
		}
	}
	return others
}

// changedPart returns a line that differs: if it is long, without what it begins and ends with as its
// counterpart does. It says how much of the rest is left out.
func changedPart(s, other string) string {
	if len(s) <= maxLine {
		return s
	}
	if s == other { // it moved
		other = ""
	}
	head, tail, most := 0, 0, min(len(s), len(other))
	for head < most && s[head] == other[head] {
		head++
	}
	for tail < most-head && s[len(s)-1-tail] == other[len(other)-1-tail] {
		tail++
	}
	from := max(head-maxLine/2, 0)
	to := min(len(s)-tail+maxLine/2, from+maxChanged, len(s))
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	text := s[from:to]
	if from > 0 {
		text = "…" + text
	}
	if left := len(s) - tail - to; left > 0 {
		return text + fmt.Sprintf("… (%d more bytes are not shown)", left)
	}
	if to < len(s) {
		text += "…"
	}
	return text
}

func shortLine(s string) string {
	if len(s) <= maxLine {
		return s
	}
	n := maxLine
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
