package web

import (
	"slices"
	"strings"
)

// A diffLine is a line of a comparison of two files.
type diffLine struct {
	Old, New int    // number in each file; 0: it is not there
	Text     string // empty and both numbers 0: lines are left out here
}

// Added reports whether only the new file has the line.
func (l diffLine) Added() bool { return l.Old == 0 && l.New > 0 }

// Removed reports whether only the old file has the line.
func (l diffLine) Removed() bool { return l.New == 0 && l.Old > 0 }

// Gap reports whether lines are left out here.
func (l diffLine) Gap() bool { return l.Old == 0 && l.New == 0 }

// Diff compares two texts line by line, for who has no page: removed lines begin with "- ", added
// ones with "+ ", and "…" stands for what is far from a change. None: they are the same.
func Diff(before, after string) (lines []string) {
	for _, l := range diff(before, after) {
		switch {
		case l.Gap():
			lines = append(lines, "…")
		case l.Added():
			lines = append(lines, "+ "+l.Text)
		case l.Removed():
			lines = append(lines, "- "+l.Text)
		default:
			lines = append(lines, "  "+l.Text)
		}
	}
	return lines
}

// maxDiff bounds the lines that differ and are compared one by one. Larger changes
// are shown as all old lines, then all new ones.
const maxDiff = 1000

// diff compares two texts line by line, and leaves out what is far from a change.
func diff(before, after string) []diffLine {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []diffLine
	for i := range head {
		out = append(out, diffLine{i + 1, i + 1, a[i]})
	}
	out = append(out, compare(a[head:len(a)-tail], b[head:len(b)-tail], head)...)
	for i := range tail {
		x, y := len(a)-tail+i, len(b)-tail+i
		out = append(out, diffLine{x + 1, y + 1, a[x]})
	}
	return shorten(out)
}

// compare finds the longest common subsequence of the lines in the middle, which
// begin after offset lines that both have.
func compare(a, b []string, offset int) []diffLine {
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
	var out []diffLine
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, diffLine{offset + i + 1, offset + j + 1, a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			out = append(out, diffLine{Old: offset + i + 1, Text: a[i]})
			i++
		default:
			out = append(out, diffLine{New: offset + j + 1, Text: b[j]})
			j++
		}
	}
	return out
}

// shorten leaves out lines that are far from any change.
func shorten(lines []diffLine) []diffLine {
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
	var out []diffLine
	for i, l := range lines {
		l.Text = cut(maxLine, l.Text)
		switch {
		case near[i]:
			out = append(out, l)
		case len(out) == 0 || !out[len(out)-1].Gap():
			out = append(out, diffLine{})
		}
	}
	return out
}
