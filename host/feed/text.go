package feed

import (
	"encoding/json"
	"slices"

	"github.com/keep-run/keep"
)

// A line is a change as it is written for other processes.
type line struct {
	Workflow keep.WorkflowName `json:"w,omitempty"`
	Kinds    []Kind            `json:"k"`
}

// Text writes changes for another process, without their IDs, in at most limit
// bytes: a Reset if they do not fit.
func Text(batch []Change, limit int) string {
	lines := make([]line, len(batch))
	for i, c := range batch {
		lines[i] = line{c.Workflow, c.Kinds}
	}
	text, err := json.Marshal(lines)
	if err != nil {
		panic(err) // names always marshal
	}
	if len(text) > limit {
		return Text([]Change{{Kinds: []Kind{Reset}}}, len(text))
	}
	return string(text)
}

// Read reads what Text wrote, perhaps in another version. What it does not know is
// a Reset.
func Read(text string) []Change {
	var lines []line
	if err := json.Unmarshal([]byte(text), &lines); err != nil {
		return []Change{{Kinds: []Kind{Reset}}}
	}
	batch := make([]Change, len(lines))
	for i, l := range lines {
		for _, k := range l.Kinds {
			if !slices.Contains(Kinds(), k) {
				return []Change{{Kinds: []Kind{Reset}}}
			}
		}
		batch[i] = Change{Workflow: l.Workflow, Kinds: ordered(l.Kinds)}
	}
	return batch
}
