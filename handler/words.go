package handler

import (
	"regexp"
	"strings"

	"github.com/keep-run/keep"
)

// words are those of scripts in the messages of the engine, each before what it begins with, and those of Go.
var words = strings.NewReplacer(
	"begin the handler with `if (ctx.item.isDone) return`", "begin its function with `if it.Done() { return nil }`",
	"each item has a ctx of its own", "each item has an *Item of its own",
	"ctx.withItem(", "Item(ctx, ", ", title, handler)", ", title, work)",
	"ctx.kv.get", "Load", "ctx.kv.set", "Store", "ctx.kv.delete", "Delete",
	"needs a messageId", "needs an ID", "write once: false if", "set Repeat if",
	"once: false together with a messageId: the same messageId", "Repeat together with an ID: the same ID",
	"messageId:", "ID:", "inputId must be what ctx.registerInput", "Input must be what RegisterInput",
	"ctx.registerInput({source, type, id, title})", "RegisterInput", "ctx.registerInput", "RegisterInput",
	"ctx.publish", "Publish", "ctx.peek(topic, {limit})", "Peek", "ctx.peek", "Peek",
	"ctx.getByIds(topic, ids)", "Events", "ctx.getByIds", "Events",
	"add [connections.", "add the connection ", "] to keep.toml", " to host.Config.Connections",
	"threw an error: ", "returned an error: ",
	"prepare must return {reservations: [{topic, ids}], data, ui?, wakeAt?, selectionId?, trigger?}: ", "what Prepare returned is wrong: ",
	"trigger.messageId:", "Trigger:",
	"reserve only events that peek, getByIds or trigger returned as pending", "reserve only events that Peek, Events or the trigger showed as pending",
	"ctx.", "",
)

// Where in its stored result Prepare reserves an event, and what the engine says of one that is no trigger.
var (
	reserved = regexp.MustCompile(`\breservations\[\d+\](\.ids\[\d+\])?:`)
	trigger  = regexp.MustCompile(`\btrigger: want an event, or {topic, messageId}, got .*`)
)

// InWords implements engine.Wording.
func (script) InWords(message string) string {
	message = trigger.ReplaceAllLiteralString(message, "Trigger: want a Topic and a MessageID")
	return reserved.ReplaceAllLiteralString(words.Replace(message), "Reserve:")
}

// inGo returns an error of the engine in the words of Go. What the work of an item failed with is the author's own.
func inGo(err error) error {
	f, ok := err.(*keep.Failure)
	if !ok || f.Class != keep.ClassLogic || f.Code == "script-error" {
		return err
	}
	said := *f
	said.Message = script{}.InWords(f.Message)
	return &said
}
