package view

import (
	"fmt"

	"github.com/keep-run/keep"
)

// A Stranded is a topic whose pending events nothing will handle: no consumer of the version in force
// reads it, and that version does not declare it, or its events were handled before. A topic that is
// declared and was never read is a record, and is as it should be.
type Stranded struct {
	keep.TopicCount
	Version keep.Version // that is in force
}

// Sentence says it, and what to do.
func (s Stranded) Sentence() string {
	events, wait := "events", "wait"
	if s.Pending == 1 {
		events, wait = "event", "waits"
	}
	return fmt.Sprintf("%d %s of workflow %s %s in topic %s, which no consumer of version %s reads: deploy a version with a consumer that reads it "+
		"(if the topic has another name now, write was: %q there), or skip them (keep events skip)", s.Pending, events, s.Workflow, wait, s.Topic, s.Version, s.Topic)
}

// Stranded returns the topics whose events nothing will handle, by workflow and topic.
func (o *Overview) Stranded() (list []Stranded) {
	for _, c := range o.Topics {
		for _, w := range o.Workflows {
			d := w.Deployed.Definition
			if w.Name != c.Workflow || w.Deployed.Version.IsZero() || c.Pending == 0 || d.Reads(c.Topic) {
				continue
			}
			if c.Consumed > 0 || !d.HasTopic(c.Topic) {
				list = append(list, Stranded{c, w.Version})
			}
		}
	}
	return list
}
