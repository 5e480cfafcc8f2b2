package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/connector/pairings"
)

// PairingDir is the folder of a project's own pairings, beside keep.toml.
const PairingDir = "pairings"

var pairingLibrary = library{PairingDir, pairings.Names, pairings.Read}

// A Pairing is a file that says how the outcomes of an MCP server's tools can be known.
type Pairing struct {
	Name, Version, Title, Docs, Hash string

	File    string                    // as people say it
	BuiltIn bool                      // it is one of Keep's own
	Tools   map[string]mcp.ToolConfig // by the name that the server has for them

	text  []byte
	tools map[string]*node
}

// pairingTable is a pairing's file.
type pairingTable struct {
	Name    string                    `toml:"name"`    // as pairing = "…" says it: the name of the file
	Version string                    `toml:"version"` // of the pairing; records of calls keep it
	Title   string                    `toml:"title"`   // of the server, for people
	Docs    string                    `toml:"docs"`    // address of what the pairing follows
	Tools   map[string]mcp.ToolConfig `toml:"tools"`   // by the name that the server has for them
}

// mcpConnection is a connection to an MCP server.
type mcpConnection struct {
	mcp.Config
	Pairing string   `toml:"pairing"` // file of what is known of the server's tools; its tools are declared by it
	Only    []string `toml:"only"`    // tools of the pairing; empty: all
}

// Pairings returns the pairings that a project in dir can use: its own, and those of Keep that it
// has none of the same name for, sorted. The error is an *Error with what is wrong in them.
func Pairings(dir string) ([]Pairing, error) { return readAll(pairingLibrary, dir, readPairing) }

// readPairing reads and checks a pairing. The error is fs.ErrNotExist if there is none.
func readPairing(dir, name string) (Pairing, []Problem, error) {
	f, err := pairingLibrary.open(dir, name)
	p := Pairing{Name: name, File: f.file, Hash: f.hash, BuiltIn: f.builtIn, text: f.text}
	if err != nil {
		return p, nil, err
	}
	return p, p.parse(), nil
}

// parse reads the text of a pairing and checks it by itself, as a connection of scripts would be.
func (p *Pairing) parse() []Problem {
	root, syntax := parse(p.text)
	if syntax != nil {
		syntax.File = p.File
		return []Problem{*syntax}
	}
	b := &binder{file: p.File}
	root.inFile(p.File)
	var t pairingTable
	b.bind(reflect.ValueOf(&t).Elem(), root, "")
	if t.Name != p.Name {
		b.addf(root.table()["name"], "name", "is %q, and the file is %s", t.Name, p.File)
	}
	if t.Version == "" || t.Title == "" {
		b.addf(nil, "version", "version and title are required")
	}
	p.Version, p.Title, p.Docs, p.Tools, p.tools = t.Version, t.Title, t.Docs, t.Tools, root.table()["tools"].table()
	said := make(map[string]string, len(t.Tools)) // by what scripts say
	for _, name := range slices.Sorted(maps.Keys(t.Tools)) {
		if t.Tools[name].Tool != "" {
			b.addf(p.tools[name].table()["tool"], dotted("tools", name)+".tool", "a pairing names tools as their server does")
		}
		if other, taken := said[sayable(name)]; taken {
			b.addf(p.tools[name], dotted("tools", name), "scripts would call it %s, as they call %q: take one of the two out", sayable(name), other)
		}
		said[sayable(name)] = name
	}
	if len(b.problems) > 0 {
		return b.problems
	}
	return p.problems(b, root)
}

// problems returns what the connector objects to.
//
// The connector is made with the command true, which is never started: only what is said of the tools is
// checked.
func (p *Pairing) problems(b *binder, root *node) []Problem {
	said := make(map[string]mcp.ToolConfig, len(p.Tools))
	for name, tool := range p.Tools {
		said[sayable(name)] = tool
	}
	_, err := mcp.New("pairing", mcp.Config{Place: mcp.Place{Command: "true"}, Tools: said})
	e, ok := errors.AsType[*connector.ConfigError](err)
	if err != nil && !ok {
		return []Problem{b.problem(nil, "", "%v", err)}
	}
	var out []Problem
	for i := 0; ok && i < len(e.Problems); i++ {
		path := strings.TrimPrefix(e.Problems[i].Path, "connections.pairing.")
		out = append(out, b.problem(root.nearest("."+path), path, "%s", e.Problems[i].Message))
	}
	return out
}

// Text returns the whole file.
func (p Pairing) Text() string { return string(p.text) }

// CheckPairing returns what is wrong with the text of a pairing, as an *Error.
func CheckPairing(name, text string) error {
	p := Pairing{Name: name, File: PairingDir + "/" + name + ".toml", text: []byte(text)}
	return asError(p.parse())
}

// Pack returns what records of calls keep of p.
func (p Pairing) Pack() *keep.Pack {
	return &keep.Pack{Name: p.Name, Version: p.Version, Hash: p.Hash}
}

