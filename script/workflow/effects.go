package workflow

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

// Effects reads the functions of a declaration and reports the calls that they
// seem to make, without running anything. The error is a *[DeclarationError] if
// the declaration itself is wrong.
//
// It sees ctx.crm.create, ctx["crm"].create, const { crm } = ctx and what is
// named that way, also in functions of the same file that are given ctx. It does
// not see a call whose name is computed; the host checks that when it is made.
func Effects(decl json.RawMessage, src Source, conns []connector.Connection) (Report, error) {
	c, err := parse(decl, src)
	if err != nil {
		return Report{}, err
	}
	def := c.def // topics by the names of the script, as what is read of it has them
	root, err := decode(decl)
	if err != nil {
		return Report{}, err
	}
	r := &reader{files: files{src: src}, def: def, tools: make(map[keep.ToolName]ToolReport), specs: make(map[keep.ToolName]connector.Spec),
		needs: make(map[keep.ToolName][]string), former: make(map[keep.ToolName]keep.ToolName)}
	for _, conn := range conns {
		r.conns = append(r.conns, conn.Name)
		for _, t := range conn.Tools {
			d := describe(conn, t)
			r.tools[d.Tool], r.specs[d.Tool] = d, t.Spec()
			r.needs[d.Tool] = required(newSchema(t.Spec().Params, "unknown").root)
			for _, was := range connector.FormerNames(conn, t.Spec()) {
				r.former[was] = d.Tool
			}
		}
	}
	r.report = Report{Workflow: def.Name, OnBlocked: def.OnBlocked.String(), Handlers: []HandlerReport{}, Tools: []ToolReport{}, Findings: []Finding{}}
	at := location{}.of(root)
	for _, h := range def.Handlers {
		r.handler(at, root, h)
	}
	r.unread(at, root)
	r.finish()
	return r.report, nil
}

// A reader collects a report.
type reader struct {
	files  files
	def    keep.Definition
	conns  []string
	tools  map[keep.ToolName]ToolReport
	specs  map[keep.ToolName]connector.Spec
	needs  map[keep.ToolName][]string      // params that each tool requires
	former map[keep.ToolName]keep.ToolName // today's names of tools that had others
	report Report

	h    keep.Handler // being read; findings are about it
	uses []Use        // of h so far, one for each tool and place

	followed int  // tokens of functions that were read; see walk.follow
	skipped  bool // some were not
	scanned  int  // tokens that were looked at for functions; see walk.closeOver
}

// sections are the keys of the handlers of each kind.
var sections = map[keep.Kind]string{
	keep.Producer: "producers", keep.Consumer: "consumers", keep.Job: "jobs",
}

// phases are the functions of a consumer.
var phases = []struct {
	key   string
	place policy.Place
}{{"prepare", policy.InPrepare}, {"mutate", policy.InMutate}, {"next", policy.InNext}}

// handler reads one handler.
func (r *reader) handler(at location, root value, h keep.Handler) {
	r.h, r.uses = h, []Use{}
	section, _ := root.get(sections[h.Kind])
	v, _ := section.get(string(h.Name))
	at = at.key(sections[h.Kind]).of(section).key(string(h.Name)).of(v)
	code := ""
	function := func(at location, f value, where policy.Place) {
		r.function(at, f, where)
		code += f.source + "\n"
	}
	switch {
	case h.Kind == keep.Consumer:
		for _, p := range phases {
			if f, ok := v.get(p.key); ok {
				function(at.key(p.key).of(f), f, p.place)
			}
		}
	case v.kind == kFunction:
		function(at, v, placeOf(h.Kind))
	default:
		f, _ := v.get("handler")
		function(at.key("handler").of(f), f, placeOf(h.Kind))
	}
	out := HandlerReport{Handler: h.Name, Kind: h.Kind, Subscribe: append([]keep.TopicName{}, h.Subscribe...),
		Publishes: append([]keep.TopicName{}, r.def.MayPublish(h)...), Declared: h.Publishes != nil, Code: code, Uses: append([]Use{}, r.uses...)}
	if s := ScheduleReport(h.Schedule); !h.Schedule.IsZero() {
		out.Schedule = &s
	}
	if h.Kind == keep.Consumer {
		order := h.Order.String()
		out.Order = &order
		key, _ := v.get("key")
		out.Key = key.source
	}
	r.report.Handlers = append(r.report.Handlers, out)
}

// placeOf returns the place of the one function of a producer or job. What of a
// job's function is in an item, walk.placeAt tells.
func placeOf(k keep.Kind) policy.Place {
	if k == keep.Producer {
		return policy.InProducer
	}
	return policy.InJob
}

// function reads the function v of the handler at hand.
func (r *reader) function(at location, v value, where policy.Place) {
	c := r.files.code(at, v)
	if c.from >= c.to {
		return
	}
	w := &walk{reader: r, code: c, where: where, names: make(map[string][]string), seen: make(map[string]bool)}
	w.name(0, true)
	w.read()
	if where == policy.InMutate && !slices.ContainsFunc(r.uses, func(u Use) bool {
		return u.Place == policy.InMutate && u.Effect == connector.Mutate
	}) {
		r.find(Note, NoMutation, c.position(c.from), where, "no call of a mutate tool can be seen in mutate: next gets { status: \"none\" }",
			"leave mutate out if nothing is changed")
	}
}

// find adds a finding, once.
func (r *reader) find(s Severity, code Code, at Position, where policy.Place, message, fix string) {
	if len(r.report.Findings) == maxProblems {
		return
	}
	f := Finding{Severity: s, Code: code, Handler: r.h.Name, Place: where, Position: at, Message: message, Fix: fix}
	if !slices.Contains(r.report.Findings, f) {
		r.report.Findings = append(r.report.Findings, f)
	}
}

// use adds a mention of a tool.
func (r *reader) use(t ToolReport, where policy.Place, at func() Position) {
	for _, u := range r.uses {
		if u.Tool == t.Tool && u.Place == where {
			return
		}
	}
	r.uses = append(r.uses, Use{Place: where, Tool: t.Tool, Effect: t.Effect, Level: t.Level, At: at()})
	if !slices.ContainsFunc(r.report.Tools, func(o ToolReport) bool { return o.Tool == t.Tool }) {
		r.report.Tools = append(r.report.Tools, t)
	}
}

// finish sorts the report.
func (r *reader) finish() {
	slices.SortFunc(r.report.Tools, func(a, b ToolReport) int { return cmp.Compare(a.Tool, b.Tool) })
	slices.SortStableFunc(r.report.Findings, func(a, b Finding) int { return a.Position.compare(b.Position) })
}

// join lists words for a person.
func join(words []string) string { return strings.Join(words, ", ") }
