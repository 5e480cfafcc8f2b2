package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/guide"
)

// An area is where problems of some kinds come from.
type area struct {
	title, about string
	dirs         []string // packages
	advice       map[string]advice
}

// advice is what the document says of a kind, beside what the code says.
type advice struct {
	do       string // what a client or a person can do
	happened string // if empty, the comment of the constant
	also     []int  // statuses that the code computes
}

// areas have an entry for each kind that the code has: a test fails otherwise.
var areas = []area{
	{"The API", "", []string{"api"}, map[string]advice{
		"account":             {do: "Read the detail: it says what the account lacks. `keep accounts show NAME` has the rest."},
		"ambiguous":           {do: "Say which one is meant, as the detail lists them: by a longer id, or by the workflow."},
		"bad-body":            {do: "Send a body that is JSON in UTF-8, and correct the place that the detail names. Nothing was done."},
		"bad-request":         {do: "Correct each place of `errors`, which the detail names too: `body.limit` is a member of the body, `query.limit` a parameter. The OpenAPI document says what each takes. Nothing was done."},
		"media-type":          {do: "Send JSON as `Content-Type: application/json`, without `Content-Encoding`."},
		"bad-checkpoint":      {do: "Send a value that is JSON and within the limits, for a producer of the workflow."},
		"bad-cursor":          {do: "Take the cursor from the page before, with the same filters, or start without one."},
		"bad-event":           {do: "Correct the payload or the id as the detail says. Nothing was published."},
		"bad-grant":           {do: "Correct the grant as the detail says. Nothing was granted."},
		"bad-time":            {do: "Write a date, a time of RFC 3339, or how long ago: 90m, 2h, 7d."},
		"bad-version":         {do: "Send `If-None-Match: *` for a new workflow, or `If-Match` with the ETag of the one that is replaced. `over` of a proposal is a version, such as 2.0, or empty."},
		"confirmation-needed": {do: "Look at the evidence first. If sending it again is what you want, repeat the request with what the detail names: `confirm`, or the `mark` of what you saw."},
		"consumer":            {do: "Start a producer or a job. A consumer runs when an event comes: `keep publish`."},
		"decided":             {do: "Nothing: the detail says who answered, when, and how."},
		"forbidden":           {do: "Use a token of a higher role: viewer, operator, author or admin."},
		"internal":            {do: "Look into the log of the host. The request may have been carried out: look before you repeat it."},
		"limit-needed":        {do: "Send a limit that is higher than the one that holds with raise, and none with another action."},
		"method":              {do: "Use one of the methods that `Allow` and the detail name. If the path should take yours, the host is an older Keep: upgrade it."},
		"no-route":            {do: "Check the path. If it is right, the host is an older Keep: upgrade it, or use its own client."},
		"no-version":          {do: "Send `If-Match` with the ETag of the workflow, or `If-None-Match: *` for a new one."},
		"not-found":           {do: "Check the id. What is old may have been deleted by retention."},
		"not-offered":         {do: "Choose one of the actions of the question."},
		"not-supported":       {do: "Read the detail: the host was started without it, and says what to use instead."},
		"refused":             {do: "Read the detail: it names the state, and what would have to be first."},
		"result-needed":       {do: "Send the result of the call, in the shape that the tool declares."},
		"run-open":            {do: "Wait until the run ends, or decide what it asks. `keep runs --workflow WORKFLOW --open` names it, and `keep why ID` says what it waits for."},
		"script":              {do: "Correct each mistake in `errors`, which has file, line and column. `keep check` finds the same."},
		"stale":               {do: "Read it again, look whether your change still makes sense, and send it with the new version."},
		"stopped":             {do: "Look whether it happened before you send it again."},
		"too-large":           {do: "Send less: an event has a limit, which the detail names."},
		"too-many":            {do: "Narrow the filter, or use the request that works in parts, which the detail names."},
		"unauthorized":        {do: "Send a token that is valid, as `Authorization: Bearer …`. `keep token add NAME` makes one."},
	}},
	{"Requests with an Idempotency-Key", "They come from `keep proxy` and from the middleware ([idempotency.md](idempotency.md)).", []string{"idempotency", "idempotency/proxy"}, map[string]advice{
		"key-missing":       {do: "Send an `Idempotency-Key`: one new value for each logical request, the same for its retries."},
		"key-invalid":       {do: "Send one key of 1 to 255 printable ASCII characters, in one header line."},
		"caller-unknown":    {do: "Send the credential that tells callers apart. With status 401 it was sent and is not valid. With 503 it cannot be checked now, and nothing was done: send the request again with the same key.", also: []int{http.StatusUnauthorized, http.StatusServiceUnavailable}},
		"caller-changed":    {do: "Use the credential of the first request for its retries, or a new key for a new request."},
		"body-unreadable":   {do: "Send the request again with the same key. Nothing was done."},
		"unknown-reference": {do: "Check the reference and the credential. Keys are forgotten after a time."},
		"body-timeout":      {do: "Send the request again with the same key. Nothing was done."},
		"busy":              {do: "Wait as long as `Retry-After` says, then send the request again with the same key."},
		"body-too-large":    {do: "Send a smaller request. The same one will be refused again."},
		"in-progress":       {do: "Wait as long as `Retry-After` says, then ask again with the same key and the same request."},
		"key-reused":        {do: "Use a new key for another request. A retry has the same method, path and body as the first."},
		"outcome-unknown":   {do: "Do not send it under another key: it may have happened. If `detail` says so, send it again with the same key. Otherwise ask at `instance`; the operator decides by `keep keys`.", also: []int{http.StatusBadGateway, http.StatusGatewayTimeout}},
		"body-not-stored":   {do: "Do not repeat it: it happened, with the status in `original_status`. Ask the service for what it made."},
		"store-unavailable": {do: "Send the request again with the same key, a little later. This one was not executed; what became of one before it with the same key is not known from this answer."},
		"not-sent":          {do: "Send the request again with the same key. What could not be sent did nothing."},
		"upstream-failed":   {do: "Look at the service whether it happened before you send it again: without a key nothing is on record.", also: []int{http.StatusBadGateway, http.StatusGatewayTimeout}},
	}},
	{"Deliveries to hooks", "They are answers to services that deliver ([hooks.md](hooks.md)), beside `bad-body` (the body is cut off, or not what its media type says: a service that cuts bodies off usually delivers again), `media-type` (have the service send JSON or a form, not compressed), `method` (a hook takes POST only: register the URL as one for deliveries, it is no page), `not-found` (no such hook) and `too-large` (the body has more than `body_limit`).", []string{"api/hook"}, map[string]advice{
		"unverified":  {happened: "the signature or the secret is missing or wrong, or the delivery is too old", do: "Compare the secret of the service with the one in keep.toml, and the clocks of both. `keep hooks` shows the last refusal."},
		"bad-id":      {happened: "the delivery has no id where the hook looks for one, or one that cannot be used", do: "Correct `id` of the hook in keep.toml."},
		"id-taken":    {happened: "another hook delivered an event with this id into the same topic", do: "Give each of the two hooks a topic of its own ([hooks.md](hooks.md)). `keep hooks` names the other one."},
		"unavailable": {happened: "Keep cannot take the delivery now; nothing was recorded", do: "Nothing, if the service delivers again: it was told when by `Retry-After`."},
	}},
}

