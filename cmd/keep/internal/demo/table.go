package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/store/sqlite"
)

// A Report is what keep demo --json prints: the bank's book beside the ledger.
type Report struct {
	Dir      string `json:"dir"`
	Invoices []Line `json:"invoices"`
	Agree    bool   `json:"agree"` // each was paid once, and the ledger says so
}

// A Line is one line of the comparison.
type Line struct {
	Invoice  string             `json:"invoice"`
	Mishap   mishap             `json:"mishap"` // what went wrong; empty: nothing
	Paid     int                `json:"paid"`   // how often, by the bank's book
	Mutation keep.MutationKey   `json:"mutation"`
	State    keep.MutationState `json:"state"`
	Calls    int                `json:"calls"`
	KnownBy  []string           `json:"known_by"` // how Keep came to know
}

// invoiceOf returns the invoice that a call is about.
func invoiceOf(m keep.Mutation) string {
	var identity struct{ Invoice string }
	_ = json.Unmarshal(m.Identity, &identity) // else empty, which is no invoice
	return identity.Invoice
}

// compare prints the bank's book beside the ledger. It fails if they differ: then
// Keep broke its promise.
func (d *demo) compare(ctx context.Context) error {
	r := Report{Dir: d.dir, Agree: true}
	err := d.look(ctx, func(db *sqlite.DB) error {
		ms, _, err := db.Mutations(ctx, keep.MutationFilter{}, keep.Page{})
		if err != nil {
			return err
		}
		for _, in := range d.bank.invoices {
			line := Line{Invoice: in.ID, Mishap: in.Mishap, Paid: d.bank.paid(in.ID), KnownBy: []string{}}
			if i := slices.IndexFunc(ms, func(m keep.Mutation) bool { return invoiceOf(m) == in.ID }); i >= 0 {
				line.Mutation, line.State, line.Calls = ms[i].Key, ms[i].State, ms[i].Attempts
				history, err := db.History(ctx, ms[i].Key)
				if err != nil {
					return err
				}
				line.KnownBy = knownBy(history)
			}
			r.Agree = r.Agree && line.Paid == 1 && line.State == keep.Applied
			r.Invoices = append(r.Invoices, line)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.print(r); err != nil {
		return err
	}
	if !r.Agree {
		return exit.Failedf("the bank's book and the ledger differ: please report this, with the directory that --keep leaves")
	}
	return nil
}

// knownBy says what each step of a record's history rests on that settled
// something.
func knownBy(history []keep.Move) []string {
	words := []string{}
	for _, move := range history {
		asked := move.From == keep.NeedsReconcile
		switch e := ledger.Evidence(move.Evidence); {
		case e == ledger.Happened && !asked:
			words = append(words, "the answer")
		case e == ledger.Happened:
			words = append(words, "asking: it is there")
		case e == ledger.Absent && asked && move.To == keep.Failed:
			words = append(words, "asking: not there")
		case e == ledger.DidNotHappen:
			words = append(words, "a person: didn't happen")
		case e == ledger.PersonHappened:
			words = append(words, "a person: happened")
		}
	}
	return words
}

// print prints the comparison on stdout and what it means on stderr.
func (d *demo) print(r Report) error {
	if d.a.JSON {
		return d.a.PrintJSON(r)
	}
	t := terminal.Table{Header: []string{"INVOICE", "PAID", "LEDGER", "CALLS", "WHAT WENT WRONG", "KNOWN BY"}}
	for _, in := range r.Invoices {
		t.Add(in.Invoice, fmt.Sprintf("%dx", in.Paid), string(in.State), terminal.Number(in.Calls), cmp.Or(string(in.Mishap), "-"), strings.Join(in.KnownBy, "; "))
	}
	d.say("")
	if err := t.Print(d.a.Out, d.a.OutInk); err != nil {
		return err
	}
	twice, never := d.blind()
	d.say("")
	d.say("PAID is the bank's book, LEDGER is Keep's. To send again after every doubt would have")
	d.say("paid %s twice; to give up would have left %s unpaid.", twice, never)
	return nil
}

// blind says which invoices would have been paid twice by somebody who sends
// again whenever no answer came, and which not at all by somebody who doesn't.
func (d *demo) blind() (twice, never string) {
	var again, lost []string
	for _, in := range d.bank.invoices {
		switch in.Mishap {
		case LostAfter, KilledIn:
			again = append(again, in.ID)
		case LostBefore, LostFax:
			lost = append(lost, in.ID)
		}
	}
	return strings.Join(again, " and "), strings.Join(lost, " and ")
}
