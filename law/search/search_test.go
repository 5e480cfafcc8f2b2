package search_test

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

func TestHas(t *testing.T) {
	doc := search.OfInput(keep.Input{Title: "E-Mail von Jörg <joerg@example.com>: Rechnung №4711 भुगतान ΟΔΟΣ", ExternalID: "order=O00070"})
	for text, want := range map[string]bool{
		"": true, " ?! ": true, "rech": true, "RECHNUNG mail": true, "jör": true, "jor": true, "jo\u0308rg": true, "joerg@ex": true,
		"4711": true, "471": true, "711": false, "e rechn com": true, "rechnung fehlt": false, "भुग": true, "\xff\xfe": true,
		"echnung": false, "von von": true, "O00070": true, "o0007": true, "order=O00070": true, "order:17": false, "00070": false,
		"οδος": true, "οδοσ": true,
	} {
		if got := doc.Has(search.Terms(text)); got != want {
			t.Errorf("Has(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	got := slices.Collect(search.Words("Ärger mit Öl_tank\u0301 a1\x00b2 😀 İ"))
	want := []string{"arger", "mit", "ol", "tank", "a1", "b2", "i"}
	if !slices.Equal(got, want) {
		t.Errorf("Words = %q, want %q", got, want)
	}
	if n := len(search.Terms(strings.Repeat("a ", 100))); n != search.MaxTerms {
		t.Errorf("Terms returned %d words, want %d", n, search.MaxTerms)
	}
	long := slices.Collect(search.Words(strings.Repeat("本", search.MaxWord)))
	if len(long) != 1 || len(long[0]) > search.MaxWord || strings.Trim(long[0], "本") != "" {
		t.Errorf("a long word is cut to %q", long)
	}
}

// wholeWords folds the whole text before it looks for words, as what is in older indexes was made.
func wholeWords(text string) []string {
	folded := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, norm.NFD.String(text))
	words := strings.FieldsFunc(folded, func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	})
	for i, w := range words {
		if len(w) > search.MaxWord {
			end := search.MaxWord
			for !utf8.RuneStart(w[end]) {
				end--
			}
			words[i] = w[:end]
		}
	}
	return words
}

// A text has the same words whether it is folded before or after it is taken apart.
func TestWordsAreFoldedAlone(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		c := string(r)
		text := c + "=" + c + "\u0338x" + c + "\u0301" + c + "y"
		if got, want := slices.Collect(search.Words(text)), wholeWords(text); !slices.Equal(got, want) {
			t.Fatalf("%q has %q, want %q", text, got, want)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("Ärger mit Öl_tank\u0301 a1\x00b2 😀 İ =\u0338")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 8<<10 || !utf8.ValidString(text) {
			t.Skip("of a longer word the end is not folded, and no record has other texts")
		}
		if got, want := slices.Collect(search.Words(text)), wholeWords(text); !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	})
}

// Law bounded: of a text of megabytes only what is kept of it is folded, since commits wait for that.
func TestWordsOfAHugeText(t *testing.T) {
	for name, text := range map[string]string{"words": strings.Repeat("Öl und Ärger ", 1<<19), "one word": strings.Repeat("Ö", 1<<22), "no word": strings.Repeat("—", 1<<21)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		words := search.OfItem(keep.Item{Title: text}).Words()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<10 || len(words) > search.MaxWords {
			t.Errorf("%s: %d words took %d bytes", name, len(words), took)
		}
	}
}

// Every name by which a person knows a record finds it.
func TestDocuments(t *testing.T) {
	mutation := search.OfMutation(keep.Mutation{Key: "mut_7f3a", Title: "Pay Ada", Target: "order=O00070",
		Identity: json.RawMessage(`{"account":{"iban":["DE-12"]},"amount":17.25,"key":true}`)})
	run := search.OfRun(keep.Run{Title: "Pays", Trigger: keep.EventRef{Topic: "orders", MessageID: "m-1"},
		Reservations: []keep.Reservation{{Topic: "orders", IDs: []keep.MessageID{"m-1", "ada@example.com"}}}})
	event := search.OfEvent(keep.Event{Topic: "orders", MessageID: "order:17"})
	item := search.OfItem(keep.Item{ID: "2026-11 B", Title: "Month"})
	for _, c := range []struct {
		doc  search.Document
		text string
		want bool
	}{
		{mutation, "7f3a", true}, {mutation, "pay O0007", true}, {mutation, "de 12", true}, {mutation, "25", true},
		{mutation, "account", false}, {mutation, "true", false},
		{run, "m-1", true}, {run, "example", true}, {run, "pays", true}, {run, "orders", false},
		{event, "order 17", true}, {event, "18", false}, {item, "2026 month b", true},
	} {
		if got := c.doc.Has(search.Terms(c.text)); got != c.want {
			t.Errorf("%+v has %q: %t, want %t", c.doc, c.text, got, c.want)
		}
	}
	big := search.OfItem(keep.Item{ID: strings.Repeat("x y ", 1000) + "last"})
	if big.Has([]string{"last"}) || len(big.Words()) != search.MaxWords {
		t.Errorf("a document has %d words", len(big.Words()))
	}
}
