package handler

import (
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
	"ctx.", "",
)

// inGo returns an error of the engine in the words of Go.
func inGo(err error) error {
	f, ok := err.(*keep.Failure)
	if !ok || f.Class != keep.ClassLogic {
		return err
	}
	said := *f
	said.Message = words.Replace(f.Message)
	return &said
}
