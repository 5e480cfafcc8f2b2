package feed

import "github.com/keep-run/keep"

// Of returns what a commit changes for those who look. It has no kinds if that
// is nothing.
func Of(c keep.Commit) Change {
	var kinds []Kind
	for _, change := range c.Changes {
		kinds = append(kinds, kindsOf(change)...)
	}
	return Change{Workflow: c.Workflow, Kinds: ordered(kinds)}
}

// kindsOf returns what one change touches. The status of an input follows that
// of its events.
func kindsOf(change keep.Change) []Kind {
	switch change := change.(type) {
	case keep.PutRun, keep.AppendLogs:
		return []Kind{Run}
	case keep.PutMutation:
		return []Kind{Mutation}
	case keep.Reserve, keep.Release:
		return []Kind{Event}
	case keep.Finish, keep.SkipEvents, keep.UnskipEvents, keep.RedoEvents:
		return []Kind{Event, Input}
	case keep.Publish:
		if len(change.Event.CausedBy) == 0 {
			return []Kind{Event}
		}
		return []Kind{Event, Input}
	case keep.PutInput, keep.SkipInput, keep.UnskipInput:
		return []Kind{Input}
	case keep.PutItem:
		return []Kind{Item}
	case keep.OpenEscalation, keep.CloseEscalation:
		return []Kind{Escalation}
	case keep.SetPaused:
		if change.IsCondition() {
			return nil
		}
		return []Kind{Workflow}
	case keep.PutHandler, keep.RequestRun, keep.LookAgain, keep.Deploy:
		return []Kind{Workflow}
	case keep.Sweep:
		return []Kind{Run, Mutation, Event, Escalation}
	case keep.SetKV, keep.ResetKV:
		return nil // nobody sees a checkpoint
	case keep.AppendDecision:
		return nil // the change beside it is seen
	case keep.Unlike, keep.Setting, keep.Within, keep.IfKV:
		return nil // it only refuses
	case keep.PutNotice:
		return nil // that somebody was told changes no question
	}
	return Looked() // a new kind of change: rather look too often
}
