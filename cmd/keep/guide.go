package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/guide"
)

// guideCmd opens no database and reads no project.
func (a *app) guideCmd() *cobra.Command {
	g := guider{app: a}
	var sections strings.Builder
	for _, s := range guide.Sections() {
		fmt.Fprintf(&sections, "\n  %-20s  %s", s.Name, s.Title)
	}
	cmd := &cobra.Command{
		Use:   "guide [SECTION]",
		Short: "Learn to write workflows: patterns, mistakes, every key of keep.toml",
		Long: `Guide prints what a person or a language model learns Keep from, as a whole or one
section. Every example in it is checked and tested with this version.
` + sections.String(),
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: guide.Names(),
		RunE:      func(_ *cobra.Command, args []string) error { return g.run(args) },
	}
	f := cmd.Flags()
	f.BoolVar(&g.llms, "llms", false, "print llms.txt: what there is to read, with a sentence about each")
	f.StringVar(&g.skill, "skill", "", "write a skill for agents into this `DIR`")
	f.StringVar(&g.schema, "schema", "", "print the JSON Schema of this file: `keep` or pack")
	cmd.MarkFlagsMutuallyExclusive("llms", "skill", "schema")
	return cmd
}

// A guider prints one of the forms of the guide: text, llms.txt, a skill of files, or a schema.
type guider struct {
	*app
	llms          bool
	skill, schema string
}

// A guideSection is what keep guide --json prints of each section.
type guideSection struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about"`
	Text  string `json:"text"`
}

// run prints what was asked for. An unknown name is a mistake of the command line (2): the names
// are those of this version, and nothing has to be looked up.
func (g *guider) run(args []string) error {
	name := strings.Join(args, "")
	if name != "" && (g.llms || g.skill != "" || g.schema != "") {
		return exit.Misusef("a section is given, and --llms, --skill and --schema are about all of it")
	}
	switch {
	case g.llms:
		if g.JSON {
			return g.PrintJSON(map[string]string{"text": guide.LLMs()})
		}
		return g.print(guide.LLMs())
	case g.skill != "":
		return g.writeSkill()
	case g.schema != "":
		text, ok := guide.Schema(g.schema)
		if !ok {
			return exit.Misusef("--schema is %q, want one of %s", g.schema, strings.Join(guide.Schemas(), ", "))
		}
		return g.print(string(text))
	}
	text, ok := guide.Find(name)
	if !ok {
		return exit.Misusef("the guide has no section %q; it has %s", name, strings.Join(guide.Names(), ", "))
	}
	if !g.JSON {
		return g.print(text)
	}
	out := []guideSection{}
	for _, s := range guide.Sections() {
		if name == "" || s.Name == name {
			out = append(out, guideSection(s))
		}
	}
	return g.PrintJSON(out)
}

// print writes a text as it is: it is of this program, and has nothing to be cleaned.
func (g *guider) print(text string) error {
	_, err := fmt.Fprint(g.Out, text)
	return err
}

// writeSkill writes the files, and says on stderr which: stdout is for the guide itself.
func (g *guider) writeSkill() error {
	written, err := guide.WriteSkill(g.skill)
	if err != nil {
		return err
	}
	if g.JSON {
		return g.PrintJSON(map[string]any{"dir": g.skill, "written": written})
	}
	for _, name := range written {
		fmt.Fprintf(g.Err, "wrote  %s\n", name)
	}
	return nil
}
