package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/view"
)

//go:embed template
var templateFiles embed.FS

// layout is what pages share: the layout around each, and parts. Like the files that pages name it is the same for every
// handler, so a process parses it once, when it shows its first page. What cannot be parsed is a bug, and panics.
var layout = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(funcs(files())).ParseFS(templateFiles, "template/*.html"))
})

// pages are the templates by the name of their page, each of which is parsed, and escaped, when the page is first shown.
var pages = sync.OnceValue(func() map[string]func() *template.Template {
	names, err := fs.Glob(templateFiles, "template/page/*.html")
	if err != nil {
		panic(err)
	}
	all := make(map[string]func() *template.Template, len(names))
	for _, f := range names {
		all[strings.TrimSuffix(path.Base(f), ".html")] = sync.OnceValue(func() *template.Template {
			page := template.Must(layout().Clone())
			return template.Must(page.ParseFS(templateFiles, f))
		})
	}
	return all
})

// funcs are what templates may call.
func funcs(s *static) template.FuncMap {
	return template.FuncMap{
		"asset":   s.link,
		"at":      func(t time.Time) template.HTML { return timeHTML(t, "") },
		"ago":     func(t time.Time) template.HTML { return timeHTML(t, "ago") },
		"segment": inPath,
		// Names and ids are strings of their own types.
		"sentence": sentence,
		"prose":    func(s any) string { return cut(maxProse, fmt.Sprint(s)) },
		"newest":   func(acts []view.Act) []view.Act { return acts[max(len(acts)-maxUnfolded, 0):] },
		"older":    func(acts []view.Act) []view.Act { return acts[:max(len(acts)-maxUnfolded, 0)] },
		"cut":      func(n int, s any) string { return cut(n, fmt.Sprint(s)) },
		"typed":    func(s any) template.HTML { return typed(fmt.Sprint(s)) },
		"logged":   logged,
		"num":      number,
		"plural":   plural,
		"noun":     noun,
		"bytes":    byteCount,
		"human":    human,
		"tone":     tone,
		"word":     word,
		"status":   runState,
		"level":    levelMeaning,
		"lasted":   lasted,
		"looks":    looks,
		"list":     func(s ...string) []string { return s },
		"asks":     kindWord,
		"form": func(c card, from, list string) map[string]any {
			return map[string]any{"Card": c, "From": from, "List": list}
		},
		"add": func(a, b int) int { return a + b },
	}
}

// inPath returns the id of a question as a part of an address: one about a tool has the name of that, which is its server's.
func inPath(id any) string {
	if p, ok := id.(*keep.EscalationID); ok {
		id = *p
	}
	return pathEscape(fmt.Sprint(id))
}

const (
	machineTime = "2006-01-02T15:04:05.000Z"
	exactTime   = "2006-01-02 15:04:05 UTC"
)

// timeHTML writes a time: in UTC as it is, in the reader's zone with JavaScript,
// and exact on hover. The zero time is nothing.
func timeHTML(t time.Time, class string) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	exact := t.Format(exactTime)
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" class="%s">%s</time>`, t.Format(machineTime), exact, class, exact))
}

// waitHTML writes what a run waits for, with its times shown like all others. Where
// the command shows more is left out: pages have links.
func waitHTML(w lifecycle.Wait) template.HTML { return partsHTML(w.Parts()) }

// partsHTML writes the pieces of a sentence.
func partsHTML(parts []lifecycle.Part) template.HTML {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case !p.Time.IsZero():
			b.WriteString(string(timeHTML(p.Time, "")))
		case !p.Command:
			b.WriteString(template.HTMLEscapeString(cut(maxProse, p.Text)))
		}
	}
	return template.HTML(b.String())
}

// looks begins a sentence that ends with when a call in doubt is looked up next.
func looks(m keep.Mutation) string {
	if ledger.ToolMissing(m.Error) {
		return "Nobody can be asked, since there is no tool " + string(m.Tool) + " in this program or its keep.toml: put it back, or decide when Keep asks you. It looks again"
	}
	return "The service is asked again"
}

// maxUnfolded bounds how many decisions a page shows above its buttons: the newest; those before them are folded.
const maxUnfolded = 5

// maxLogged bounds what is shown of one entry of a log, in bytes.
const maxLogged = 4096

