package view_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keep-run/keep/view"
)

// A comparison that a person agrees to shows what changes, wherever in a line that is; what it
// leaves out of a changed line the other text has in the same place, or its size is said.
func TestDiffOfLongLines(t *testing.T) {
	begins, ends := strings.Repeat("é=1; ", 200), strings.Repeat(" // ü", 200)
	huge := strings.Repeat("y", 5000)
	for name, c := range map[string]struct{ before, after, removed, added string }{
		"far from the beginning":   {begins + "pay(1);", begins + "pay(100);", "pay(1);", "pay(100);"},
		"far from both ends":       {begins + "pay(1);" + ends, begins + "pay(100);" + ends, "pay(1);", "pay(100);"},
		"a byte of a character":    {begins + "pay(ü);" + ends, begins + "pay(ö);" + ends, "pay(ü);", "pay(ö);"},
		"twice, and far apart":     {"pay(1);" + begins + "pay(2);", "pay(3);" + begins + "pay(4);", "pay(2);", "pay(4);"},
		"the first time, of two":   {begins + "pay(1);" + begins + "a", begins + "pay(3);" + begins + "b", "pay(1);", "pay(3);"},
		"the second time, of two":  {begins + "a" + begins + "pay(1);", begins + "b" + begins + "pay(3);", "pay(1);", "pay(3);"},
		"only one has the end":     {begins, begins + "pay(3);", "é=1; ", "pay(3);"},
		"below a line of its kind": {"x\n" + begins + "pay(1);", begins + "a\n" + begins + "pay(3);", "pay(1);", "pay(3);"},
		"more than is shown":       {begins + "a", begins + "b" + huge, "é=1; a", "more bytes"},
		"a new line":               {"x", "x\n" + begins + "pay(3);", "", "pay(3);"},
	} {
		t.Run(name, func(t *testing.T) {
			var removed, added []string
			for _, l := range view.Diff(c.before, c.after) {
				switch {
				case !utf8.ValidString(l.Text):
					t.Errorf("%q has a part of a character", l.Text)
				case len(l.Text) > 4100:
					t.Errorf("%d bytes of a line are shown", len(l.Text))
				case l.Removed():
					removed = append(removed, l.Text)
				case l.Added():
					added = append(added, l.Text)
				}
			}
			if slices.Equal(removed, added) || !strings.Contains(strings.Join(removed, "\n"), c.removed) || !strings.Contains(strings.Join(added, "\n"), c.added) {
				t.Errorf("got  - %q\nand  + %q\nwant - %q\nand  + %q in them", removed, added, c.removed, c.added)
			}
		})
	}
}

// Versions that come from two working directories have the same files under other folders.
func TestDiffOfFolders(t *testing.T) {
	before := map[string]string{"flows/w.ts": "a\n", "flows/lib/x.ts": "b\n", "flows/lib/old.ts": "c\n"}
	for _, tt := range []struct {
		after map[string]string
		want  string
	}{
		{map[string]string{"w.ts": "a\n", "lib/x.ts": "B\n"}, "lib/x.ts changed, flows/lib/old.ts changed"},
		{map[string]string{"/tmp/k/w.ts": "a\n", "/tmp/k/lib/x.ts": "b\n", "/tmp/k/lib/old.ts": "c\n"}, ""},
		{map[string]string{"flows/w.ts": "a\n", "lib/x.ts": "b\n"}, "lib/x.ts changed, flows/lib/old.ts changed, flows/lib/x.ts changed"},
		{map[string]string{"v.ts": "a\n"}, "v.ts changed, flows/lib/old.ts changed, flows/lib/x.ts changed, flows/w.ts changed"},
		{nil, "flows/lib/old.ts changed, flows/lib/x.ts changed, flows/w.ts changed"},
	} {
		var got []string
		for _, f := range view.DiffFiles(view.Files{Texts: before}, view.Files{Texts: tt.after}) {
			if len(f.Lines) > 0 {
				got = append(got, f.Name+" changed")
			}
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("to %v: %s, want %s", tt.after, s, tt.want)
		}
	}
}

// Who proposes a script without its file names it as he likes: it is compared with the one that declared the workflow, line by line.
func TestDiffOfAnEntryOfAnotherName(t *testing.T) {
	before := view.Files{Entry: "flows/w.js", Texts: map[string]string{"flows/w.js": "a\nb\n", "flows/lib/x.js": "x\n"}}
	for _, tt := range []struct {
		entry string
		after map[string]string
		want  string
	}{
		{"workflow.js", map[string]string{"workflow.js": "a\nB\n", "lib/x.js": "x\n"}, "workflow.js -b +B"},
		{"flows/v.js", map[string]string{"flows/v.js": "a\nB\n", "flows/lib/x.js": "x\n"}, "flows/v.js -b +B"},
		{"flows/v.js", map[string]string{"flows/v.js": "c\n", "flows/w.js": "a\nb\n", "flows/lib/x.js": "x\n"}, "flows/v.js +c"}, // the other one is still there
		{"flows/lib/x.js", map[string]string{"flows/lib/x.js": "x\n"}, "flows/w.js -a -b"},                                       // this one was there before
	} {
		var got []string
		for _, f := range view.DiffFiles(before, view.Files{Entry: tt.entry, Texts: tt.after}) {
			if len(f.Lines) > 0 {
				got = append(got, f.Name)
			}
			for _, l := range f.Lines {
				if s := l.String(); l.Added() || l.Removed() {
					got = append(got, s[:1]+s[2:])
				}
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s of %v: %s, want %s", tt.entry, tt.after, s, tt.want)
		}
	}
}
