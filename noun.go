package keep

// A Noun is a kind of record whose id the host makes.
type Noun string

// The nouns, as people and the API name them.
const (
	NounRun      Noun = "run"
	NounMutation Noun = "mutation"
	NounInput    Noun = "input"
	NounQuestion Noun = "question"
)

// Nouns returns all of them.
func Nouns() []Noun { return []Noun{NounRun, NounMutation, NounInput, NounQuestion} }

// Prefix returns what the ids of a noun begin with; empty for no noun.
func (n Noun) Prefix() string {
	switch n {
	case NounRun:
		return "run_"
	case NounMutation:
		return "mut_"
	case NounInput:
		return "in_"
	case NounQuestion:
		return "esc_"
	}
	return ""
}

// A Place is where an event or an item is. Their ids, which scripts make, are unique within a
// topic of a workflow, or within a workflow.
type Place struct {
	Workflow WorkflowName
	Topic    TopicName // empty: of an item
	ID       string
}

// String returns the place as people name it, such as orders/new/17.
func (p Place) String() string {
	if p.Topic == "" {
		return string(p.Workflow) + "/" + p.ID
	}
	return string(p.Workflow) + "/" + string(p.Topic) + "/" + p.ID
}
