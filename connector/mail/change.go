package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// changeTools are the tools that change a mailbox.
func (a *account) changeTools() []connector.Tool {
	appending := &appender{change{native.Change{Tool: connector.Spec{
		Name: "append", Effect: connector.Mutate,
		Description: "Puts a mail into a folder without sending it, such as a draft, and returns its message_id and id.",
		Params: withDefs(native.Object(`"folder"`, `"folder":{"type":"string","minLength":1},
			"flags":{"type":"array","items":{"type":"string"}},`+letterSchema), letterDefs),
		Result: json.RawMessage(`{"type":"object","required":["message_id","id"],"properties":{
			"message_id":{"type":"string"},"id":{"type":["string","null"],"description":"null if the server does not tell"}}}`),
		Timeout: a.timeout, Level: keep.LevelWitness, Marked: true, Identity: []string{"folder", "to", "subject"},
		VerifyByHand: "Look into the folder for the Message-ID: it begins with the token.",
	}}, a}}
	a.settles(&appending.Tool)
	return []connector.Tool{
		appending,
		&mover{change{native.Change{Tool: connector.Spec{
			Name: "move", Effect: connector.Mutate,
			Description: "Moves a mail to another folder, and returns its new id. With message_id, as search returns it, a move whose answer is lost can be found.",
			Params: native.Object(`"id","to"`, `"id":{"type":"string","minLength":5},"to":{"type":"string","minLength":1},
				"message_id":{"type":"string","minLength":1}`),
			Result: json.RawMessage(`{"type":"object","required":["id"],"properties":{
				"id":{"type":["string","null"],"description":"null if the server does not tell, and after a lost answer if others there have its message_id"}}}`),
			Timeout: a.timeout, Level: keep.LevelWitness, ByTarget: true, Identity: []string{"id", "to"}, SettleAfter: moveSettles,
			VerifyByHand: "Look into both folders for the mail.",
		}}, a}},
		&flagger{change{native.Change{Tool: connector.Spec{
			Name: "flag", Effect: connector.Mutate,
			Description: "Sets and removes flags of a mail: seen, answered, flagged, draft, deleted, or keywords. Returns all of its flags.",
			Params: native.Object(`"id"`, `"id":{"type":"string","minLength":5},
				"add":{"type":"array","items":{"type":"string","minLength":1}},"remove":{"type":"array","items":{"type":"string","minLength":1}}`),
			Result: json.RawMessage(`{"type":"object","required":["id","flags"],"properties":{
				"id":{"type":"string"},"flags":{"type":"array","items":{"type":"string"}}}}`),
			Timeout: a.timeout, Level: keep.LevelKey, Identity: []string{"id", "add", "remove"},
			VerifyByHand: "Look at the flags of the mail.",
		}}, a}},
	}
}

// moveSettles is how long a server may take for a MOVE that it has got.
const moveSettles = 5 * time.Second

// An appender is the tool append.
type appender struct{ change }

type appendParams struct {
	letter
	Folder string   `json:"folder"`
	Flags  []string `json:"flags"`
}

// Target names the folder and the subject.
func (t *appender) Target(params json.RawMessage) string {
	var p appendParams
	if json.Unmarshal(params, &p) != nil || p.Folder == "" {
		return "a mail in a folder"
	}
	return native.Target(strings.TrimSpace(p.Folder + " " + p.Subject))
}

func (t *appender) params(raw json.RawMessage) (appendParams, []imap.Flag, error) {
	var p appendParams
	if err := native.Decode(raw, &p); err != nil {
		return p, nil, err
	}
	if err := errors.Join(checkFolder(p.Folder), p.validate()); err != nil {
		return p, nil, err
	}
	flags, err := parseFlags(p.Flags)
	return p, flags, err
}

