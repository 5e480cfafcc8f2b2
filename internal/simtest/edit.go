package simtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// settings are what people edit in keep.toml while the world lives, between any two
// steps. The zero value is what a world begins with.
type settings struct {
	way     int  // endpoint and header of the key: what was sent one way is unknown on another
	swapped bool // the tools a and c have each other's level
	wide    bool // more params are the identity of a call
	renamed bool // the connection has its other name
}

// ways are the ways in which calls may be sent: a place, and a header for the key. A
// service at one of them knows nothing of what came another way.
const ways = 3

// edits decides whether people edit keep.toml in this world. The draw is its own, so that
// the other worlds are those of before, and so are those with orders.
func (w *world) edits() bool { return !w.ordered && rand.New(rand.NewPCG(w.seed, 6)).IntN(3) == 0 }

// edit changes one thing of the configuration, which the process takes at once.
func (p *process) edit() string {
	w, s := p.w, &p.w.settings
	what := ""
	switch w.below(5) {
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
func (s settings) connection() (name, was string) {
	if s.renamed {
		return "srv", "svc"
	}
	return "svc", "srv"
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
	return old, nil
}

// watchWay looks whether a call is asked about where it was sent.
func (w *world) watchWay(t tool, m keep.Mutation) {
	var was sent
	if how := m.SentAs().How; json.Unmarshal(how, &was) != nil || was.Way != t.way || was.Level != t.spec.Level {
		w.broken("bound-to-its-world", "%s was sent as %s, and is asked about at way %d, level %s", m.Key, how, t.way, t.spec.Level)
	}
}

// ownTools returns the tools of one process, which it may replace.
func (p *process) ownTools() *engine.Tools {
	if !p.w.edited {
		return p.w.nextTools()
	}
	p.settings = p.w.settings
	return p.w.newTools(0, p.settings)
}
