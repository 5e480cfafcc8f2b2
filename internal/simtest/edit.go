package simtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// settings are what people edit in keep.toml while the world lives, between any two
// steps. The zero value is what a world begins with. What concerns jobs is in the script,
// and counts from the next deploy on.
type settings struct {
	way     int  // endpoint and header of the key: what was sent one way is unknown on another
	swapped bool // the tools a and c have each other's level
	wide    bool // more params are the identity of a call
	renamed bool // the connection has its other name
	retools bool // and its mutate tools have theirs
	rejobs  bool // the jobs have theirs
	secret  int  // of the connection
}

// ways are the ways in which calls may be sent: a place, and a header for the key. A
// service at one of them knows nothing of what came another way.
const ways = 3

// edits decides whether people edit keep.toml in this world. The draw is its own, so that
// the other worlds are those of before.
func (w *world) edits() bool { return rand.New(rand.NewPCG(w.seed, 6)).IntN(3) == 0 }

// edit changes one thing of the configuration, which the process takes at once; other
// hosts of a group take it when they start again, and differ until then. Clock and file
// are those of one host: a group has clocks that are wrong, and a database with a clock.
func (p *process) edit() string {
	w, s := p.w, &p.w.settings
	what, kinds := "", 9
	if w.group != nil {
		kinds = 7
	}
	switch w.below(kinds) {
	case 0, 1:
		s.way = (s.way + 1 + w.below(ways-1)) % ways
		what = "another endpoint or header"
	case 2:
		s.swapped = !s.swapped
		what = "another level"
	case 3:
		s.wide = !s.wide
		what = "another identity"
	case 4:
		s.renamed = !s.renamed
		what = "another name"
	case 5:
		s.retools = !s.retools
		what = "other names of tools"
	case 6:
		s.rejobs = !s.rejobs
		what = "other names of jobs"
	case 7:
		return w.setBack()
	case 8:
		return w.replaceFile()
	}
	w.fault("keep.toml is edited: " + what)
	if p.engine != nil {
		p.settings = *s
		p.tools.Replace(w.newTools(0, *s), func() {})
		p.engine.Reload()
	}
	return fmt.Sprintf("edit keep.toml: %+v", *s)
}

// connection returns the names of the one connection: today's, and the other one.
func (s settings) connection() (name string, was connector.Names) {
	if s.renamed {
		return "srv", connector.Names{"svc"}
	}
	return "svc", connector.Names{"srv"}
}

// otherName is what the other name of a tool ends with.
const otherName = "2"

// tool returns the names of a mutate tool: today's, and the other one.
func (s settings) tool(name string) (today string, was connector.Names) {
	if s.retools {
		return name + otherName, connector.Names{name}
	}
	return name, connector.Names{name + otherName}
}

// plainTool returns the first name of the tool that a record names.
func plainTool(name keep.ToolName) string {
	_, tool, _ := strings.Cut(string(name), ".")
	return strings.TrimSuffix(tool, otherName)
}

// allNames returns the names that a mutate tool has in turn.
func allNames(name keep.ToolName) (all []keep.ToolName) {
	for n := range 4 {
		s := settings{renamed: n%2 == 1, retools: n > 1}
		conn, _ := s.connection()
		tool, _ := s.tool(plainTool(name))
		all = append(all, keep.ToolName(conn+"."+tool))
	}
	return all
}

// otherJob is the other name of the one job of a workflow.
const otherJob = "chase"

// job returns what the settings make of the declaration of a job.
func (s settings) job(h keep.Handler) keep.Handler {
	if s.rejobs {
		h.Name, h.Items = otherJob, string(h.Name)
	}
	return h
}

// setBack sets the clock of the host back while it runs.
func (w *world) setBack() string {
	w.fault("the clock was set back under the host")
	clear(w.resting)
	w.setback.Add(int64(w.span(5 * time.Hour)))
	return "set the clock back"
}

// hostTime is what the clock of the only host shows.
func (w *world) hostTime() time.Time { return time.Now().Add(-time.Duration(w.setback.Load())) }

// until returns how long it is until a time by the clock of the host.
func (w *world) until(t time.Time) time.Duration {
	return time.Until(t) + time.Duration(w.setback.Load())
}

// replaceFile takes away the file of the database under the host, as by removing it: what
// is written from now on is in a file that nobody finds, and each commit says so. It is put
// back when the host has ended.
func (w *world) replaceFile() string {
	w.fault("the file of the database was taken away")
	w.fileGone = true
	w.forget()
	return "take keep.db away"
}

// putFileBack ends that. What was recorded nowhere may be recorded again, as the same attempt.
func (w *world) putFileBack() {
	w.fileGone = false
	clear(w.nowhere)
}

// commitNowhere is what becomes of a commit while the file is away. Some of what was written
// is in the file that is put back.
func (w *world) commitNowhere(c keep.Commit, commit func() error) error {
	w.forget()
	for _, change := range c.Changes {
		if put, ok := change.(keep.PutMutation); ok {
			w.nowhere[attemptOf(put.Mutation)] = true
		}
	}
	if w.chance(0.5) {
		if err := commit(); err != nil {
			return err
		}
	}
	return keep.ErrReplaced
}

// apply makes of a tool what the settings say.
func (s settings) apply(spec connector.Spec) connector.Spec {
	if s.swapped {
		switch spec.Name {
		case "a":
			spec.Level, spec.SettleAfter = keep.LevelWitness, witnessSettles
		case "c":
			spec.Level, spec.SettleAfter = keep.LevelKey, 0
		}
	}
	if s.wide {
		spec.Identity = append(spec.Identity, "covers")
	}
	spec.Name, spec.Was = s.tool(spec.Name)
	return spec
}

// A sent is the pin of a call: where and how it was sent.
type sent struct {
	Way   int
	Level keep.Level
}

// Pin implements connector.Pinner.
func (m mutator) Pin() json.RawMessage {
	text, err := json.Marshal(sent{m.way, m.spec.Level})
	if err != nil {
		panic(err) // of a number and a text
	}
	return text
}

// Rebind implements connector.Rebinder.
func (a asker) Rebind(pin json.RawMessage) (connector.Tool, error) {
	var was sent
	if err := json.Unmarshal(pin, &was); err != nil {
		return nil, err
	}
	old := a
	old.way, old.spec.Level = was.Way, was.Level
	if old.found() { // it is only looked for
		old.spec.Level = keep.LevelWitness
	}
	return old, nil
}

// watchWay looks whether a call is asked about where it was sent.
func (w *world) watchWay(t tool, m keep.Mutation) {
	var was sent
	how := m.SentAs().How
	err := json.Unmarshal(how, &was)
	if was.Level == keep.LevelKey && t.spec.Level == keep.LevelWitness && w.keyFound {
		was.Level = keep.LevelWitness // it is only looked for
	}
	if err != nil || was.Way != t.way || was.Level != t.spec.Level {
		w.broken("bound-to-its-world", "%s was sent as %s, and is asked about at way %d, level %s", m.Key, how, t.way, t.spec.Level)
	}
}

// ownTools returns the tools of one process, which it may replace.
func (p *process) ownTools() *engine.Tools {
	if !p.w.edited && !p.w.users {
		return p.w.nextTools()
	}
	p.settings = p.w.settings
	return p.w.newTools(0, p.settings)
}
