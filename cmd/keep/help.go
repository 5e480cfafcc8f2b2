package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
)

const exitCodesHelp = `Exit codes of every command:

  0  done
  1  failed: what was asked for did not work, or --timeout came first
  2  misused: the command line, a script or keep.toml is wrong
  3  not found: no such run, workflow, file, …
  4  a person must decide something: see keep inbox
  5  the database cannot be reached: another process is its host, it is not
     Keep's, a newer Keep wrote it, or its file cannot be opened`

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

Also: KEEP_TRUST lists directories whose keep.toml is believed although others own or
may write it (see keep trust); KEEP_CEILING lists those above which none is looked for;
KEEP_CONFIG names the configuration file; NO_COLOR switches colours off;
XDG_CACHE_HOME (or the system's place) holds the compiled sandbox.
XDG_RUNTIME_DIR (or the place of temporary files) is where hosts of one machine find each other.

Settings:
`

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

  keep run    {idle, workflows: [{name, version, runs, committed, failed}],
              escalations: [escalation]}
  keep check  {ok, problems: [{severity, file, line, column, message, fix}],
              workflows: […]}`

// addTopics adds what keep help can say beside the verbs.
func (a *app) addTopics(root *cobra.Command) {
	for _, t := range []struct{ name, short, text string }{
		{"exit-codes", "What the exit codes mean", exitCodesHelp},
		{"env", "Which environment variables are read", envHelp + "  " + strings.Join(config.Variables(), "\n  ")},
		{"json", "What --json prints", jsonHelp},
	} {
		root.AddCommand(&cobra.Command{Use: t.name, Short: t.short, Long: t.text})
	}
}