// A kind is what the code says of one kind of problem.
type kind struct {
	comment  string
	statuses []int
}

// problems returns the document about the types of problems.
func problems(root string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(guide.Generated + "\n# Problem types\n\nAn error of the API is a problem of RFC 9457: JSON with `type`, `title`, `status` and `detail`. Branch on the last part\n" +
		"of `type`, which stays; `detail` is for people and may change. `keep docs TYPE` opens the entry of a type here, and where `keep docs`\n" +
		"serves, `/problems/KIND` leads to it. A problem of\n" +
		"type `about:blank`, or of none, has a status and a detail only: the request was refused before it was read.\n")
	var wrong []error
	known := map[string]bool{}
	for _, a := range areas {
		found := map[string]*kind{}
		for _, dir := range a.dirs {
			if err := kindsIn(filepath.Join(root, filepath.FromSlash(dir)), found); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(&b, "\n## %s\n", a.title)
		if a.about != "" {
			b.WriteString("\n" + a.about + "\n")
		}
		for _, name := range slices.Sorted(maps.Keys(a.advice)) {
			if found[name] == nil {
				wrong = append(wrong, fmt.Errorf("%s has no kind %q, and problems.go advises about it", a.dirs, name))
				continue
			}
			advice := a.advice[name]
			statuses := append(slices.Clone(advice.also), found[name].statuses...)
			happened := cmp.Or(advice.happened, found[name].comment)
			if len(statuses) == 0 || happened == "" {
				wrong = append(wrong, fmt.Errorf("%s: %q has the statuses %v and the comment %q", a.dirs, name, statuses, happened))
			}
			fmt.Fprintf(&b, "\n### %s\n\n%s: %s\n\n%s\n", name, statusText(statuses), strings.TrimSuffix(happened, ".")+".", advice.do)
			known[name] = true
		}
		for name := range found {
			if a.advice[name].do == "" && !known[name] {
				wrong = append(wrong, fmt.Errorf("%s has the kind %q, and problems.go says nothing about it", a.dirs, name))
			}
		}
	}
	return []byte(b.String()), errors.Join(wrong...)
}

func statusText(statuses []int) string {
	slices.Sort(statuses)
	var out []string
	for _, s := range slices.Compact(statuses) {
		out = append(out, strconv.Itoa(s)+" "+http.StatusText(s))
	}
	return "Status " + strings.Join(out, " or ")
}

// kindsIn adds the kinds of problems of a package: its constants of type Kind with their
// comments, and the statuses that are written beside a kind.
func kindsIn(dir string, into map[string]*kind) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	names := map[string]string{} // of constants
	of := func(name string) *kind {
		if into[name] == nil {
			into[name] = &kind{}
		}
		return into[name]
	}
	var parsed []*ast.File
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || textOf(spec.Type) != "Kind" {
				return true
			}
			name := text(spec.Values[0])
			names[spec.Names[0].Name] = name
			comment := strings.Join(strings.Fields(spec.Doc.Text()+spec.Comment.Text()), " ")
			of(name).comment = strings.TrimPrefix(comment, spec.Names[0].Name+": ")
			return true
		})
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			name, status := beside(n)
			if constant, ok := names[name]; ok {
				name = constant
			} else if strings.HasPrefix(name, "Kind") { // of another package of the area
				name = kebab(strings.TrimPrefix(name, "Kind"))
			}
			if name != "" && status != 0 {
				of(name).statuses = append(of(name).statuses, status)
			}
			return true
		})
	}
	return nil
}

