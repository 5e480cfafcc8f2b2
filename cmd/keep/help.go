package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// envHelp is followed by the variables that the configuration knows, so that none is forgotten here.
const envHelp = `Every setting of keep.toml can come from the environment, which wins:

  db                         KEEP_DB
  policy.retry.first         KEEP_POLICY_RETRY_FIRST
  connections.crm.base_url   KEEP_CONNECTIONS_CRM_BASE_URL

The rule: KEEP_ and the path in upper case, with _ for every character that is
not a letter or a digit. A list is written with commas, a table as in TOML. The
names of connections and tools come from keep.toml.

A secret ${secret:crm-key} is looked for as KEEP_SECRET_CRM_KEY, then in
$CREDENTIALS_DIRECTORY/crm-key, then in .secrets/crm-key beside keep.toml (mode
0600). ${env:NAME} is the variable NAME.

`

// jsonHelp is the promise to programs: names and forms that stay. The whole description is the
// OpenAPI document of a host.
const jsonHelp = `Every command takes --json. Lists print an array, show prints an object, and
nothing else is on stdout. Absent values are null, arrays never are, times are
RFC 3339 in UTC with milliseconds. Fields stay; new ones may come.

  workflow    name, version, paused, topics[], handlers[], open_run, …
  run         id, workflow, version, handler, kind, phase, status, retry_of,
              trigger, reservations[], prepared, mutation, error, waits_for, …
  mutation    key, workflow, run, item, attempt, connection, tool, target, level,
              pack {name, version, hash}, identity, payload, payload_hash, state, result, error, title,
              attempts, reconcile_attempts, next_reconcile_at, can_reconcile,
              resolved_by, …, history[] (in show)
  event       workflow, topic, message_id, payload, status, reserved_by,
              created_by, caused_by[], created_at, attempt,
              runs: [{run, attempt, status}] (in show)
  input       id, workflow, source, type, external_id, title, status, outputs[], …,
              runs[] (in show)
  item        workflow, id, title, status, attempt, mutations[], updated_at
  escalation  id, kind, workflow, run, mutation, item, title, question, attempted,
              why, can_verify, verify_by_hand, actions[], created_at
  topic       workflow, topic, pending, reserved, consumed, skipped
  hook        name, url, workflow, topic, verify, accepted, repeated, refused,
              last_at, last_refused_at, last_refusal
  host        id, name, version, started_at, until, alive, draining, partial,
              workflows: [{workflow, epoch, since}]

  keep run    {idle, workflows: [{name, version, runs, committed, waiting, failed, retries}],
              escalations: [escalation]}
  keep check  {ok, problems: [{severity, file, line, column, message, fix}],
              workflows: […]}`

// addTopics adds what keep help can say beside the verbs. Cobra takes a command that runs nothing for
// a topic of help.
func (a *app) addTopics(root *cobra.Command) {
	for _, t := range []struct{ name, short, text string }{
		{"exit-codes", "What the exit codes mean", exitCodesHelp()},
		{"env", "Which environment variables are read", variablesHelp()},
		{"json", "What --json prints", jsonHelp},
	} {
		root.AddCommand(&cobra.Command{Use: t.name, Short: t.short, Long: t.text})
	}
}

// exitCodesHelp explains the statuses of the process, from the list that package exit has of them.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes of every command:\n")
	for _, c := range exit.Codes() {
		fmt.Fprintf(&b, "\n  %d  %s", c.Status, folded(c.Meaning, 72, "\n     "))
	}
	return b.String()
}

// variablesHelp names every variable that is read.
func variablesHelp() string {
	var b strings.Builder
	b.WriteString(envHelp + "Also:\n")
	for _, v := range config.ProcessVariables() {
		fmt.Fprintf(&b, "\n  %s\n      %s", v.Name, folded(v.About, 72, "\n      "))
	}
	return b.String() + "\n\nSettings:\n\n  " + strings.Join(config.Variables(), "\n  ")
}

// folded breaks a text between words where a line would be longer than width.
func folded(text string, width int, end string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && used+1+n > width:
			b.WriteString(end)
			used = 0
		case i > 0:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
