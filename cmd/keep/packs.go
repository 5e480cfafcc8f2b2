package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// packsCmd tells of the services that Keep and the project have packs for. It opens no database, and
// works without a project: packs are chosen before there is a keep.toml.
func (a *app) packsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return &cobra.Command{
			Short: "Packs: the services that need no tools of your own",
			Long: `A pack makes one service a set of tools: connector = "slack" in a connection of
keep.toml. A project's own packs are in packs/ beside keep.toml and win.`,
			Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return a.listPacks() },
		}
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a pack with its tools", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.showPack(args[0]) },
	}
	copyTo := &cobra.Command{
		Use: "copy NAME", Short: "Copy a pack into packs/ of the project, to change it", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.copyPack(args[0]) },
	}
	return noun("packs", list, show, copyTo)
}

// projectDir returns the directory of the project.
func (a *app) projectDir() (string, error) {
	cfg, err := a.LoadConfig(".")
	if cfg == nil {
		return "", err
	}
	return cfg.Dir, nil // what is wrong with keep.toml doesn't matter here
}

// A packSummary is a line of the list. The hash is that of the text: calls of the ledger have it, so
// that a person can tell with which text they were made.
type packSummary struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Hash    string `json:"hash"`
	Source  string `json:"source"` // "built-in" or "project"
	File    string `json:"file"`
	Title   string `json:"title"`
	Tools   int    `json:"tools"`
}

// summary returns the line of a pack.
func summary(p config.Pack) packSummary {
	source := "project"
	if p.BuiltIn {
		source = "built-in"
	}
	return packSummary{p.Name, p.Version, p.Hash, source, p.File, p.Title, len(p.Config.Tools)}
}

// listPacks prints the packs that a connection can name: of two with one name, that of the project.
func (a *app) listPacks() error {
	dir, err := a.projectDir()
	if err != nil {
		return err
	}
	all, err := config.Packs(dir)
	if err != nil {
		return err
	}
	lines := make([]packSummary, len(all))
	t := terminal.Table{Header: []string{"PACK", "VERSION", "SOURCE", "TOOLS", "TITLE"}}
	for i, p := range all {
		lines[i] = summary(p)
		t.Add(p.Name, p.Version, lines[i].Source, terminal.Number(lines[i].Tools), p.Title)
	}
	if a.JSON {
		return a.PrintJSON(lines)
	}
	return t.Print(a.Out, a.OutInk)
}

// pack returns the pack of that name.
func (a *app) pack(name string) (config.Pack, string, error) {
	dir, err := a.projectDir()
	if err != nil {
		return config.Pack{}, "", err
	}
	all, err := config.Packs(dir)
	if err != nil {
		return config.Pack{}, "", err
	}
	i := slices.IndexFunc(all, func(p config.Pack) bool { return p.Name == name })
	if i < 0 {
		return config.Pack{}, "", &keep.NotFoundError{What: "pack", ID: name}
	}
	return all[i], dir, nil
}

// A packAuth says how a pack sends its credential.
type packAuth struct {
	Style  string   `json:"style"`
	Scopes []string `json:"scopes"`
}

// A packDetail is what show prints: what a person decides by whether to use the pack, or to copy it.
type packDetail struct {
	packSummary
	Docs    string   `json:"docs"`
	BaseURL string   `json:"base_url"`
	Auth    packAuth `json:"auth"`

	// Limits of all connections on the pack; null: it names none.
	Rate        *string `json:"rate"`
	Concurrency *int    `json:"concurrency"`

	Tools []packTool `json:"tools"`
}

// A packTool is one tool of a pack.
type packTool struct {
	Tool         string           `json:"tool"`
	Effect       connector.Effect `json:"effect"`
	Level        *keep.Level      `json:"level"` // null: reads have none
	Method       string           `json:"method"`
	Path         string           `json:"path"`
	Body         string           `json:"body"`
	Identity     []string         `json:"identity"`
	Params       json.RawMessage  `json:"params"`
	Result       json.RawMessage  `json:"result"`
	Pages        *string          `json:"pages"` // their style; null: it comes at once
	Token        []string         `json:"token"` // where the host's key goes
	SettleAfter  *string          `json:"settle_after"`
	SettleSource *string          `json:"settle_source"`
	VerifyByHand *string          `json:"verify_by_hand"`
	Scopes       []string         `json:"scopes"`
	Description  string           `json:"description"`
	Example      map[string]any   `json:"example"`
}