// beside returns the kind and the status that a node has together: problemOf(status, kind, …),
// outcomeUnknown(id, status), Problem{Kind: kind, Status: status} or refusal{status, kind, …}.
func beside(n ast.Node) (name string, status int) {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch textOf(n.Fun) {
		case "problemOf":
			return text(n.Args[1]), number(n.Args[0])
		case "outcomeUnknown":
			return "KindOutcomeUnknown", number(n.Args[1])
		}
	case *ast.CompositeLit:
		if of := textOf(n.Type); of != "Problem" && of != "refusal" {
			return "", 0
		}
		for i, e := range n.Elts {
			field, value := i, e
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				value = kv.Value
				field = map[string]int{"status": 0, "kind": 1}[strings.ToLower(textOf(kv.Key))]
				if !strings.EqualFold(textOf(kv.Key), "status") && field == 0 {
					continue
				}
			}
			switch field {
			case 0:
				status = number(value)
			case 1:
				name = text(value)
			}
		}
		return name, status
	}
	return "", 0
}

// textOf returns the name that an expression is, without its package.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// text returns what a literal says, or the name that an expression is.
func text(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value) // the parser has read it
		return s
	}
	return textOf(e)
}

// number returns the status that an expression is, 0 if it is computed.
func number(e ast.Expr) int {
	if l, ok := e.(*ast.BasicLit); ok {
		n, _ := strconv.Atoi(l.Value) // no other literal stands there
		return n
	}
	for status := 100; status < 600; status++ {
		if name := strings.NewReplacer(" ", "", "-", "", "'", "").Replace(http.StatusText(status)); name != "" && "Status"+name == textOf(e) {
			return status
		}
	}
	return 0
}

// kebab returns the kind that a constant of a name such as NotSent is.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
