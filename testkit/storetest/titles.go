package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// titles are random ones, of inputs and items, in a store that grows. Some words
// are in nearly all of them, some in hardly any, and some begin others.
type titles struct {
	*world
	*rand.Rand
	items []keep.Item
}

// titleWords are in the order of how often they are: each half as often as the one
// before.
var titleWords = []string{"mail", "invoice", "in", "mailbox", "1", "12", "Jörg", "123", "x\u0301y", "rare", "late"}

func newTitles(w *world) *titles {
	seed := rand.Uint64()
	w.Logf("seed %d", seed)
	return &titles{world: w, Rand: rand.New(rand.NewPCG(seed, 0))}
}

// title returns a new title.
func (t *titles) title() string {
	var words []string
	for range t.IntN(4) {
		i := 0
		for i < len(titleWords)-1 && t.IntN(2) == 0 {
			i++
		}
		words = append(words, titleWords[i])
	}
	if t.IntN(4) == 0 {
		words = append(words, fmt.Sprint(t.IntN(1e6)))
	}
	return strings.Join(words, " ")
}

func (t *titles) workflow() keep.WorkflowName { return keep.WorkflowName(fmt.Sprint("w", t.IntN(3))) }

// grow adds some hundred inputs and items.
func (t *titles) grow() {
	t.Helper()
	name := t.workflow()
	var changes []keep.Change
	for range 300 + t.IntN(500) {
		id := t.id("in")
		changes = append(changes, keep.PutInput{Input: keep.Input{ID: keep.InputID(id), Workflow: name, ExternalID: id, Title: t.title(), CreatedAt: t.at}})
		if t.IntN(10) == 0 {
			changes = append(changes, keep.SkipInput{Input: keep.InputID(id)})
		}
		it := keep.Item{Workflow: name, ID: t.id("item"), Title: t.title(), Status: oneOf(t, keep.ItemStatuses()), Attempt: 1}
		changes = append(changes, keep.PutItem{Item: it})
		it.Rev = 1
		t.items = append(t.items, it)
	}
	t.commit(name, changes...)
}

// change gives some items other titles.
func (t *titles) change() {
	t.Helper()
	for range min(len(t.items), 20) {
		it := &t.items[t.IntN(len(t.items))]
		it.Title = t.title()
		t.commit(it.Workflow, keep.PutItem{Item: *it})
		it.Rev++
	}
}

// compare makes random filters and looks what they select.
func (t *titles) compare() {
	t.Helper()
	var words []string
	for range 1 + t.IntN(2) {
		w := []rune(oneOf(t, titleWords))
		words = append(words, string(w[:1+t.IntN(len(w))]))
	}
	text := strings.Join(words, " ")
	words = search.Terms(text)
	name := oneOf(t, []keep.WorkflowName{"", "", "w0", "w1", "none"})
	ofInput := oneOf(t, append(keep.InputStatuses(), "", ""))
	filtered(t.world, "Inputs", t.Inputs, keep.InputFilter{Workflow: name, Status: ofInput, Text: text}, func(v keep.Input) bool {
		return want(name, v.Workflow) && want(ofInput, v.Status) && search.OfInput(v).Has(words)
	})
	counted(t.world, "Inputs", t.Inputs, t.CountInputs, keep.InputFilter{Workflow: name, Status: ofInput, Text: text},
		func(v keep.Input) keep.InputStatus { return v.Status })
	ofItem := oneOf(t, append(keep.ItemStatuses(), "", ""))
	filtered(t.world, "Items", t.Items, keep.ItemFilter{Workflow: name, Status: ofItem, Text: text}, func(v keep.Item) bool {
		return want(name, v.Workflow) && want(ofItem, v.Status) && search.OfItem(v).Has(words)
	})
	counted(t.world, "Items", t.Items, t.CountItems, keep.ItemFilter{Workflow: name, Status: ofItem, Text: text},
		func(v keep.Item) keep.ItemStatus { return v.Status })
}

// oneOf returns one of list.
func oneOf[T any](t *titles, list []T) T { return list[t.IntN(len(list))] }
