package api

import "github.com/keep-run/keep"

// An Answered is a question with its answer, if there is one.
type Answered struct {
	Escalation
	ClosedAt *Time     `json:"closed_at"`
	Decision *Decision `json:"decision"` // null: open, or closed by the host
}

// A Decision is what a person decided.
type Decision struct {
	Action keep.Action `json:"action"`
	By     string      `json:"by"`
	From   string      `json:"from" doc:"by which surface: cli, api, web"`
	Note   *string     `json:"note"`
	At     Time        `json:"at"`
}

// AnsweredOf returns the object of e.
func AnsweredOf(e keep.Escalation) Answered {
	out := Answered{Escalation: EscalationOf(e), ClosedAt: timeOf(e.ClosedAt)}
	if d := e.Decision; d != nil {
		out.Decision = &Decision{Action: d.Action, By: d.By, From: d.From, Note: orNull(d.Note), At: Time(d.At)}
	}
	return out
}
