package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/manual"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// docsCmd opens no database and reads no project: the documents are in the program, and are those of
// its version.
func (a *app) docsCmd() *cobra.Command {
	d := docReader{app: a}
	cmd := &cobra.Command{
		Use:   "docs [TOPIC]",
		Short: "Read the documents of this version, offline, as pages with a search",
		Long: `Docs serves the documents that are in the program on an address of this machine, until it is
interrupted. TOPIC is a document, a heading of one (NAME#HEADING), or the type of a
problem that the API answered with.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range manual.Open().Pages() {
				names = append(names, p.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), strings.Join(args, "")) },
	}
	f := cmd.Flags()
	f.BoolVar(&d.list, "list", false, "print which documents there are")
	f.BoolVar(&d.print, "print", false, "print the document as Markdown, and serve nothing")
	f.BoolVar(&d.open, "open", false, "open the page in the browser ($BROWSER names the program)")
	f.IntVar(&d.port, "port", 0, "`port` of 127.0.0.1 (default: any)")
	cmd.MarkFlagsMutuallyExclusive("list", "print", "open")
	cmd.AddCommand(a.docsSearchCmd())
	return cmd
}

// A docReader shows the documents in one of their forms.
type docReader struct {
	*app
	list, print, open bool
	port              int
}

// A document is what keep docs --list --json prints of each.
type document struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about"`
}

// run shows a topic, in the browser unless something else was asked for.
func (d *docReader) run(ctx context.Context, topic string) error {
	l := manual.Open()
	if d.list {
		if topic != "" {
			return exit.Misusef("--list is about all documents, and a topic is given")
		}
		return d.printList(l)
	}
	if d.print {
		text, ok := l.Print(topic)
		if !ok {
			return exit.Misusef("there is no document %q; keep docs --list names them", topic)
		}
		if d.JSON {
			return d.PrintJSON(map[string]string{"text": text})
		}
		_, err := fmt.Fprint(d.Out, text)
		return err
	}
	path, ok := l.Find(topic)
	if !ok {
		return exit.Misusef("there is no document or heading %q; keep docs --list names the documents, keep docs search WORDS finds headings", topic)
	}
	return d.serve(ctx, path)
}

// printList prints which documents there are, by the names that keep docs takes.
func (d *docReader) printList(l *manual.Library) error {
	out := []document{}
	t := terminal.Table{Header: []string{"NAME", "TITLE"}}
	for _, p := range l.Pages() {
		out = append(out, document{p.Name, p.Title, p.About})
		t.Add(p.Name, p.Title)
	}
	if d.JSON {
		return d.PrintJSON(out)
	}
	return t.Print(d.Out, d.OutInk)
}

// serve serves the pages on loopback until ctx ends. The address is bound before it is shown, so that
// a browser which is faster waits and is not refused.
func (d *docReader) serve(ctx context.Context, path string) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)))
	if err != nil {
		return exit.Failedf("serve the documents: %w", err)
	}
	s := &http.Server{Handler: manual.Handler(), ReadHeaderTimeout: 10 * time.Second}
	// Closed and not shut down: nobody loses anything by a page that is not whole.
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := d.showPage(d.Out, "http://"+l.Addr().String()+path, "", !d.open); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// docsSearchCmd searches as the pages do. What it prints in bold is a TOPIC of keep docs.
func (a *app) docsSearchCmd() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "search WORDS",
		Short: "Find the headings below which all of these words stand",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if limit < 1 {
				return exit.Misusef("--limit is %d, want at least 1", limit)
			}
			hits := manual.Open().Search(strings.Join(args, " "), limit)
			if a.JSON {
				return a.PrintJSON(hits)
			}
			for _, h := range hits {
				fmt.Fprintf(a.Out, "%s  %s\n", a.OutInk.Bold(h.Topic()), h.Heading)
				if h.Text != "" {
					fmt.Fprintf(a.Out, "    %s\n", h.Text)
				}
			}
			if len(hits) == 0 {
				fmt.Fprintln(a.Err, "None.")
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most `n`")
	return cmd
}
