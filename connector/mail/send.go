package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// A sender is the tool send.
type sender struct{ change }

// A findableSender is a sender whose mails can be looked for.
type findableSender struct{ sender }

// sendTool makes the tool send.
func (a *account) sendTool() connector.Tool {
	s := sender{change{native.Change{Tool: connector.Spec{
		Name: "send", Effect: connector.Mutate,
		Description: "Sends a mail, and returns its message_id.",
		Params:      withDefs(native.Object(`"to"`, letterSchema), letterDefs),
		Result: json.RawMessage(`{"type":"object","required":["message_id"],"properties":{
			"message_id":{"type":"string"}}}`),
		Timeout: a.timeout, Level: keep.LevelNone, Identity: []string{"to", "subject", "in_reply_to"},
		View: keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "from", Text: a.from.String()}, {Role: "to", Param: "to"}, {Role: "cc", Param: "cc"},
			{Role: "bcc", Param: "bcc"}, {Role: "reply_to", Param: "reply_to"}, {Role: "subject", Param: "subject"}, {Role: "text", Param: "text"},
			{Role: "html", Param: "html"}, {Role: "attachments", Param: "attachments"}}},
		VerifyByHand: "Ask the recipient, or search the mailbox of the sender and the server's log for the Message-ID: it begins with the token.",
	}}, a}}
	if a.folder() == "" {
		return &s
	}
	s.Tool.Level, s.Tool.Marked = keep.LevelWitness, true
	s.Tool.VerifyByHand = fmt.Sprintf("Look into %s for the Message-ID, which begins with the token; if it is not there, ask the recipient.", a.folder())
	a.settles(&s.Tool)
	return &findableSender{s}
}

// settles says when a mail that is not found was not written.
func (a *account) settles(spec *connector.Spec) {
	if a.settle != nil {
		spec.SettleAfter, spec.NeedsControl = *a.settle, true
	}
}

// folder is where what was sent can be found; empty: nowhere.
func (a *account) folder() string {
	if a.copyToSelf {
		return "INBOX"
	}
	return a.sent
}

// Target names the recipients and the subject.
func (s *sender) Target(params json.RawMessage) string {
	var l letter
	if json.Unmarshal(params, &l) != nil {
		return "a mail"
	}
	var to []string
	for _, a := range l.To {
		to = append(to, a.Address)
	}
	return native.Target(strings.TrimSpace(strings.Join(to, ", ") + " " + l.Subject))
}

// Mutate sends the mail once.
func (s *sender) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	var l letter
	err := native.Decode(m.Payload, &l)
	if err == nil {
		err = l.validate()
	}
	if err == nil && len(l.To) == 0 {
		err = errors.New("to is required")
	}
	if err != nil {
		return connector.Receipt{}, s.a.bad("send", err)
	}
	id := s.a.messageID(m)
	raw, err := s.a.compose(l, id, m.CreatedAt, false)
	if err != nil {
		return connector.Receipt{}, s.a.bad("send", err)
	}
	if ctx.Err() != nil {
		return connector.Receipt{}, s.a.fail(ctx, "send", ctx.Err())
	}
	c, stop, err := s.a.submission(ctx)
	if err != nil {
		return connector.Receipt{}, s.a.fail(ctx, "send", err)
	}
	defer stop()
	if err := s.submit(ctx, c, id, s.recipients(l), raw); err != nil {
		return connector.Receipt{}, err
	}
	return connector.Receipt{Result: sentResult(id)}, nil
}

// sentResult is the result of send.
func sentResult(id string) json.RawMessage {
	raw, _ := jsonval.Encode(map[string]string{"message_id": id}) // of a string
	return raw
}

// recipients returns who gets the mail, each once. The domain of an address has no case.
func (s *sender) recipients(l letter) []string {
	var out []string
	seen := map[string]bool{}
	list := append(append(append(addresses{}, l.To...), l.Cc...), l.Bcc...)
	if s.a.copyToSelf {
		list = append(list, s.a.from)
	}
	for _, a := range list {
		at := strings.LastIndexByte(a.Address, '@')
		if key := a.Address[:at] + strings.ToLower(a.Address[at:]); !seen[key] {
			seen[key] = true
			out = append(out, a.Address)
		}
	}
	return out
}

