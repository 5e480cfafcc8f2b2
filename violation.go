package keep

// A Violation is a broken law that a store's Check found. A healthy store has
// none: one is a bug of Keep or a damaged file, never a mistake of a user.
type Violation struct {
	Law    string // name of the law, as DESIGN section 2 has it
	Record string // what breaks it, such as "run run_01"
	Why    string
}

// Error names the law, the record and what is wrong with it.
func (v *Violation) Error() string { return v.Law + ": " + v.Record + ": " + v.Why }
