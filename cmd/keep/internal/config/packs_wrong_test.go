package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/testkit/storetest"
)

// goodPack is a pack with nothing wrong. Each table of a tool is a line of its own.
const goodPack = `name = "svc"
version = "1"
title = "Service"
docs = "https://svc.example/docs"
base_url = "https://svc.example"
[auth]
style = "bearer"
[tools.list]
effect = "list"
path = "/things"
[tools.make]
effect = "mutate"
path = "/things"
identity = ["name"]
token = { metadata = "keep_id" }
applied_if = [{ path = "$.ok", equals = true }]
params = { type = "object", properties = { name = { type = "string" } } }
[tools.make.reconcile]
path = "/things"
items = "$.things"
match = { "metadata.keep_id" = "{token}" }
complete = true
`

// problemsOf returns what is wrong with a project's pack.
func problemsOf(t *testing.T, text string) []config.Problem {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "packs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "packs", "svc.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Packs(dir)
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*config.Error](err)
	if !ok {
		t.Fatal(err)
	}
	return e.Problems
}

// TestWrongPacks says of each mistake in which file and line it is, and what to do.
func TestWrongPacks(t *testing.T) {
	t.Parallel()
	if ps := problemsOf(t, goodPack); len(ps) > 0 {
		t.Fatalf("the good pack: %v", ps)
	}
	for name, c := range map[string]struct {
		old, new string
		line     int
		want     string // of the message or the fix
	}{
		"another name":                 {`name = "svc"`, `name = "other"`, 1, "the file is packs/svc.toml"},
		"no version":                   {`version = "1"`, ``, 0, "version and title are required"},
		"an unknown key":               {`title = "Service"`, "title = \"Service\"\ntitel = 1", 4, "did you mean title?"},
		"an unknown style":             {`style = "bearer"`, `style = "beerer"`, 6, "want one of bearer"},
		"a header without the style":   {`style = "bearer"`, "style = \"bearer\"\nheader = \"X\"", 6, "header and query name where"},
		"a misspelt key of a tool":     {`identity = ["name"]`, `identty = ["name"]`, 14, "did you mean identity?"},
		"no identity":                  {`identity = ["name"]`, ``, 11, "at least one param must say what is changed"},
		"a lookup without its mark":    {`token = { metadata = "keep_id" }`, ``, 18, "which the call never sends"},
		"a lookup for nothing":         {`match = { "metadata.keep_id" = "{token}" }`, ``, 18, "asks for nothing"},
		"a success that nobody sees":   {`applied_if = [{ path = "$.ok", equals = true }]`, ``, 11, "needs applied_if, or a result schema"},
		"an effect that is none":       {`effect = "list"`, `effect = "lisp"`, 9, "want list, get or mutate"},
		"a path without a slash":       {"[tools.make]\neffect = \"mutate\"\npath = \"/things\"", "[tools.make]\neffect = \"mutate\"\npath = \"things\"", 13, "must start with /"},
		"pages of a change":            {`token = {`, "pages = { style = \"cursor\", next = \"$.n\", param = \"c\" }\ntoken = {", 15, "is for list tools"},
		"a scope that is missing":      {`style = "bearer"`, `style = "oauth2"`, 8, "scopes = []"},
		"scopes of one tool alone":     {`identity = ["name"]`, "identity = [\"name\"]\nscopes = [\"things:write\"]", 8, "tools.list.scopes"},
		"a start without gone":         {`token = {`, "start = { path = \"/drafts\", id = \"$.id\" }\ntoken = {", 15, "is missing: the request that tells"},
		"gone without {start}":         {`token = {`, "start = { path = \"/drafts\", id = \"$.id\", gone = { path = \"/drafts\" } }\ntoken = {", 15, "must hold {start}"},
		"gone_means without a witness": {`token = {`, "start = { path = \"/drafts\", id = \"$.id\", gone_means = \"applied\", gone = { path = \"/drafts/{start}\" } }\ntoken = {", 15, "a gateway has statuses too"},
		"sets and deduplicates":        {`token = {`, "sets = true\ndeduplicates = true\ntoken = {", 15, "one of sets, deduplicates and start"},
		"a resend of nothing":          {`token = {`, "on_resend = { happened = [409] }\ntoken = {", 15, "needs deduplicates = true or sets = true"},
		"a mail for nobody":            {`token = {`, "mail = { into = \"a..b\" }\ntoken = {", 15, "want names of the body"},
		"a body of a GET lookup":       {`complete = true`, "complete = true\nfixed = { a = 1 }", 23, "a GET request has no body"},
		"a status that says applied":   {`token = {`, "statuses = { 409 = \"applied\" }\ntoken = {", 15, "want one of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(goodPack, c.old) {
				t.Fatal("the good pack has no such text")
			}
			ps := problemsOf(t, strings.Replace(goodPack, c.old, c.new, 1))
			for _, p := range ps {
				if p.File == "packs/svc.toml" && p.Line == c.line && strings.Contains(p.Path+" "+p.Message+p.Fix, c.want) {
					return
				}
			}
			t.Errorf("problems %v, want one of line %d with %q", ps, c.line, c.want)
		})
	}
}

// TestWrongTypesInPacks puts a value of no fitting type at every key that a tool can have.
func TestWrongTypesInPacks(t *testing.T) {
	t.Parallel()
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for _, f := range reflect.VisibleFields(typ) {
			key := f.Tag.Get("toml")
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if key == "" || key == "-" || inner.Kind() == reflect.Interface || path+key == "effect" || path+key == "path" {
				continue // of any type, or in the pack already
			}
			at := path + key
			t.Run(at, func(t *testing.T) {
				t.Parallel()
				if ceiling.Race && !storetest.Sampled(at, 5) {
					return // test.sh has it without the race detector, too
				}
				ps := problemsOf(t, strings.Replace(goodPack, "[tools.list]\n", "[tools.list]\n"+at+" = 1979-05-27\n", 1))
				for _, p := range ps {
					if p.File == "packs/svc.toml" && p.Line == 9 && p.Column > 0 && strings.Contains(p.Message, "want ") {
						return
					}
				}
				t.Errorf("problems %v, want one of line 9 that says what is wanted", ps)
			})
			if inner.Kind() == reflect.Struct {
				walk(inner, at+".")
			}
		}
	}
	tool := reflect.TypeFor[httpapi.Tool]()
	walk(tool, "")
}

// TestPackEnvironment sets keys of a connection on a pack by variables.
func TestPackEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "keep.toml")
	if err := os.WriteFile(file, []byte("[connections.team]\nconnector = \"slack\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file, Environ: []string{
		"KEEP_CONNECTIONS_TEAM_BASE_URL=http://127.0.0.1:9/api", "KEEP_CONNECTIONS_TEAM_SECRET=xoxb-x", "KEEP_CONNECTIONS_TEAM_ONLY=postMessage",
	}})
	if err != nil {
		t.Fatal(err)
	}
	conns, err := cfg.Connect()
	if err != nil || len(conns) != 1 || len(conns[0].Tools) != 1 || conns[0].Pack == nil || conns[0].Pack.Name != "slack" {
		t.Errorf("connections %+v, %v; want one on slack with one tool", conns, err)
	}
	for _, w := range cfg.Warnings {
		if strings.HasPrefix(w.File, "KEEP_") && strings.Contains(w.Message, "sets nothing") {
			t.Error(w)
		}
	}
}
