package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"

	"github.com/keep-run/keep/cmd/keep/internal/database"
)

// copyCmd moves a database. It takes both as arguments and not by --db: which is which must be seen
// in the line that is typed.
func (a *app) copyCmd() *cobra.Command {
	leave := false
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Move a database to another one: SQLite to Postgres, back, or between two of a kind",
		Long: `Copy moves everything of Keep from one database to another, which must be new or empty: a
file, or a postgres:// URL. What was in flight, in doubt or asked continues there, with the
same ids, keys and tokens.

Tables that are not Keep's, as those that a program writes to with idempotency.Tx, are not
moved. If FROM has any, copy names them and does nothing. With --leave-tables it moves what is
Keep's, and they stay in FROM, where they can still be written to: move them yourself
before anything works on TO, whose keys say that it is all done. For another file
instead, keep db backup and keep db restored take along all that is in the file. In Postgres
it is about tables in the schema of Keep's, but those of extensions.

No host may work on either: stop them first, and the proxies. Copy keeps others from
writing to FROM while it reads, compares all rows and checks every law on TO, and only
then seals FROM and opens TO. Nobody can work on a sealed database, so nothing is done
twice. It can still be looked at. Point db at TO then.

If the copy is interrupted, run the same command again. Until FROM is sealed it is as it was.

  keep db unseal FROM TO     goes back, if nothing was done on TO
  keep db copy TO NEW        goes back with what was done there

--db names no database here: both are arguments. A password of Postgres belongs in
PGPASSWORD or ~/.pgpass.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.copyDatabase(cmd.Context(), args[0], args[1], leave)
		},
	}
	cmd.Flags().BoolVar(&leave, "leave-tables", false, "tables that are not Keep's stay in FROM")
	return cmd
}

// unsealCmd opens a database that was moved. Without a look at the copy it does so only if the
// person says that the copy is lost: two open databases of one ledger do everything twice.
func (a *app) unsealCmd() *cobra.Command {
	lost := false
	cmd := &cobra.Command{
		Use:   "unseal FROM [TO]",
		Short: "Open a database again that keep db copy sealed, if the copy was not used",
		Long: `Unseal undoes keep db copy FROM TO: if nothing was recorded on TO since, it seals
that one, and opens FROM.

If TO does not exist any more, --lost opens FROM without a look at it. What was
done on TO is not known then, and is done again. While a host works on TO, everything is
done twice.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Exactly one of the two: to name a copy and to say that it is lost is no command.
			if lost == (len(args) == 2) {
				return exit.Misusef("name the database that was copied to; if it does not exist any more, say --lost instead")
			}
			from, err := placeOf(args[0])
			if err != nil {
				return err
			}
			if lost {
				err = transfer.Unseal(cmd.Context(), from)
			} else {
				var to transfer.Place
				if to, err = placeOf(args[1]); err == nil {
					err = transfer.Mover{Now: a.Now()}.Undo(cmd.Context(), from, to)
				}
			}
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"db": from.Name()})
			}
			fmt.Fprintf(a.Err, "%s may be worked on again.\n", shortPlace(from))
			return nil
		},
	}
	cmd.Flags().BoolVar(&lost, "lost", false, "the copy does not exist any more, and no host has it")
	return cmd
}

// placeOf returns the place of a file or URL.
func placeOf(name string) (transfer.Place, error) {
	if database.IsPostgres(name) {
		return postgres.At(name), nil
	}
	if err := database.NotURL(name); err != nil {
		return nil, err
	}
	return sqlite.At(name), nil
}

// shortPlace returns a place as messages name it. The name of a Postgres place has no password.
func shortPlace(p transfer.Place) string {
	if database.IsPostgres(p.Name()) {
		return p.Name()
	}
	return terminal.Short(p.Name())
}

// copyDatabase moves a database, and shows how far it has come. If the process dies, FROM is as it
// was, or sealed with TO complete; the same command then finds out which, and completes it.
func (a *app) copyDatabase(ctx context.Context, fromName, toName string, leave bool) error {
	from, err := placeOf(fromName)
	if err != nil {
		return err
	}
	to, err := placeOf(toName)
	if err != nil {
		return err
	}
	p := new(copyProgress)
	stop := a.Animate(p.line)
	done, err := transfer.Mover{Now: a.Now(), Tell: p.tell, LeaveTables: leave}.Copy(ctx, from, to)
	stop() // before anything else is written to the terminal
	if errors.Is(err, transfer.ErrOtherTables) {
		err = fmt.Errorf("%w. Say --leave-tables to leave them, and move them yourself then; see keep db copy --help", err)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"from": from.Name(), "to": to.Name(), "rows": done.Rows, "digest": done.Digest, "resumed": done.Resumed, "left": slices.Concat([]string{}, done.Left)})
	}
	if done.Resumed {
		fmt.Fprintf(a.Err, "%s was complete, and is open now.\n", shortPlace(to))
	} else {
		fmt.Fprintf(a.Err, "%s are in %s, with the same digest %.12s…, and no law is broken.\n", terminal.Plural(int(done.Rows), "row"), shortPlace(to), done.Digest)
	}
	if len(done.Left) > 0 {
		fmt.Fprintf(a.Err, "Not Keep's, and still in %s: %s. Move them before anything works on %s.\n", shortPlace(from), strings.Join(done.Left, ", "), shortPlace(to))
	}
	fmt.Fprintf(a.Err, "%s is sealed. Set db to the new one, and start the hosts.\n", shortPlace(from))
	return nil
}

// A copyProgress is how far a copy has come. The copy writes it, and the line of progress reads it,
// each in its goroutine.
type copyProgress struct {
	mu   sync.Mutex // protects the field below
	last transfer.Progress
}

// tell is called by the copy after each part.
func (p *copyProgress) tell(now transfer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
}

// line says how far it has come.
func (p *copyProgress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.last.Step == "":
		return "waiting for the database"
	case p.last.Rows == 0:
		return p.last.Step + " " + p.last.Table
	}
	return fmt.Sprintf("%s %s: %d rows", p.last.Step, p.last.Table, p.last.Rows)
}
