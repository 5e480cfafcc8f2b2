package sandbox

import "bytes"

// code is a bundle's text, for finding places in it.
type code struct {
	text  []byte
	lines []int // offset of each line
}

func newCode(text []byte) code {
	c := code{text: text, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			c.lines = append(c.lines, i+1)
		}
	}
	return c
}

// calleeWindow is how far back callee looks, in bytes, and calleeTries at how many calls of the name: a script may be written so
// that each of them takes long.
const calleeWindow, calleeTries = 16 << 10, 50

// callee returns the place of name in the call `name(...)` whose arguments the
// given place lies in, or that place itself if there is no such call. Columns
// count UTF-16 units or bytes, which differ only in lines with other
// characters; there the place may be left as it is.
func (c code) callee(line, column int, name string) (int, int) {
	if line < 1 || line > len(c.lines) || column < 1 || name == "" {
		return line, column
	}
	end := c.lines[line-1] + column - 1
	if end > len(c.text) {
		return line, column
	}
	from := max(0, end-calleeWindow)
	call := append([]byte(name), '(')
	for tries := 0; end > from && tries < calleeTries; tries++ {
		i := bytes.LastIndex(c.text[from:end], call)
		if i < 0 {
			break
		}
		start := from + i
		end = start
		if start > 0 && isWord(c.text[start-1]) {
			continue
		}
		if encloses(c.text[start+len(call) : c.lines[line-1]+column-1]) {
			return c.place(start)
		}
	}
	return line, column
}

// place is the line and column of an offset.
func (c code) place(offset int) (line, column int) {
	low, high := 0, len(c.lines)
	for high-low > 1 {
		if mid := (low + high) / 2; c.lines[mid] <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	return low + 1, offset - c.lines[low] + 1
}

func isWord(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b >= 0x80
}

// encloses reports whether text, which follows an open parenthesis, ends
// before that is closed. Strings are skipped; a parenthesis in a regular
// expression can mislead it, and then a position is a little less exact.
func encloses(text []byte) bool {
	depth := 1
	for i := 0; i < len(text); i++ {
		switch b := text[i]; b {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return false
			}
		case '"', '\'', '`':
			for i++; i < len(text) && text[i] != b; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return true
}