// Mutate appends the mail once.
func (t *appender) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, flags, err := t.params(m.Payload)
	if err != nil {
		return connector.Receipt{}, t.a.bad("append", err)
	}
	id := t.a.messageID(m)
	raw, err := t.a.compose(p.letter, id, m.CreatedAt, true)
	if err != nil {
		return connector.Receipt{}, t.a.bad("append", err)
	}
	b, stop, err := t.a.mailbox(ctx)
	if err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "append", err)
	}
	defer stop()
	cmd := b.Append(p.Folder, int64(len(raw)), &imap.AppendOptions{Flags: flags, Time: m.CreatedAt})
	cmd.Write(raw) // what goes wrong is known to the command, too
	cmd.Close()
	data, err := cmd.Wait()
	switch {
	case said(err):
		return connector.Receipt{}, t.a.fail(ctx, "append", fmt.Errorf("the server did not take the mail into %q: %w", p.Folder, err))
	case err != nil:
		return connector.Receipt{}, t.a.failf("append", keep.ClassUnknown, "no-answer", "the server did not answer: %v; it may have taken the mail", b.cause(err))
	}
	var at *mailID
	if data.UID != 0 && data.UIDValidity != 0 {
		at = &mailID{p.Folder, data.UIDValidity, data.UID}
	}
	return connector.Receipt{Result: placed(id, at)}, nil
}

// placed is the result of append.
func placed(messageID string, at *mailID) json.RawMessage {
	out := map[string]any{"message_id": messageID, "id": nil}
	if at != nil {
		out["id"] = at.String()
	}
	raw, _ := jsonval.Encode(out) // of strings
	return raw
}

// Reconcile looks for the mail in its folder.
func (t *appender) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, _, err := t.params(m.Payload)
	if err != nil {
		return connector.Answer{}, t.a.bad("append", err)
	}
	id := t.a.messageID(m)
	at, err := t.a.look(ctx, p.Folder, id)
	if err != nil {
		return connector.Answer{}, t.a.fail(ctx, "append", err)
	}
	if at == nil {
		return t.notFound("there is no mail " + id + " in " + p.Folder), nil
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: placed(id, at)}, Detail: "it is in " + p.Folder}, nil
}

// Control implements connector.Controller.
func (t *appender) Control(ctx context.Context, known keep.Mutation) (bool, error) {
	p, _, err := t.params(known.Payload)
	if err != nil {
		return false, err
	}
	at, err := t.a.look(ctx, p.Folder, t.a.messageID(known))
	return at != nil, err
}

// A mover is the tool move.
type mover struct{ change }

type moveParams struct {
	ID        string `json:"id"`
	To        string `json:"to"`
	MessageID string `json:"message_id"`
}

// Target names the mail and where it goes.
func (t *mover) Target(params json.RawMessage) string {
	var p moveParams
	if json.Unmarshal(params, &p) != nil || p.ID == "" {
		return "a mail"
	}
	return native.Target(p.ID + " to " + p.To)
}

func (t *mover) params(raw json.RawMessage) (p moveParams, id mailID, err error) {
	if err = native.Decode(raw, &p); err == nil {
		id, err = parseID(p.ID)
	}
	p.MessageID = strings.Trim(p.MessageID, "<> ")
	switch {
	case err != nil:
	case checkFolder(p.To) != nil:
		err = fmt.Errorf("to: %q is not the name of a folder", p.To)
	case p.To == id.Folder:
		err = fmt.Errorf("the mail is in %q already", p.To)
	}
	return p, id, err
}

// Mutate moves the mail.
func (t *mover) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, id, err := t.params(m.Payload)
	if err != nil {
		return connector.Receipt{}, t.a.bad("move", err)
	}
	b, stop, err := t.a.mailbox(ctx)
	if err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "move", err)
	}
	defer stop()
	if err := t.ready(b, p, id); err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "move", err)
	}
	data, err := b.Move(imap.UIDSetNum(id.UID), p.To).Wait()
	switch {
	case said(err):
		return connector.Receipt{}, t.a.fail(ctx, "move", fmt.Errorf("the server did not move the mail to %q: %w", p.To, err))
	case err != nil:
		return connector.Receipt{}, t.a.failf("move", keep.ClassUnknown, "no-answer", "the server did not answer: %v; it may have moved the mail", b.cause(err))
	}
	dest, _ := data.DestUIDs.(imap.UIDSet)
	if uids, ok := dest.Nums(); ok && len(uids) == 1 {
		return connector.Receipt{Result: moved(&mailID{p.To, data.UIDValidity, uids[0]})}, nil
	}
	// The server names no new id: it cannot, or it cannot of that folder, or somebody moved the mail a moment before.
	if b.Caps().Has(imap.CapUIDPlus) {
		return connector.Receipt{}, t.a.failf("move", keep.ClassUnknown, "unclear", "the server says OK, and not where %s is now; it may have moved it", id)
	}
	return connector.Receipt{Result: moved(nil)}, nil
}

