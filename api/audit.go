package api

import (
	"context"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store"
)

// An AuditEntry is something that a person did, beside answers to questions.
type AuditEntry struct {
	At       Time               `json:"at"`
	By       string             `json:"by" doc:"who; empty: nobody said"`
	From     string             `json:"from" doc:"by which surface: cli, api, web; empty: nobody said"`
	What     keep.Action        `json:"what" enum:"redo,skip,unskip,reprocess,cancel,pause,resume,trigger,deploy,set-checkpoint,reset-checkpoint,drain,undrain,issue,revoke,connect,export,move,set,remove"`
	Kind     keep.SubjectKind   `json:"kind" enum:"input,event,item,workflow,handler,host,token,session,account,secret"`
	ID       string             `json:"id" doc:"of what it was done with: of an input, event, item, host, token or session; its name otherwise"`
	Workflow *keep.WorkflowName `json:"workflow" doc:"null: it is of none"`
	Topic    *keep.TopicName    `json:"topic" doc:"of an event; null of others"`
	Note     *string            `json:"note" doc:"what the person said, or what Keep says of something that is gone since"`
}

func auditEntryOf(d keep.Decided) AuditEntry {
	return AuditEntry{At: Time(d.Decision.At), By: d.Decision.By, From: d.Decision.From, What: d.Decision.Action, Kind: d.About.Kind, ID: d.About.ID,
		Workflow: orNull(d.About.Workflow), Topic: orNull(d.About.Topic), Note: orNull(d.Decision.Note)}
}

// ListAudit returns a page of what people did, newest first, and the cursor of the next.
func ListAudit(ctx context.Context, s store.Decisions, f keep.DecisionFilter, p keep.Page) ([]AuditEntry, string, error) {
	list, next, err := s.Decisions(ctx, f, p)
	return each(list, auditEntryOf), next, err
}

// An AuditQuery selects what people did.
type AuditQuery struct {
	Workflow keep.WorkflowName `query:"workflow"`
	Global   bool              `query:"global" doc:"only what was done with hosts, tokens, sessions, accounts and secrets, which are of no workflow"`
}

// audit registers the list of what people did. It is for admins: it names who has access.
func (s *Server) audit() {
	as(s, access.Admin, http.MethodGet, "/audit", "list-audit", "What people did, beside answers to questions, newest first", func(ctx context.Context, in *struct {
		AuditQuery
		KeyPaging
	}) (Page[AuditEntry], error) {
		return paged(ListAudit(ctx, s.cfg.Store, keep.DecisionFilter(in.AuditQuery), keep.Page{Limit: in.Limit, After: in.Cursor}))
	})
}
