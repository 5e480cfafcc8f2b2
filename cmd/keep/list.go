package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
)

// listFlags are the flags that all lists have.
type listFlags struct {
	limit    int
	cursor   string
	all      bool
	workflow string
	status   string
	follow   bool

	// Of lists of what is made in time.
	since, until, text string
}

// made returns the period of the flags.
func (f listFlags) made() api.Made { return api.Made{Since: f.since, Until: f.until} }

// A listing is how one kind of thing is listed.
type listing[T any] struct {
	header []string
	row    func(T) []string
	fetch  func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[T], error)

	// statuses are what --status takes. Nil: there is no such flag.
	statuses []string

	// flags adds more flags. Nil: there are none.
	flags func(cmd *cobra.Command)

	// key names a row, and kinds are the changes by which rows are made or change, so that
	// the list can be followed. Nil: it cannot.
	key   func(T) string
	kinds []feed.Kind

	// words says what --text finds; rows then have a time, too. Empty: there are no such flags.
	words string

	// none is printed where there is no row. Empty: "None."
	none string
}

// words returns a closed set as flags and completion need it.
func words[S ~string](in []S) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// listCmd returns a command that lists things. Which flags it has follows from what the listing can
// do. It always asks by the API, through the daemon or not.
func listCmd[T any](a *app, use, short string, l listing[T]) *cobra.Command {
	f := &listFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(l.statuses); err != nil {
				return err
			}
			return a.look(cmd.Context(), func(c *api.Client) error {
				if f.follow {
					return follow(cmd.Context(), a, *f, l, c)
				}
				return printList(cmd.Context(), a, *f, l, c)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.limit, "limit", 100, "at most `n`")
	fs.StringVar(&f.cursor, "cursor", "", "continue after the `cursor` of the previous page")
	fs.BoolVar(&f.all, "all", false, "everything, page after page")
	fs.StringVar(&f.workflow, "workflow", "", "only of the workflow of this `name`")
	a.completeFlag(cmd, "workflow", a.completeWorkflows)
	if l.statuses != nil {
		fs.StringVar(&f.status, "status", "", "only those in this `status`: "+strings.Join(l.statuses, ", "))
		a.completeFlag(cmd, "status", fixed(l.statuses))
	}
	if l.words != "" {
		fs.StringVar(&f.since, "since", "", "only what was made at that `time` or later: 2026-11-20, 2026-11-20T09:30 (UTC), or how long ago: 90m, 2h, 7d")
		fs.StringVar(&f.until, "until", "", "only what was made before that `time`")
		fs.StringVar(&f.text, "text", "", "only those with `words` that begin so, in "+l.words)
	}
	if l.key != nil {
		fs.BoolVar(&f.follow, "follow", false, "print what is there, oldest first, then what is made or changes among the newest --limit, until it is interrupted; with --json one object a line")
	}
	if l.flags != nil {
		l.flags(cmd)
	}
	return cmd
}

// check refuses what no list could answer. A status that does not exist would otherwise be an empty
// list, which reads as if all were well.
func (f *listFlags) check(statuses []string) error {
	switch {
	case f.follow && (f.all || f.cursor != ""):
		return exit.Misusef("--follow begins with the newest --limit, without --all and --cursor")
	case f.follow && f.until != "":
		return exit.Misusef("--follow has no end: leave --until out")
	case f.limit < 1 || f.limit > keep.MaxPage:
		return exit.Misusef("--limit is %d, want 1 to %d; --all lists everything", f.limit, keep.MaxPage)
	case f.status != "" && !slices.Contains(statuses, f.status):
		return exit.Misusef("--status is %q, want one of %s", f.status, strings.Join(statuses, ", "))
	}
	return nil
}

// Sizes of pages that are asked for: the first is the most that the API gives. With payloads each
// row may be long.
const (
	pageSize     = 1000
	fullPageSize = 200
)

// printList prints as many rows as were asked for, page by page as they are read. Where to continue is
// said on stderr: stdout has rows alone.
func printList[T any](ctx context.Context, a *app, f listFlags, l listing[T], c *api.Client) error {
	p := api.Paging{Cursor: f.cursor, Full: a.JSON}
	size := pageSize
	if p.Full {
		size = fullPageSize
	}
	out := pagePrinter[T]{a: a, l: l}
	for left := f.limit; ; {
		// The last page is asked for as long as it is needed, so that its cursor is behind the last row.
		if p.Limit = size; !f.all {
			p.Limit = min(size, left)
		}
		page, err := l.fetch(ctx, c, f, p)
		if err != nil {
			return err
		}
		if len(page.Items) == 0 && f.workflow != "" && !out.began { // the name may be wrong
			if _, err := c.Workflow(ctx, keep.WorkflowName(f.workflow)); err != nil {
				return err
			}
		}
		left -= len(page.Items)
		more := page.Next != nil
		last := !more || !f.all && left <= 0
		if err := out.print(page.Items, last); err != nil {
			return err
		}
		if last && more {
			fmt.Fprintf(a.Err, "There are more. Continue with: --cursor %s\n", *page.Next)
		}
		if last {
			return nil
		}
		p.Cursor = *page.Next
	}
}

// A pagePrinter prints pages as one table or one JSON array.
type pagePrinter[T any] struct {
	a     *app
	l     listing[T]
	began bool
}

// print prints one page; the header comes with the first.
func (p *pagePrinter[T]) print(rows []T, last bool) error {
	defer func() { p.began = true }()
	if p.a.JSON {
		return p.printJSON(rows, last)
	}
	if !p.began && last && len(rows) == 0 {
		fmt.Fprintln(p.a.Err, cmp.Or(p.l.none, "None."))
		return nil
	}
	t := terminal.Table{Header: p.l.header}
	for _, r := range rows {
		t.Add(p.l.row(r)...)
	}
	if p.began {
		// Columns of later pages have their own widths: a page is printed before the next is read.
		t.Header = make([]string, len(p.l.header))
		return t.PrintRows(p.a.Out)
	}
	return t.Print(p.a.Out, p.a.OutInk)
}

// printJSON prints one page as the next elements of the array, so that --all
// needs no more memory than a page.
func (p *pagePrinter[T]) printJSON(rows []T, last bool) error {
	for i, r := range rows {
		text, err := terminal.SafeJSON(r, "  ")
		if err != nil {
			return err
		}
		start := ",\n  "
		if !p.began && i == 0 {
			start = "[\n  "
		}
		if _, err := io.WriteString(p.a.Out, start+text); err != nil {
			return err
		}
	}
	if !last {
		return nil
	}
	end := "\n]\n"
	if !p.began && len(rows) == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(p.a.Out, end)
	return err
}

// showCmd returns a command that shows one thing, named by its arguments.
func showCmd[T any](a *app, use, short string, args int,
	fetch func(ctx context.Context, c *api.Client, args []string) (T, error),
	print func(ctx context.Context, c *api.Client, v T) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(c *api.Client) error {
				v, err := fetch(cmd.Context(), c, args)
				switch {
				case err != nil:
					return err
				case a.JSON:
					return a.PrintJSON(v)
				}
				return print(cmd.Context(), c, v)
			})
		},
	}
}

// noun returns a command for one kind of thing: alone it lists, and it has list,
// show and more below it. list is called twice, since two commands cannot share their flags.
func noun(use string, list func() *cobra.Command, more ...*cobra.Command) *cobra.Command {
	parent, sub := list(), list()
	parent.Use, sub.Use = use, "list"
	parent.AddCommand(append([]*cobra.Command{sub}, more...)...)
	return parent
}