// ready reports why the mail cannot be moved.
func (t *mover) ready(b *box, p moveParams, id mailID) error {
	if err := b.openFor(id, true); err != nil {
		return err
	}
	found, err := b.peek(id.UID)
	switch {
	case err != nil:
		return err
	case !b.Caps().Has(imap.CapMove): // by now: the client would copy the mail, and remove all that are marked as deleted
		return keep.Failf(keep.ClassPrecondition, "no-move", "the server cannot move a mail in one step (RFC 6851)")
	case found == nil:
		return gone(id)
	case p.MessageID != "" && found.messageID != p.MessageID:
		return keep.Failf(keep.ClassLogic, "another-mail", "%s has the Message-ID %q, not %q", id, found.messageID, p.MessageID)
	}
	return nil
}

// moved is the result of move.
func moved(to *mailID) json.RawMessage {
	out := map[string]any{"id": nil}
	if to != nil {
		out["id"] = to.String()
	}
	raw, _ := jsonval.Encode(out) // of a string
	return raw
}

// Reconcile looks where the mail is.
func (t *mover) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, id, err := t.params(m.Payload)
	if err != nil {
		return connector.Answer{}, t.a.bad("move", err)
	}
	b, stop, err := t.a.mailbox(ctx)
	if err != nil {
		return connector.Answer{}, t.a.fail(ctx, "move", err)
	}
	defer stop()
	if err := b.openFor(id, false); err != nil {
		return connector.Answer{}, t.a.fail(ctx, "move", err)
	}
	found, err := b.peek(id.UID)
	if err != nil {
		return connector.Answer{}, t.a.fail(ctx, "move", err)
	}
	if found != nil {
		return connector.Answer{Verdict: connector.Absent, Detail: "it is still " + id.String()}, nil
	}
	if p.MessageID == "" {
		return connector.Answer{Verdict: connector.Retry, Detail: "it has left " + id.Folder + "; without message_id nobody can tell for where"}, nil
	}
	there, err := b.lookAll(p.To, p.MessageID)
	if err != nil {
		return connector.Answer{}, t.a.fail(ctx, "move", err)
	}
	var at *mailID
	switch len(there) {
	case 0:
		return connector.Answer{Verdict: connector.Retry, Detail: "it has left " + id.Folder + " and is not in " + p.To}, nil
	case 1:
		at = &there[0]
	} // of several nobody can tell which it is
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: moved(at)}, Detail: "it is in " + p.To}, nil
}

// A flagger is the tool flag.
type flagger struct{ change }

type flagParams struct {
	ID     string   `json:"id"`
	Add    []string `json:"add"`
	Remove []string `json:"remove"`
}

// Target names the mail and the flags.
func (t *flagger) Target(params json.RawMessage) string {
	var p flagParams
	if json.Unmarshal(params, &p) != nil || p.ID == "" {
		return "a mail"
	}
	out := p.ID
	for _, f := range p.Add {
		out += " +" + f
	}
	for _, f := range p.Remove {
		out += " -" + f
	}
	return native.Target(out)
}

// A flagging is what flag is to do.
type flagging struct {
	id          mailID
	add, remove []imap.Flag
}

func (t *flagger) params(raw json.RawMessage) (f flagging, err error) {
	var p flagParams
	if err = native.Decode(raw, &p); err != nil {
		return f, err
	}
	if f.id, err = parseID(p.ID); err != nil {
		return f, err
	}
	if f.add, err = parseFlags(p.Add); err != nil {
		return f, err
	}
	if f.remove, err = parseFlags(p.Remove); err != nil {
		return f, err
	}
	for _, flag := range f.add {
		if slices.Contains(f.remove, flag) {
			return f, fmt.Errorf("the flag %s is in add and in remove", flag)
		}
	}
	if len(f.add)+len(f.remove) == 0 {
		return f, errors.New("add or remove must name a flag")
	}
	return f, nil
}

