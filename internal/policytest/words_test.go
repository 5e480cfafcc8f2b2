package policytest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// privateWords are words that the code once had for itself, each with the standard one. A
// reader who knows Go, databases and queues meets no other word than the nouns of the root
// package.
var privateWords = []struct{ was, write string }{
	{`\b[tT]enure\w*`, "lease manager"},
	{`\bdeafread\b|\breadOut\b`, "abandoned read"},
	{`\bmakeMoot\b`, "cancel"},
	{`\b(goes|go|went) on\b`, "continue"},
	{`\bfor ever\b`, "forever"},
	{`\b(is|are|was|were) told of\b`, "is notified of"},
	{`\bunwell\b`, "store failed"},
	{`\b[lL]ink is cut\b`, "connection lost"},
	{`\b[sS]omebody was faster\b`, "already answered"},
	{`\bMend the\b`, "fix the"},
	{`\bparams do not fit\b`, "invalid params"},
	{`\bstands still\b`, "is blocked"},
	{`\bDESIGN (section|§)|\bS[0-4] §`, "a document of the repository"},
}

// TestPlainWords holds to this: private words do not come back, in code, comments, pages or
// documents. The changelog keeps the words of its time.
func TestPlainWords(t *testing.T) {
	for _, f := range texts(t) {
		for _, found := range wordsIn(f.text) {
			t.Errorf("%s: %s", f.path, found)
		}
	}
}

// wordsIn returns the private words of a text, and what to write.
func wordsIn(text string) (found []string) {
	for _, w := range privateWords {
		for _, m := range regexp.MustCompile(w.was).FindAllString(text, -1) {
			found = append(found, `"`+m+`": write "`+w.write+`"`)
		}
	}
	return found
}

// cited is a document as comments and other documents name it.
var cited = regexp.MustCompile(`\b(?:docs|notes|decisions|seeds)/[\w/.-]*\w\.(?:md|txt)\b`)

// TestCitedDocumentsExist holds to this: no comment or page cites a document that is not in
// the repository.
func TestCitedDocumentsExist(t *testing.T) {
	for _, f := range texts(t) {
		for _, doc := range cited.FindAllString(f.text, -1) {
			beside := filepath.Join(filepath.Dir(f.path), doc)
			if !exists(doc) && !exists(beside) {
				t.Errorf("%s: cites %s, which does not exist", f.path, doc)
			}
		}
	}
}

// exists reports whether the repository has a file of that path.
func exists(path string) bool {
	_, err := os.Stat(filepath.Join("../..", path))
	return err == nil
}

// A textFile is a file that people read: code, pages and documents.
type textFile struct{ path, text string }

// texts returns them, but for the changelog, for this file, and for what is given, such as the
// samples of tests.
func texts(t *testing.T) (list []textFile) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && skipped(path, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".md", ".html", ".css", ".ts"}, filepath.Ext(path)):
			return nil
		case rel == "CHANGELOG.md", rel == "internal/policytest/words_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		list = append(list, textFile{rel, string(text)})
		return err
	})
	if err != nil || len(list) < 100 {
		t.Fatalf("found %d files (%v), want all of the module", len(list), err)
	}
	return list
}

// The check of words does find what it looks for, and no part of another word.
func TestWordsFind(t *testing.T) {
	got := strings.Join(wordsIn("// The run goes on for ever. We forgo one, and Categories go once.\nvar tenureOf int"), "; ")
	want := `"tenureOf": write "lease manager"; "goes on": write "continue"; "for ever": write "forever"`
	if got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
