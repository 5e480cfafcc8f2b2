package project

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/script/workflow"
)

// OfSettings returns what is missing or odd in keep.toml. A secret that is missing may be set where
// the workflows run, so that it is a warning.
func OfSettings(cfg *config.Config) (found []terminal.Problem) {
	for _, m := range cfg.Missing {
		severity := workflow.Warning
		if m.Unusable {
			severity = workflow.Error
		}
		found = append(found, ConfigProblems([]config.Problem{m}, severity)...)
	}
	return append(found, ConfigProblems(cfg.Warnings, workflow.Warning)...)
}

// Accounts reads the accounts of a database.
type Accounts interface {
	Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error)
}

// An Around is what scripts work with beside their connections: hooks, and accounts of the database.
type Around struct {
	Cfg     *config.Config
	Scripts []Script
	Tools   []keep.ToolName // that they use
	Whole   bool            // these are all scripts of the project
}

// NeedsAccounts reports whether a tool needs an account of the database.
func (a *Around) NeedsAccounts() bool { return len(a.needs()) > 0 }

// needs returns what the tools want of accounts, each tool once.
func (a *Around) needs() []config.Need {
	tools := slices.Clone(a.Tools)
	slices.Sort(tools)
	return a.Cfg.Needs(slices.Compact(tools))
}

// Problems returns what is odd. Without a database nothing is known of accounts.
func (a *Around) Problems(ctx context.Context, db Accounts) []terminal.Problem {
	found := slices.Concat(a.hooks(), a.sharedTopics(), a.ruled())
	needs := a.needs()
	if db == nil || len(needs) == 0 {
		return found
	}
	list, err := db.Accounts(ctx, keep.AccountConnected)
	if err != nil {
		return found
	}
	for _, p := range a.accounts(needs, list) {
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

// hooks warns of hooks whose events no workflow of the project can get. One script alone says
// nothing of the workflows of others.
func (a *Around) hooks() (found []terminal.Problem) {
	for _, h := range a.Cfg.Hooks {
		at := slices.IndexFunc(a.Scripts, func(s Script) bool { return s.Workflow.Name == h.Workflow })
		var field, message string
		switch {
		case at < 0 && a.Whole:
			field, message = "workflow", fmt.Sprintf("no script of this project declares a workflow %q: what is delivered is answered 503 until one does", h.Workflow)
		case at >= 0 && !a.Scripts[at].Workflow.HasTopic(a.Scripts[at].Workflow.TopicOf(h.Topic)):
			field, message = "topic", fmt.Sprintf("workflow %q declares no topic %q: what is delivered is answered 503 until it does", h.Workflow, h.Topic)
		default:
			continue
		}
		found = append(found, terminal.Problem{Severity: string(workflow.Warning), Code: "hook-without-target", File: a.Cfg.File,
			Message: fmt.Sprintf("hooks.%s.%s: %s", h.Name, field, message)})
	}
	return found
}

// ruled warns of rules about workflows that no script of the project declares: with another letter in the name they hold
// nobody, and a workflow without a grant may call whatever its script does.
func (a *Around) ruled() (found []terminal.Problem) {
	if !a.Whole {
		return nil
	}
	warn := func(path string, w keep.WorkflowName, effect string) {
		if w == keep.DirectWorkflow || slices.ContainsFunc(a.Scripts, func(s Script) bool { return s.Workflow.Name == w || s.Workflow.Was == w }) {
			return
		}
		found = append(found, terminal.Problem{Severity: string(workflow.Warning), Code: "rule-without-workflow", File: a.Cfg.File,
			Message: fmt.Sprintf("%s: no script of this project declares a workflow %q: %s", path, w, effect)})
	}
	for _, g := range a.Cfg.Grants {
		warn("grants."+string(g.Workflow), g.Workflow, "the grant holds for none of them")
	}
	for _, b := range a.Cfg.Budgets {
		for _, w := range b.Workflows {
			warn("budgets."+b.Name+".workflows", w, "the budget counts nothing of it")
		}
	}
	for _, w := range slices.Sorted(maps.Keys(a.Cfg.Retention.Workflows)) {
		warn("retention.workflows", w, "nothing is kept or deleted by it")
	}
	return found
}

// sharedTopics warns of hooks whose deliveries have ids from fields of theirs, and go into one topic: what two services
// number alike is one id. Ids that the scheme of a hook says are not used twice.
func (a *Around) sharedTopics() (found []terminal.Problem) {
	type target struct {
		workflow keep.WorkflowName
		topic    keep.TopicName
	}
	first := make(map[target]string)
	for _, h := range a.Cfg.Hooks {
		if h.ID == "" {
			continue
		}
		to := target{h.Workflow, h.Topic}
		if at := slices.IndexFunc(a.Scripts, func(s Script) bool { return s.Workflow.Name == h.Workflow }); at >= 0 {
			to.topic = a.Scripts[at].Workflow.TopicOf(h.Topic)
		}
		other, shared := first[to]
		if !shared {
			first[to] = h.Name
			continue
		}
		found = append(found, terminal.Problem{Severity: string(workflow.Warning), Code: "hooks-share-topic", File: a.Cfg.File,
			Message: fmt.Sprintf("hooks.%s.topic: hooks.%s delivers to the topic %q of workflow %q, too: what has an id that the other delivered before is refused (409); give each a topic of its own unless no id can be of both",
				h.Name, other, h.Topic, h.Workflow)})
	}
	return found
}

// accounts warns of accounts that cannot do what the tools want. A service may have given a wider
// scope than was asked for, so that a missing one is no error.
func (a *Around) accounts(needs []config.Need, list []keep.Account) (found []terminal.Problem) {
	warn := func(code, format string, args ...any) {
		found = append(found, terminal.Problem{Severity: string(workflow.Warning), Code: code, File: a.Cfg.File, Message: fmt.Sprintf(format, args...)})
	}
	for _, n := range needs {
		i := slices.IndexFunc(list, func(acc keep.Account) bool { return acc.Name == n.Account })
		if i < 0 || list[i].Status != keep.AccountOK {
			warn("account-not-connected", "the account %s is not connected in the database, and %s needs it; run: keep connect %s --name %s", n.Account, n.Tool, cmp.Or(packOf(list, i), n.Pack), n.Account)
			continue
		}
		if a.Cfg.OtherService(list[i].Pack, n.Pack) {
			warn("account-of-another-service", "the account %s is of %s, and %s, which names it, is of %s: nothing is sent with it; run: keep connect %s --name NAME, and write account = \"NAME\"", n.Account, list[i].Pack, n.Tool, n.Pack, n.Pack)
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(n.Scopes), func(s string) bool { return slices.Contains(list[i].Scopes, s) })
		if len(missing) > 0 && list[i].Style == "oauth2" {
			warn("scope-missing", "the account %s was not given %s, which %s needs; run: keep connect %s --name %s", n.Account, strings.Join(missing, " "), n.Tool, list[i].Pack, n.Account)
		}
	}
	return found
}

// packOf returns the pack of an account; empty if there is none.
func packOf(list []keep.Account, i int) string {
	if i < 0 {
		return ""
	}
	return list[i].Pack
}