// done reports whether a mail with those flags is as it is to be.
func (f flagging) done(flags []string) bool {
	has := func(flag imap.Flag) bool {
		return slices.ContainsFunc(flags, func(name string) bool { return strings.EqualFold(name, flagNames([]imap.Flag{flag})[0]) })
	}
	return !slices.ContainsFunc(f.add, func(flag imap.Flag) bool { return !has(flag) }) && !slices.ContainsFunc(f.remove, has)
}

// Mutate sets the flags. To set them twice is to set them once.
func (t *flagger) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	f, err := t.params(m.Payload)
	if err != nil {
		return connector.Receipt{}, t.a.bad("flag", err)
	}
	b, stop, err := t.a.mailbox(ctx)
	if err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "flag", err)
	}
	defer stop()
	if err := b.openFor(f.id, true); err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "flag", err)
	}
	found, err := b.peek(f.id.UID)
	if err == nil && found == nil {
		err = gone(f.id)
	}
	if err != nil {
		return connector.Receipt{}, t.a.fail(ctx, "flag", err)
	}
	if err := t.store(ctx, b, f); err != nil {
		return connector.Receipt{}, err
	}
	found, err = b.peek(f.id.UID)
	switch {
	case err != nil:
		return connector.Receipt{}, t.a.failf("flag", keep.ClassUnknown, "no-answer", "the server confirmed the flags, and they could not be read afterwards: %v", err)
	case found == nil:
		return connector.Receipt{}, t.a.failf("flag", keep.ClassUnknown, "gone",
			"the server confirmed the flags, and %s is gone: it was moved or deleted, as some servers do with what is marked as deleted", f.id)
	case !f.done(found.flags):
		return connector.Receipt{}, t.a.failf("flag", keep.ClassUnknown, "flags-differ",
			"the server took the flags, and the mail has others: %s; it may not keep such flags", strings.Join(found.flags, ", "))
	}
	return connector.Receipt{Result: flagged(f.id, found.flags)}, nil
}

// store sends the changes. Only the refusal of the first one leaves nothing done.
func (t *flagger) store(ctx context.Context, b *box, f flagging) error {
	begun := false
	for _, s := range []imap.StoreFlags{
		{Op: imap.StoreFlagsAdd, Silent: true, Flags: f.add}, {Op: imap.StoreFlagsDel, Silent: true, Flags: f.remove},
	} {
		if len(s.Flags) == 0 {
			continue
		}
		err := b.Store(imap.UIDSetNum(f.id.UID), &s, nil).Close()
		switch {
		case said(err) && !begun:
			return t.a.fail(ctx, "flag", fmt.Errorf("the server did not set the flags: %w", err))
		case err != nil:
			return t.a.failf("flag", keep.ClassUnknown, "no-answer", "the server did not confirm the flags: %v; they may be set", b.cause(err))
		}
		begun = true
	}
	return nil
}

// flagged is the result of flag.
func flagged(id mailID, flags []string) json.RawMessage {
	raw, _ := jsonval.Encode(map[string]any{"id": id.String(), "flags": flags}) // of strings
	return raw
}

// Reconcile looks at the flags.
func (t *flagger) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	f, err := t.params(m.Payload)
	if err != nil {
		return connector.Answer{}, t.a.bad("flag", err)
	}
	b, stop, err := t.a.mailbox(ctx)
	if err != nil {
		return connector.Answer{}, t.a.fail(ctx, "flag", err)
	}
	defer stop()
	if err := b.openFor(f.id, false); err != nil {
		return connector.Answer{}, t.a.fail(ctx, "flag", err)
	}
	found, err := b.peek(f.id.UID)
	switch {
	case err != nil:
		return connector.Answer{}, t.a.fail(ctx, "flag", err)
	case found == nil:
		return connector.Answer{Verdict: connector.Retry, Detail: "the mail was moved or deleted since"}, nil
	case f.done(found.flags):
		return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: flagged(f.id, found.flags)}, Detail: "the flags are set"}, nil
	}
	return connector.Answer{Verdict: connector.Absent, Detail: "its flags are " + strings.Join(found.flags, ", ")}, nil
}
