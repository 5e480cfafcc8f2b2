package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// explainArgs has cmd and all commands below it say what they take when they got something else: their
// usage, and how many arguments there were. An empty argument, which an unset variable of a
// shell makes, names nothing, and is refused.
func explainArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainArgs(c)
	}
	takes := cmd.Args
	if takes == nil {
		return // cobra's own, which names unknown commands
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if i := slices.Index(args, ""); i >= 0 {
			return fmt.Errorf("argument %d of %s is empty; want: %s", i+1, cmd.CommandPath(), usageOf(cmd))
		}
		err := takes(cmd, args)
		// Cobra has no type for this error. If its words change, they are shown as they are.
		if err != nil && strings.Contains(err.Error(), "arg(s)") {
			return fmt.Errorf("%s given; want: %s", number(len(args)), usageOf(cmd))
		}
		return err
	}
}

// usageOf returns how a command is written, without the flags that all have.
func usageOf(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.UseLine(), " [flags]")
}

// number begins the sentence about how many arguments came.
func number(args int) string {
	switch args {
	case 0:
		return "no argument was"
	case 1:
		return "1 argument was"
	}
	return fmt.Sprintf("%d arguments were", args)
}

// whereListed says which command lists what an error says that there is none of. Its keys are the
// What of keep.NotFoundError.
var whereListed = map[string]string{
	"account": "keep accounts", "budget": "keep budgets", "connection": "keep check --json", "credential": "keep token", "escalation": "keep inbox",
	"event": "keep events", "handler": "keep workflows show WORKFLOW", "host": "keep hosts", "idempotency key": "keep keys", "input": "keep inputs",
	"item": "keep items", "mutation": "keep mutations", "pack": "keep packs", "proposal": "keep proposals", "run": "keep runs", "secret": "keep secrets",
	"topic": "keep topics", "version": "keep workflows versions WORKFLOW", "workflow": "keep workflows", "grant of workflow": "keep grants",
	"run, mutation, event, input, item, question, version or proposal": "keep runs, keep inputs, keep mutations, keep events or keep inbox; a part of an id has six or more characters",
	"producer": "keep workflows show WORKFLOW", "MCP server": "keep gateway tools", "tool": "keep gateway tools",
}

// namesNothing takes the kind of thing out of the message of a keep.NotFoundError. From a daemon
// only the message comes, so that it cannot be had from the error.
var namesNothing = regexp.MustCompile(`^no (.+?)( in topic .+)? "`)

// listedHint says how to see what there is instead of what an error did not find; empty: it does not say.
func listedHint(message string) string {
	m := namesNothing.FindStringSubmatch(message)
	if m == nil || whereListed[m[1]] == "" {
		return ""
	}
	return "See what there is: " + terminal.Clean(whereListed[m[1]])
}