// logged returns an entry of a log, whose lines after the first begin with a sign: no script writes a line that looks as if Keep
// had. A browser ends a line at a carriage return, too.
func logged(text string) string {
	return strings.NewReplacer("\r\n", "\n  │ ", "\r", "\n  │ ", "\n", "\n  │ ").Replace(cut(maxLogged, text))
}

// maxProse bounds a text: it may quote what a service said.
const maxProse = 4000

// number writes n with its thousands apart.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural writes how many there are of what.
func plural(n int, one string, many ...string) string { return number(n) + " " + noun(n, one, many...) }

// noun is the word for n of what.
func noun(n int, one string, many ...string) string {
	switch {
	case n == 1:
		return one
	case len(many) > 0:
		return many[0]
	}
	return one + "s"
}

func byteCount(n int) string {
	switch {
	case n < 1<<10:
		return plural(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// human writes a length of time without the zeros of Duration.String.
func human(d time.Duration) string {
	s := d.Round(time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// tone is the colour of a state: what is well, what moves, what failed, what is not known, what
// needs a person. It is never the only sign: the word stands beside it.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "applied", "done", "committed", "consumed", "ok":
		return "ok"
	case "active", "in_flight", "processing", "in_progress", "running", "reserved", string(keep.StatusTransient), "crashed":
		return "run"
	case "failed", string(keep.StatusLogic), string(keep.StatusInternal):
		return "err"
	case "needs_reconcile", "indeterminate", "unknown", string(keep.StatusReconciliation):
		return "doubt"
	case "needs_attention", "paused", "late", string(keep.StatusApproval), string(keep.StatusPerson):
		return "ask"
	}
	return ""
}

// runState is the state of a run as pages show it: one that is over waits for nothing.
func runState(r keep.Run) keep.RunStatus {
	if r.Closed && r.Status.Waits() {
		return "taken over"
	}
	return r.Status
}

// word is a state as people say it.
//
// It takes states of every noun, which have no word with two meanings; one that is not known is shown as
// it is stored.
func word(state any) string {
	switch s := fmt.Sprint(state); s {
	case "in_flight":
		return "in flight"
	case "needs_reconcile":
		return "being looked up"
	case "indeterminate":
		return "outcome unknown"
	case "needs_attention":
		return "needs attention"
	case "in_progress":
		return "in progress"
	case "done_without_body":
		return "done, answer not kept"
	case string(keep.StatusTransient):
		return "will be tried again"
	case string(keep.StatusReconciliation):
		return "outcome not known yet"
	case string(keep.StatusApproval):
		return "waits for approval"
	case string(keep.StatusPerson):
		return "waits for a person"
	case string(keep.StatusLogic):
		return "script failed"
	case string(keep.StatusInternal):
		return "internal failure"
	default:
		return strings.ReplaceAll(s, "_", " ")
	}
}

// levelMeaning says how an outcome can be known; docs/ARCHITECTURE.md has the levels.
func levelMeaning(l keep.Level) string {
	switch l {
	case keep.LevelKey:
		return "after a doubt the call is sent again with the same key, which the service knows"
	case keep.LevelClaim:
		return "after a doubt a one-time token tells whether it was used"
	case keep.LevelWitness:
		return "after a doubt the service is searched for the effect"
	case keep.LevelNone:
		return "nobody can tell after a doubt: a person is asked at once"
	}
	return ""
}

// maxPreview is how much of a payload a page shows, in bytes.
const maxPreview = 64 << 10

// A payload is JSON as pages show it.
type payload struct {
	Name string // what it is
	Text string // all of it, or its beginning
	Size int    // bytes; 0: there is none
	Cut  bool
	Link string // where to download all of it
}

// payloadOf makes raw readable, unless it is large.
func payloadOf(name string, raw json.RawMessage, link string) payload {
	p := payload{Name: name, Size: len(raw), Link: link}
	if len(raw) > maxPreview {
		p.Text, p.Cut = cut(maxPreview, string(raw)), true
		return p
	}
	var b bytes.Buffer
	// JSON that is nested deep grows by its indents, up to the square of its size.
	if json.Indent(&b, raw, "", "  ") != nil || b.Len() > 4*maxPreview {
		p.Text = string(raw)
		return p
	}
	p.Text = b.String()
	return p
}

// sentence returns a text of an error as a sentence.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + s[size:] + "."
}
