package commit

import "github.com/keep-run/keep"

// within refuses a call for which its budget has no room (law: within-budget).
func (d *decision) within(c keep.Within) error {
	since, names := d.at.Add(-c.Per), c.Names()
	var others keep.Amount
	for _, name := range names {
		others = others.Plus(d.Summed.Get(SummedKey{c.Key, name}))
	}
	for _, e := range d.Spending.list {
		if e.key != c.Key {
			others = others.Plus(e.value.Counts(names, since))
		}
	}
	if others.Plus(c.Amount) > c.Limit {
		return &keep.OverBudgetError{Key: c.Key, Spent: c.Spent, Others: others}
	}
	return nil
}
