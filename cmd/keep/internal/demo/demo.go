// Package demo shows what Keep is for: a bank that loses answers, a workflow that pays ten
// invoices through it, and a kill in the middle.
package demo

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/store/sqlite"
)

//go:embed files
var files embed.FS

// limit is the longest that a demo may take; most take about five seconds.
const limit = time.Minute

// A demo is one performance: a bank in this process, and Keep in others.
type demo struct {
	a    *terminal.Terminal
	exe  string // this program
	dir  string
	gone bool // dir is removed at the end
	bank *bank
}

// Run performs, prints the comparison and leaves nothing running.
func Run(ctx context.Context, t *terminal.Terminal, dir string, kept bool) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &keep.TimeoutError{Op: "demo", After: limit})
	defer cancel()
	d := &demo{a: t, gone: dir == "" && !kept}
	if d.exe, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if d.dir, err = workDir(dir); err != nil {
		return err
	}
	if d.gone {
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	if d.bank, err = openBank("127.0.0.1:0", Invoices(), d.say); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.bank.close()) }()
	if err := d.write(); err != nil {
		return err
	}
	if err := d.perform(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return d.compare(ctx)
}

// workDir returns an empty directory: the one of that name, or a new one.
func workDir(name string) (string, error) {
	if name == "" {
		return os.MkdirTemp("", "keep-demo-")
	}
	if err := os.MkdirAll(name, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(name)
	if err == nil && len(entries) > 0 {
		err = exit.Misusef("%s is not empty; the demo wants a directory of its own", name)
	}
	return name, err
}

// say tells a person what happens.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.a.Err, "%s\n", terminal.Clean(fmt.Sprintf(format, args...)))
}

// write puts the project into the directory.
func (d *demo) write() error {
	for _, name := range []string{"invoices.js", "keep.toml"} {
		text, err := fs.ReadFile(files, "files/"+name)
		if err != nil {
			return err
		}
		text = []byte(strings.ReplaceAll(string(text), "BANK", d.bank.addr))
		if err := os.WriteFile(filepath.Join(d.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// perform pays the invoices, with a kill and a question in between.
func (d *demo) perform(ctx context.Context) error {
	d.say("A bank on this machine loses answers. A workflow pays ten invoices through it.")
	until := ""
	if d.gone {
		until = " until it ends; --keep leaves them"
	}
	d.say("Its script, its keep.toml and its ledger are in %s%s.", d.dir, until)
	d.say("")
	if err := d.runUntilKilled(ctx); err != nil {
		return err
	}
	if err := d.run(ctx, exit.NeedsPerson); err != nil {
		return err
	}
	if err := d.decide(ctx); err != nil {
		return err
	}
	return d.run(ctx, exit.Done)
}

// command returns this program with other arguments. It ends when this process
// does, however that ends.
func (d *demo) command(ctx context.Context, args ...string) (cmd *exec.Cmd, release func() error, err error) {
	fmt.Fprintf(d.a.Err, "%s keep %s\n", d.a.Ink.Dim("$"), d.a.Ink.Bold(terminal.Clean(strings.Join(args, " "))))
	if args[0] == "run" {
		args = append(args, "--stop-on-eof")
	}
	cmd = exec.CommandContext(ctx, d.exe, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KEEP_") { // would change the demo's configuration
			cmd.Env = append(cmd.Env, v)
		}
	}
	input, err := cmd.StdinPipe()
	return cmd, input.Close, err
}

// runUntilKilled runs keep run until the bank has paid and not answered yet, and
// kills it there: SIGKILL, or TerminateProcess on Windows.
func (d *demo) runUntilKilled(ctx context.Context) error {
	cmd, release, err := d.command(ctx, "run", d.dir)
	if err != nil {
		return err
	}
	defer release()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start keep run: %w", err)
	}
	ended, killed := make(chan struct{}), false
	var killer sync.WaitGroup
	killer.Go(func() {
		select {
		case <-d.bank.killNow:
			killed = cmd.Process.Kill() == nil
		case <-ended:
		}
	})
	err = cmd.Wait()
	close(ended)
	killer.Wait()
	if !killed {
		return fmt.Errorf("keep run ended before it was killed: %w\n%s", err, out.String())
	}
	return d.tellOfTheDead(ctx)
}

// tellOfTheDead shows what the killed process left in the ledger.
func (d *demo) tellOfTheDead(ctx context.Context) error {
	return d.look(ctx, func(db *sqlite.DB) error {
		ms, _, err := db.Mutations(ctx, keep.MutationFilter{State: keep.InFlight}, keep.Page{})
		for _, m := range ms {
			id := invoiceOf(m)
			d.say("bank: %s: paid, and kill -9 ends keep run before the answer", id)
			d.say("      the ledger it leaves says of %s: %s", id, m.State)
		}
		if err == nil && len(ms) != 1 {
			err = fmt.Errorf("the killed process left %s in flight, want 1", terminal.Plural(len(ms), "call"))
		}
		return err
	})
}

// run runs keep run to its end, which must be that status.
func (d *demo) run(ctx context.Context, status int) error {
	cmd, release, err := d.command(ctx, "run", d.dir)
	if err != nil {
		return err
	}
	defer release()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		return fmt.Errorf("keep run: %v, want status %d\n%s", err, status, out)
	}
	return nil
}

// decide shows the question that is left, and answers it as a person would who
// looked into the bank's book.
func (d *demo) decide(ctx context.Context) error {
	db := filepath.Join(d.dir, "keep.db")
	var about keep.Mutation
	var id keep.EscalationID
	err := d.look(ctx, func(store *sqlite.DB) error {
		qs, err := api.OpenQuestions(ctx, store, "")
		if err != nil {
			return err
		}
		if len(qs) != 1 || qs[0].Mutation == nil {
			return fmt.Errorf("the ledger has %s, want 1 about a call", terminal.Plural(len(qs), "question"))
		}
		id = qs[0].ID
		about, err = store.Mutation(ctx, *qs[0].Mutation)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.show(ctx, "inbox", "show", string(id), "--db", db); err != nil {
		return err
	}
	invoice := invoiceOf(about)
	action, found := keep.DidNotHappen, "is not"
	if d.bank.paid(invoice) > 0 {
		action, found = keep.Skip, "is"
	}
	d.say("A person looks into the bank's book, where %s %s, and answers:", invoice, found)
	return d.show(ctx, "inbox", "do", string(id), string(action), "--yes", "--db", db)
}

// show runs a command whose output is for the person who watches.
func (d *demo) show(ctx context.Context, args ...string) error {
	cmd, release, err := d.command(ctx, args...)
	if err != nil {
		return err
	}
	defer release()
	cmd.Stdout, cmd.Stderr = d.a.Err, d.a.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("keep %s: %w", strings.Join(args[:2], " "), err)
	}
	return nil
}

// look reads the ledger while no other process runs.
//
// It opens the file as a reader: a demo that wrote to the ledger would show what it wrote.
func (d *demo) look(ctx context.Context, f func(db *sqlite.DB) error) (err error) {
	db := sqlite.New(filepath.Join(d.dir, "keep.db"), sqlite.Config{ReadOnly: true})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}
