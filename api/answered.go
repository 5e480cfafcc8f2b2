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
	From   string      `json:"from" doc:"by which surface: cli, api, web, link"`
	Note   *string     `json:"note"`
	At     Time        `json:"at"`
}

// A Notice says how far telling one sink of a question has come.
type Notice struct {
	Sink      keep.Sink         `json:"sink"`
	Status    keep.NoticeStatus `json:"status"`
	Attempts  int               `json:"attempts"`
	NextAt    *Time             `json:"next_at"` // null: it is not tried again
	Error     *string           `json:"error"`   // of the last attempt
	UpdatedAt Time              `json:"updated_at"`
}

// NoticeOf returns the object of n.
func NoticeOf(n keep.Notice) Notice {
	return Notice{Sink: n.Sink, Status: n.Status, Attempts: n.Attempts, NextAt: timeOf(n.NextAt), Error: orNull(n.Error), UpdatedAt: Time(n.UpdatedAt)}
}

// AnsweredOf returns the object of e.
func AnsweredOf(e keep.Escalation) Answered { return answered(EscalationOf(e), e) }

// answered adds to the object of e how it was answered.
func answered(v Escalation, e keep.Escalation) Answered {
	out := Answered{Escalation: v, ClosedAt: timeOf(e.ClosedAt)}
	if d := e.Decision; d != nil {
		out.Decision = &Decision{Action: d.Action, By: d.By, From: d.From, Note: orNull(d.Note), At: Time(d.At)}
	}
	return out
}