// sayable returns the name that scripts have for a tool.
//
// Servers name tools as they like, such as "create-issue"; ctx.NAME.TOOL in a script has to be a word of
// JavaScript. The server's own name is kept in tool, and is what is called.
func sayable(tool string) string {
	if connector.IsName(tool) {
		return tool
	}
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || (r|0x20) >= 'a' && (r|0x20) <= 'z' {
			return r
		}
		return '_'
	}, tool)
	if !connector.IsName(name) {
		return "_" + name
	}
	return name
}

// named returns the pairing that n names; nil: it names none, or something is wrong with it.
func (b *binder) named(n *node, at, dir string) *Pairing {
	kn := n.table()["pairing"]
	name, ok := kn.string()
	if !ok || name == "" {
		return nil
	}
	p, problems, err := readPairing(dir, name)
	b.libraries[p.File] = p.Hash
	switch {
	case errors.Is(err, fs.ErrNotExist):
		problem := b.problem(kn, at+".pairing", "there is no pairing %q, neither in %s/ nor in Keep", name, PairingDir)
		problem.Fix = suggest(name, pairings.Names())
		b.problems = append(b.problems, problem)
		return nil
	case err != nil:
		b.addf(kn, at+".pairing", "%v", err)
		return nil
	case len(problems) > 0:
		b.problems = append(b.problems, problems...)
		return nil
	}
	return &p
}

// paired returns the table of a connection with the tools of a pairing under its own.
//
// It is done before the table is bound, so that a tool which the owner changes in one key is checked as a
// whole.
func (b *binder) paired(n *node, at string, p *Pairing) *node {
	only := map[string]bool{}
	if list, ok := n.table()["only"].list(); ok {
		for _, e := range list {
			name, _ := e.string()
			only[name] = true
			if p.tools[name] == nil {
				problem := b.problem(e, at+".only", "the pairing %s has no tool %q", p.Name, name)
				problem.Fix = suggest(name, slices.Collect(maps.Keys(p.tools)))
				b.problems = append(b.problems, problem)
			}
		}
	}
	tools := make(map[string]*node)
	for name, tool := range p.tools {
		if len(only) > 0 && !only[name] {
			continue
		}
		if said := sayable(name); said != name {
			table := maps.Clone(tool.table())
			table["tool"] = &node{at: tool.at, file: tool.file, value: name}
			tools[said] = &node{at: tool.at, file: tool.file, value: table}
			continue
		}
		tools[name] = tool
	}
	for name, own := range n.table()["tools"].table() {
		tools[name] = over(tools[name], own)
	}
	merged, table := *n, maps.Clone(n.table())
	table["tools"] = &node{at: n.at, value: tools}
	merged.value = table
	return &merged
}

// mcpAccount reports whether a server has an account, and adds what is wrong with it.
func (b *binder) mcpAccount(n *node, at, account string, p mcp.Place) bool {
	kn := n.table()["account"]
	switch {
	case account == "":
		return false
	case !AccountName(account):
		b.addf(kn, at+".account", "is no name of an account: use letters, digits, dots, dashes and underscores")
	case p.URL == "":
		b.addf(kn, at+".account", "is for a server with a url: a command gets its credential by env")
	case insecure(p.URL):
		b.addf(n.table()["url"], at+".url", "a credential is sent over https only, but for this machine itself")
	case slices.ContainsFunc(slices.Collect(maps.Keys(p.Headers)), func(h string) bool { return strings.EqualFold(h, "Authorization") }):
		b.addf(kn, at+".account", "and the header Authorization are given; want one of them")
	}
	return true
}

// Misfits starts or connects to each MCP server, and returns what is declared of its tools and is not
// there, and which servers do not answer. It calls no tool.
func (c *Config) Misfits(ctx context.Context) []Problem {
	var out []Problem
	for _, conn := range c.Connections {
		if conn.mcp == nil {
			continue
		}
		at := conn.mcp.Server(conn.Name)
		at.Secrets, at.Account, at.Accounts = conn.mcp.Secrets, conn.mcp.Account, conn.mcp.Accounts
		out = append(out, c.misfits(ctx, dotted("connections", conn.Name), at, conn.mcp.Tools)...)
	}
	for _, server := range c.Gateway.Servers {
		out = append(out, c.misfits(ctx, dotted("gateway.servers", server.Name), server, c.Gateway.Declared[server.Name])...)
	}
	return out
}

// misfits compares one server.
func (c *Config) misfits(ctx context.Context, path string, at mcp.ServerConfig, declared map[string]mcp.ToolConfig) (out []Problem) {
	server := mcp.NewServer(at)
	defer server.Close()
	listed, err := server.Tools(ctx)
	if err != nil {
		return []Problem{{File: c.File, Path: path, Message: fmt.Sprintf("the MCP server does not answer: %v", err)}}
	}
	for _, misfit := range mcp.Misfits(listed, declared) {
		out = append(out, Problem{File: c.File, Path: path, Message: misfit})
	}
	return out
}