// bye is how long the server may take for its goodbye.
const bye = 2 * time.Second

// submit hands the mail over. Until the dot that ends it nothing has happened: a server
// delivers no mail that has no end. After it only an answer tells.
func (s *sender) submit(ctx context.Context, c *smtp.Client, id string, to []string, raw []byte) error {
	if err := c.Mail(s.a.from.Address, &smtp.MailOptions{Size: int64(len(raw))}); err != nil {
		return s.a.fail(ctx, "send", fmt.Errorf("the sender %s: %w", s.a.from.Address, err))
	}
	if err := s.name(ctx, c, to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return s.a.fail(ctx, "send", fmt.Errorf("begin the mail: %w", err))
	}
	if _, err := w.Write(raw); err != nil {
		return s.a.fail(ctx, "send", fmt.Errorf("hand the mail over: %w", err))
	}
	switch _, err = w.CloseWithResponse(); {
	case said(err):
		return s.refused(ctx, id, fmt.Errorf("the server did not take the mail: %w", err))
	case err != nil:
		return s.a.failf("send", keep.ClassUnknown, "no-answer", "the server did not answer to the end of the mail: %v; it may have taken it", err)
	}
	c.CommandTimeout = bye
	c.Quit() // the mail is taken, whatever becomes of the connection
	return nil
}

// refused is what the refusal of a whole mail means. Something in front of the server, such as a filter, may have
// refused what the server has taken: the refusal counts if the mail is not where it can be found.
func (s *sender) refused(ctx context.Context, id string, refusal error) error {
	folder := s.a.folder()
	if folder == "" {
		return s.a.fail(ctx, "send", refusal)
	}
	found, err := s.a.look(ctx, folder, id)
	switch {
	case err != nil:
		return s.a.failf("send", keep.ClassUnknown, "unclear", "%v; whether it is in %s all the same is not known: %v", refusal, folder, err)
	case found != nil:
		return nil
	}
	return s.a.fail(ctx, "send", refusal)
}

// name names the recipients. If the server refuses one, the mail is not sent at all.
func (s *sender) name(ctx context.Context, c *smtp.Client, to []string) error {
	var refused []string
	class := keep.ClassTransient
	for _, address := range to {
		err := c.Rcpt(address, nil)
		if err == nil {
			continue
		}
		if !said(err) {
			return s.a.fail(ctx, "send", fmt.Errorf("the recipient %s: %w", address, err))
		}
		if got, _ := classify(ctx, err); got != keep.ClassTransient {
			class = keep.ClassLogic
		}
		refused = append(refused, fmt.Sprintf("%s (%v)", address, err))
	}
	if len(refused) == 0 {
		return nil
	}
	c.CommandTimeout = bye
	if c.Reset() == nil {
		c.Quit() // nothing was sent, whatever becomes of the connection
	}
	return s.a.failf("send", class, "recipient", "the server refuses %d of %d recipients, and nothing was sent: %s",
		len(refused), len(to), strings.Join(refused, "; "))
}

// Reconcile looks for the mail.
func (s *findableSender) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	id, folder := s.a.messageID(m), s.a.folder()
	found, err := s.a.look(ctx, folder, id)
	if err != nil {
		return connector.Answer{}, s.a.fail(ctx, "send", err)
	}
	if found == nil {
		return s.notFound("there is no mail " + id + " in " + folder), nil
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: sentResult(id)}, Detail: "it is in " + folder}, nil
}

// Control implements connector.Controller.
func (s *findableSender) Control(ctx context.Context, known keep.Mutation) (bool, error) {
	found, err := s.a.look(ctx, s.a.folder(), s.a.messageID(known))
	return found != nil, err
}
