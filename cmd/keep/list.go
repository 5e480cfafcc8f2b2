package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/spf13/cobra"
)

// listFlags are the flags that all lists have.
type listFlags struct {
	limit    int
	cursor   string
	all      bool
	workflow string
	status   string
}

// A listing is how one kind of thing is listed.
type listing[T any] struct {
	header []string
	row    func(T) []string
	fetch  func(ctx context.Context, db database, f listFlags, p keep.Page) ([]T, string, error)

	// statuses are what --status takes. Nil: there is no such flag.
	statuses []string

	// flags adds more flags. Nil: there are none.
	flags func(cmd *cobra.Command)
}

// words returns a closed set as flags and completion need it.
func words[S ~string](in []S) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// listCmd returns a command that lists things. newest is what the list is of.
func listCmd[T any](a *app, use, short string, l listing[T]) *cobra.Command {
	f := &listFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(l.statuses); err != nil {
				return err
			}
			return a.look(cmd.Context(), func(db database) error {
				return printList(cmd.Context(), a, *f, l, db)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.limit, "limit", 100, "at most `n`")
	fs.StringVar(&f.cursor, "cursor", "", "go on after the `cursor` of the previous page")
	fs.BoolVar(&f.all, "all", false, "everything, page after page")
	fs.StringVar(&f.workflow, "workflow", "", "only of the workflow of this `name`")
	a.completeFlag(cmd, "workflow", a.completeWorkflows)
	if l.statuses != nil {
		fs.StringVar(&f.status, "status", "", "only those in this `status`: "+strings.Join(l.statuses, ", "))
		a.completeFlag(cmd, "status", fixed(l.statuses))
	}
	if l.flags != nil {
		l.flags(cmd)
	}
	return cmd
}

// check refuses what no list could answer.
func (f *listFlags) check(statuses []string) error {
	switch {
	case f.limit < 1 || f.limit > keep.MaxPage:
		return misusef("--limit is %d, want 1 to %d; --all lists everything", f.limit, keep.MaxPage)
	case f.status != "" && !slices.Contains(statuses, f.status):
		return misusef("--status is %q, want one of %s", f.status, strings.Join(statuses, ", "))
	}
	return nil
}

// printList prints one page, or all of them as they are read.
func printList[T any](ctx context.Context, a *app, f listFlags, l listing[T], db database) error {
	page := keep.Page{Limit: f.limit, After: f.cursor}
	if f.all {
		page.Limit = 1000
	}
	out := pagePrinter[T]{a: a, l: l}
	for {
		rows, next, err := l.fetch(ctx, db, f, page)
		if err != nil {
			return err
		}
		if page.After = next; !f.all || next == "" {
			if err := out.print(rows, true); err != nil {
				return err
			}
			if next != "" {
				fmt.Fprintf(a.err, "There are more. Go on with: --cursor %s\n", next)
			}
			return nil
		}
		if err := out.print(rows, false); err != nil {
			return err
		}
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
	if p.a.json {
		return p.printJSON(rows, last)
	}
	if !p.began && last && len(rows) == 0 {
		fmt.Fprintln(p.a.err, "None.")
		return nil
	}
	t := table{header: p.l.header}
	for _, r := range rows {
		t.add(p.l.row(r)...)
	}
	if p.began {
		t.header = make([]string, len(p.l.header))
		return t.printRows(p.a.out)
	}
	return t.print(p.a.out, p.a.outInk)
}

// printJSON prints one page as the next elements of the array, so that --all
// needs no more memory than a page.
func (p *pagePrinter[T]) printJSON(rows []T, last bool) error {
	for i, r := range rows {
		text, err := safeJSON(r, "  ")
		if err != nil {
			return err
		}
		start := ",\n  "
		if !p.began && i == 0 {
			start = "[\n  "
		}
		if _, err := io.WriteString(p.a.out, start+text); err != nil {
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
	_, err := io.WriteString(p.a.out, end)
	return err
}

// showCmd returns a command that shows one thing, named by its arguments.
func showCmd[T any](a *app, use, short string, args int,
	fetch func(ctx context.Context, db database, args []string) (T, error),
	print func(ctx context.Context, db database, v T) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(db database) error {
				v, err := fetch(cmd.Context(), db, args)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(v)
				}
				return print(cmd.Context(), db, v)
			})
		},
	}
}

// noun returns a command for one kind of thing: alone it lists, and it has list,
// show and more below it.
func noun(use string, list func() *cobra.Command, more ...*cobra.Command) *cobra.Command {
	parent, sub := list(), list()
	parent.Use, sub.Use = use, "list"
	parent.AddCommand(append([]*cobra.Command{sub}, more...)...)
	return parent
}
