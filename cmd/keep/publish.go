package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A publishedEvent is what publish prints. Created is false if the topic had the message id already,
// which is no error: who repeats a publish wants just that.
type publishedEvent struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	Topic     keep.TopicName    `json:"topic"`
	MessageID keep.MessageID    `json:"message_id"`
	Created   bool              `json:"created"`
}

// publishCmd adds an event to a topic.
func (a *app) publishCmd() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "publish WORKFLOW TOPIC JSON", Short: "Add an event to a topic",
		Long: `Publish adds an event to a topic of a workflow; its consumers get it as they get
those of producers. JSON is the payload, at most 256 KiB; - reads it from stdin.
With --id the event is added once: if the topic has that message id already, nothing
changes, and created is false. Without it each publish is an event of its own.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			payload, err := payloadOf(cmd.InOrStdin(), args[2])
			if err != nil {
				return err
			}
			given := cmd.Flags().Changed("id")
			if !given {
				id = rand.Text() // made here, so that a request that is sent again is the same event
			}
			// Before the database is opened, as all that only the command line can be blamed for.
			if err := keep.MessageID(id).Validate(); err != nil {
				return exit.Misusef("--id: %w", err)
			}
			err = a.publish(cmd.Context(), keep.WorkflowName(args[0]), keep.TopicName(args[1]), api.PublishRequest{MessageID: keep.MessageID(id), Payload: payload})
			// Another id would be a second event.
			if _, unsure := errors.AsType[*client.UnsureError](err); unsure && !given {
				err = fmt.Errorf("%w. With --id %s it is repeated as this one event", err, id)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "message `id` of the event; if it is not given, a new one")
	cmd.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return cmd
}

// errTooLong is returned for a payload of which a part would be another one.
var errTooLong = exit.Misusef("JSON has more than %d bytes; publish a reference instead", api.MaxPublish)

// payloadOf returns the payload of an argument, or of stdin if that is -.
func payloadOf(stdin io.Reader, arg string) (json.RawMessage, error) {
	text := []byte(arg)
	if arg == "-" {
		var err error
		// One byte more tells a payload that is too long from one that just fits.
		if text, err = io.ReadAll(io.LimitReader(stdin, api.MaxPublish+1)); err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		// What was read may be JSON by itself, and blanks at its end are cut below.
		if len(text) > api.MaxPublish {
			if n, _ := io.ReadFull(stdin, make([]byte, 1)); n > 0 {
				return nil, errTooLong
			}
		}
	}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) > api.MaxPublish:
		return nil, errTooLong
	case !utf8.Valid(text):
		return nil, exit.Misusef("JSON is not valid UTF-8")
	case !json.Valid(text):
		return nil, exit.Misusef("JSON is not valid: %s; a text needs quotes: '\"…\"'", terminal.Clean(cutText(string(text), 60)))
	}
	return text, nil
}

// cutText shortens a text for a message, between characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return string([]rune(s)[:min(n, utf8.RuneCountInString(s))]) + "…"
}

// publish adds an event and prints what became of it.
func (a *app) publish(ctx context.Context, w keep.WorkflowName, t keep.TopicName, p api.PublishRequest) error {
	return a.decide(ctx, func(c *api.Client) error {
		ev, created, err := c.Publish(ctx, w, t, p)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(publishedEvent{ev.Workflow, ev.Topic, ev.MessageID, created})
		}
		if created {
			fmt.Fprintf(a.Out, "Event %s is in topic %s of workflow %s.\n", terminal.Clean(string(ev.MessageID)), ev.Topic, ev.Workflow)
		} else {
			fmt.Fprintf(a.Out, "Event %s was in topic %s of workflow %s already; it stays as it was.\n", terminal.Clean(string(ev.MessageID)), ev.Topic, ev.Workflow)
		}
		return nil
	})
}