// toolOf describes one tool, from what its connector says of it and from the text of the pack. What
// a pack leaves out is filled in as the connector does (POST and JSON for what changes
// something), so that a reader need not know the defaults. Token says by which parts of a
// request the service can tell that two are one, or a lookup can find it again.
func toolOf(spec connector.Spec, t httpapi.Tool) packTool {
	out := packTool{
		Tool: spec.Name, Effect: spec.Effect, Method: t.Method, Path: t.Path, Body: t.Body, Identity: append([]string{}, spec.Identity...),
		Params: spec.Params, Result: spec.Result, Token: []string{}, SettleSource: terminal.OrNull(t.SettleSource), VerifyByHand: terminal.OrNull(spec.VerifyByHand),
		Scopes: append([]string{}, t.Scopes...), Description: spec.Description, Example: t.Example,
	}
	if t.Pages != nil {
		out.Pages = &t.Pages.Style
	}
	// Level, key and settling are about lost answers of calls that change something.
	if spec.Effect != connector.Mutate {
		out.Method = cmp.Or(out.Method, "GET")
		return out
	}
	level, settle := spec.Level, spec.SettleAfter.String()
	out.Level, out.SettleAfter = &level, &settle
	out.Method = cmp.Or(out.Method, "POST")
	if out.Body == "" {
		out.Body = "json"
	}
	if t.Start != nil {
		out.Token = append(out.Token, "used up: "+t.Start.Path)
		if t.Start.Mail != nil && t.Start.Mail.Mark != "" {
			out.Token = append(out.Token, "mail header "+t.Start.Mail.Mark)
		}
	}
	if fixed, err := json.Marshal(t.Fixed); err == nil && strings.Contains(string(fixed), "{token}") {
		out.Token = append(out.Token, "body")
	}
	if k := t.Token; k != nil {
		for place, name := range map[string]string{"header ": k.Header, "body ": k.Body, "query ": k.Query, "metadata ": k.Metadata} {
			if name != "" {
				out.Token = append(out.Token, place+name)
			}
		}
		if k.Append != nil {
			out.Token = append(out.Token, "appended to "+k.Append.Param)
		}
	}
	// The places above come out of a map.
	slices.Sort(out.Token)
	return out
}

// showPack reads the pack as a connection would, so that what is wrong with it is said here too. The
// scopes are those of the pack and of all its tools.
func (a *app) showPack(name string) error {
	p, _, err := a.pack(name)
	if err != nil {
		return err
	}
	// The name stands for a connection, of which there is none.
	conn, err := httpapi.New("pack", p.Config)
	if err != nil {
		return err
	}
	d := packDetail{packSummary: summary(p), Docs: p.Docs, BaseURL: p.BaseURL, Auth: packAuth{p.Auth.Style, append([]string{}, p.Auth.Scopes...)}}
	if rates := p.Limits.Text(); rates != "" {
		d.Rate = &rates
	}
	if p.Limits.Concurrency > 0 {
		d.Concurrency = &p.Limits.Concurrency
	}
	for _, t := range conn.Tools {
		d.Tools = append(d.Tools, toolOf(t.Spec(), p.Config.Tools[t.Spec().Name]))
		d.Auth.Scopes = append(d.Auth.Scopes, p.Config.Tools[t.Spec().Name].Scopes...)
	}
	slices.Sort(d.Auth.Scopes)
	d.Auth.Scopes = slices.Compact(d.Auth.Scopes)
	if a.JSON {
		return a.PrintJSON(d)
	}
	return a.printPack(d)
}

// printPack prints a pack for people: a sheet, and a table of its tools.
func (a *app) printPack(d packDetail) error {
	var s terminal.Sheet
	s.Add("pack", "%s %s, %s", d.Name, d.Version, d.Source)
	s.Add("service", "%s, %s", d.Title, d.BaseURL)
	s.Add("docs", "%s", d.Docs)
	s.Add("credential", "%s", d.Auth.Style)
	if len(d.Auth.Scopes) > 0 {
		s.Add("scopes", "%s", strings.Join(d.Auth.Scopes, ", "))
	}
	s.Add("hash", "%s", d.Hash)
	if err := s.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"TOOL", "EFFECT", "LEVEL", "SETTLES", "KEY", "DESCRIPTION"}}
	for _, tool := range d.Tools {
		level, settle := "", ""
		if tool.Level != nil {
			level, settle = string(*tool.Level), *tool.SettleAfter
		}
		t.Add(tool.Tool, string(tool.Effect), level, settle, strings.Join(tool.Token, ", "), tool.Description)
	}
	return t.Print(a.Out, a.OutInk)
}

// copyPack writes a pack where the project's own are. From then on the copy counts, and does not
// change with the next version of Keep.
func (a *app) copyPack(name string) error {
	p, dir, err := a.pack(name)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "packs", name+".toml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	// Never over a copy that was made before: it was made to be changed.
	// Whole or not at all: a part would be a pack that counts, with other tools.
	err = writeFile(project.File{Name: file, Text: string(p.Text)}, false)
	if _, there := errors.AsType[*thereError](err); there {
		return exit.Failedf("%s is there already, and is not overwritten", filepath.Join("packs", name+".toml"))
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]string{"file": file})
	}
	_, err = fmt.Fprintln(a.Out, file)
	return err
}
