package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A Pairing is an owner's word on how the outcome of a tool can be known. The zero Pairing says
// that it cannot.
type Pairing struct {
	Tool     string   // as its server names it
	Identity []string // params that say what is changed; empty: all

	TokenParam   string // that the host's token is put into; empty: none
	TokenAppend  string // text with {token} that is appended to that param; empty: the param is the token
	Deduplicates bool   // the server honours the token as a key

	// When are params with which a call has the token and can be asked about; the value "*"
	// stands for any. A call with others is sent as it is, and nobody can know what became of it.
	When map[string]json.RawMessage

	Sets     bool          // a call says what is to be: the same one again changes nothing more
	KeyLasts time.Duration // for how long a call may be sent again; zero: by what the server does

	Lookup *Lookup // nil: there is none

	SettleAfter   time.Duration
	Timeout       time.Duration // zero: DefaultTimeout
	ErrorsRefused bool          // a result with isError means that nothing happened

	// What a result says, with isError or without. Refused are results of a call that was not executed, or of which that
	// says what failed; the first that fits counts. Applied are the only ones that show, without isError, that it was executed; empty: all others.
	Refused, Applied []Matcher

	Approve string // see connector.Connection.Approve
	Unique  bool
}

// A Lookup is how a server is asked what became of a call.
type Lookup struct {
	Tool     string                     // of the same server; it reads
	Args     map[string]json.RawMessage // texts in it, however deep, take {token} and {sent_at} of the host, and {param}
	Found    string                     // JSON path to the rows; empty: $
	Match    []string                   // fields of a row that equal the params of the call; empty: a text in it has the token
	Complete bool                       // the rows are all that there can be: none is there means that nothing happened
	More     string                     // JSON path to what is true if there are more rows; empty: it is not said
	Page     int                        // of as many rows or more there may be others; zero: any number is all
}

// Level returns how the outcome can be known.
func (p Pairing) Level() keep.Level {
	switch {
	case p.Sets, p.TokenParam != "" && p.TokenAppend == "" && p.Deduplicates:
		return keep.LevelKey
	case p.Lookup != nil && (p.TokenParam != "" || len(p.Lookup.Match) > 0):
		return keep.LevelWitness
	}
	return keep.LevelNone
}

// Validate returns the first thing wrong with p.
func (p Pairing) Validate() error {
	switch {
	case p.TokenAppend != "" && !strings.Contains(p.TokenAppend, "{token}"):
		return errors.New("token.append: the text must have {token} in it")
	case p.TokenAppend != "" && p.Deduplicates:
		return errors.New("deduplicates: a server honours a key in a parameter of its own, not one in a text")
	case p.Deduplicates && p.TokenParam == "":
		return errors.New("deduplicates: say in which param the key is (token = { param = … })")
	case slices.Contains(p.Identity, p.TokenParam) && p.TokenParam != "" && p.TokenAppend == "":
		return fmt.Errorf("identity: %s is the token, which is another for each call", p.TokenParam)
	case p.Sets && (p.Deduplicates || len(p.When) > 0):
		return errors.New("sets: the same call again is the key; deduplicates and when are for a token")
	case len(p.When) > 0 && p.TokenParam == "":
		return errors.New("when: says which calls have the token, and there is none (token = { param, append })")
	case p.Lookup == nil:
		return nil
	case p.Lookup.Tool == "" || p.Lookup.Tool == p.Tool:
		return errors.New("reconcile.tool: name a tool of the same server that reads")
	case p.TokenParam == "" && len(p.Lookup.Match) == 0:
		return errors.New("reconcile: nothing shows that a row is ours; send a token (token = { param, append }), or name fields (match = […])")
	case p.TokenParam == "" && p.Lookup.asksByToken():
		return errors.New("reconcile.args: {token} is Keep's mark of a call, and no call would show it; send one (token = { param, append }), or ask by another param")
	}
	if missing := p.unasked(); len(missing) > 0 {
		return fmt.Errorf("reconcile: asks for nothing of %s, which is in identity, so a row of another call would count as this one's; "+
			"name it in args or match, or take it out of identity if the rest says which call it is", strings.Join(missing, ", "))
	}
	if _, err := parsePath(p.Lookup.More); err != nil {
		return err
	}
	_, err := parsePath(p.Lookup.Found)
	return err
}

// unasked returns the params of the identity that a lookup by fields compares with nothing and does not ask by.
func (p Pairing) unasked() []string {
	if len(p.Lookup.Match) == 0 || p.Lookup.asksByToken() {
		return nil // the rows show our mark
	}
	return slices.DeleteFunc(slices.Clone(p.Identity), func(name string) bool {
		return slices.Contains(p.Lookup.Match, name) || p.Lookup.asksBy(name)
	})
}

// unnamed returns a param of a call by which its lookup neither asks nor compares rows, where all of them are the identity; empty:
// there is none, or the rows show our mark.
func (p Pairing) unnamed(payload json.RawMessage) string {
	l := p.Lookup
	if len(p.Identity) > 0 || len(l.Match) == 0 || l.asksByToken() || slices.Contains(l.Match, p.TokenParam) {
		return ""
	}
	fields, err := jsonval.Fields(payload)
	if err != nil {
		return "what cannot be read"
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		token := name == p.TokenParam && p.TokenAppend == "" // and not a text of the caller that it is appended to
		if !token && !slices.Contains(l.Match, name) && !l.asksBy(name) {
			return name
		}
	}
	return ""
}

// asksByToken reports whether the lookup asks for the host's token.
func (l *Lookup) asksByToken() bool { return l.asksBy("token") }

// asksBy reports whether {name} is in a text of the lookup's args.
func (l *Lookup) asksBy(name string) bool { return l.asksWith("{" + name + "}") }

// asksWith reports whether a template is in a text of the lookup's args.
func (l *Lookup) asksWith(template string) bool {
	there := false
	for _, arg := range l.Args {
		_, _ = eachText(arg, func(text string) any {
			there = there || strings.Contains(text, template)
			return text
		})
	}
	return there
}

// covers reports whether a call with these params has the token.
func (p Pairing) covers(payload json.RawMessage) bool {
	fields, err := jsonval.Fields(payload)
	if err != nil {
		return false
	}
	for name, want := range p.When {
		if got := fields[name]; got == nil || string(want) != `"*"` && !jsonval.Equal(got, want) {
			return false
		}
	}
	return true
}

// Key returns the param that is the host's token in a call with these params, and in which the caller has no say; empty: there is none.
func (p Pairing) Key(params json.RawMessage) string {
	if p.TokenAppend != "" || !p.covers(params) {
		return ""
	}
	return p.TokenParam
}
