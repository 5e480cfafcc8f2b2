package keep_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

func TestHasWords(t *testing.T) {
	const title = "E-Mail von Jörg <joerg@example.com>: Rechnung №4711 भुगतान"
	for text, want := range map[string]bool{
		"": true, " ?! ": true, "rech": true, "RECHNUNG mail": true, "jör": true, "jor": false, "joerg@ex": true,
		"4711": true, "471": true, "711": false, "e rechn com": true, "rechnung fehlt": false, "भुग": true, "\xff\xfe": true,
		"echnung": false, "von von": true,
	} {
		if got := keep.HasWords(title, keep.SearchWords(text)); got != want {
			t.Errorf("HasWords(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	got := keep.Words("Ärger mit Öl_tank\u0301 a1\x00b2 😀 İ")
	want := []string{"ärger", "mit", "öl", "tank\u0301", "a1", "b2", "i"}
	if !slices.Equal(got, want) {
		t.Errorf("Words = %q, want %q", got, want)
	}
	if n := len(keep.SearchWords(strings.Repeat("a ", 100))); n != keep.MaxWords {
		t.Errorf("SearchWords returned %d words, want %d", n, keep.MaxWords)
	}
}
