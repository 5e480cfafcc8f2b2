// Package search says which records a text finds.
//
// A record is found by the words of a few of its fields: titles, and the names by which
// people know it. A text finds the records in which each of its words begins a word.
// Case and diacritics make no difference. Words end at anything but letters and digits, so
// that "order=O00070" and "ada@example.com" are found by their parts.
//
// Stores keep the words that [Document.Words] returns in full-text indexes of their
// databases, and take texts apart with [Terms]. So all of them find the same.
package search

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/keep-run/keep"
)

const (
	// MaxTerms is how many words of a text are searched for; later ones are ignored.
	MaxTerms = 32

	// MaxWords is how many words of a record are found; later ones are ignored.
	MaxWords = 256

	// MaxWord is the length of a word in bytes; the rest of it is ignored.
	MaxWord = 128

	// MaxCount bounds a count of what a text finds: one that reaches it stops at the
	// newest MaxCount+1 records, and so says "more than MaxCount".
	MaxCount = 1_000
)

// maxFolded is how much of a word is folded, in bytes. What is left of so much has MaxWord bytes, unless nearly all of it is diacritics.
const maxFolded = 16 << 10

// Words returns the words of a text, folded: without case and diacritics. What nobody takes is not folded: a text may have megabytes.
func Words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for word := range strings.FieldsFuncSeq(text, parts) {
			for w := range strings.FieldsFuncSeq(fold(truncate(word, maxFolded)), separates) {
				if !yield(truncate(w, MaxWord)) {
					return
				}
			}
		}
	}
}

// parts reports whether a text can be taken apart at a character before it is folded: it is of no word, and folded it is itself.
func parts(r rune) bool {
	return separates(r) && (r < utf8.RuneSelf || norm.NFD.PropertiesString(string(r)).Decomposition() == nil)
}

// separates reports whether a character is of no word.
func separates(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
}

// first returns the first words of texts, at most n.
func first(n int, texts ...string) (words []string) {
	for _, text := range texts {
		for w := range Words(text) {
			if len(words) == n {
				return words
			}
			words = append(words, w)
		}
	}
	return words
}

// fold removes what search does not distinguish.
func fold(text string) string {
	ascii := true
	for i := range len(text) {
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(text)
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		// By the upper case, which letters with two lower forms share: s and ſ, σ and ς.
		return unicode.ToLower(unicode.ToUpper(r))
	}, norm.NFD.String(text))
}

// truncate shortens a word to so many bytes, at a character.
func truncate(word string, end int) string {
	if len(word) <= end {
		return word
	}
	for !utf8.RuneStart(word[end]) {
		end--
	}
	return word[:end]
}

// Terms returns the words that a filter's Text asks for. Without any, the filter selects
// everything.
func Terms(text string) []string { return first(MaxTerms, text) }

// A Document is what search knows of a record.
type Document struct {
	workflow keep.WorkflowName
	name     string   // the handler, tool or topic by which lists are filtered; may be empty
	texts    []string // fields whose words are found
}

// OfRun returns the document of a run: its title, and the messages that it works on.
func OfRun(r keep.Run) Document {
	d := Document{r.Workflow, string(r.Handler), []string{r.Title, string(r.Trigger.MessageID)}}
	for _, held := range r.Reservations {
		for _, id := range held.IDs[:min(len(held.IDs), MaxWords)] {
			d.texts = append(d.texts, string(id))
		}
	}
	return d
}

// OfMutation returns the document of a ledger record: its title, target and key, and the
// values of its identity.
func OfMutation(m keep.Mutation) Document {
	d := Document{m.Workflow, string(m.Tool), []string{m.Title, m.Target, string(m.Key)}}
	if len(m.Identity) > 0 {
		from := json.NewDecoder(bytes.NewReader(m.Identity))
		from.UseNumber()
		var identity any
		if from.Decode(&identity) == nil {
			d.addValues(identity)
		}
	}
	return d
}

// addValues adds the texts and numbers of a JSON value, in the order of their keys.
func (d *Document) addValues(value any) {
	switch v := value.(type) {
	case string:
		d.texts = append(d.texts, v)
	case json.Number:
		d.texts = append(d.texts, v.String())
	case []any:
		for _, element := range v {
			d.addValues(element)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			d.addValues(v[key])
		}
	}
}

// OfInput returns the document of an input: its title and external id.
func OfInput(in keep.Input) Document {
	return Document{in.Workflow, "", []string{in.Title, in.ExternalID}}
}

// OfItem returns the document of an item: its title and id.
func OfItem(it keep.Item) Document {
	return Document{it.Workflow, "", []string{it.Title, it.ID}}
}

// OfEvent returns the document of an event: its message id. Payloads are not searched.
func OfEvent(e keep.Event) Document {
	return Document{e.Workflow, string(e.Topic), []string{string(e.MessageID)}}
}

// OfQuestion returns the document of a question: its title, what is asked about what, and why.
func OfQuestion(q keep.Escalation) Document {
	return Document{q.Workflow, "", []string{q.Title, q.Item, q.Connection, q.Budget, q.Question, q.Attempted, q.Why}}
}

// Words returns the words by which the record is found.
func (d Document) Words() []string { return first(MaxWords, d.texts...) }

// Has reports whether each term begins a word of the record.
func (d Document) Has(terms []string) bool {
	if len(terms) == 0 {
		return true
	}
	words := d.Words()
	for _, term := range terms {
		if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, term) }) {
			return false
		}
	}
	return true
}

// Indexed returns what an index has of the record, each word once: its words, and marks of
// its workflow and name, so that a search in one of them does not read the others.
// Workflows and names never change.
func (d Document) Indexed() []string {
	words := append(d.Words(), MarkWorkflow(d.workflow))
	if d.name != "" {
		words = append(words, MarkName(d.name))
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// MarkWorkflow returns the mark that the documents of a workflow have. Marks begin with a
// private character, which no word has, and consist of letters and digits after it.
func MarkWorkflow(name keep.WorkflowName) string { return "\ue000w" + hex.EncodeToString([]byte(name)) }

// MarkName returns the mark of a document that belongs to a handler, tool or topic.
func MarkName(name string) string { return "\ue000n" + hex.EncodeToString([]byte(name)) }
