package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/regular"
)

// maxExport bounds the file of an account, in bytes. Tokens take a few thousand.
const maxExport = 1 << 20

// exportFlags are those of keep accounts export.
type exportFlags struct {
	recipients []string
	out        string
	move       bool
}

// exportAccountCmd writes one account to a file that only its recipients, or who has its passphrase,
// can open.
func (a *app) exportAccountCmd() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{Use: "export NAME", Short: "Write an account, sealed, to be imported elsewhere", Args: cobra.ExactArgs(1),
		Long: `Export writes what an account holds: sealed for the keys of recipients, which keep
accounts recipient prints where it is imported, or with a passphrase that is typed, or is
one line of standard input.

A service may end an account whose tokens two places renew, so one whose tokens are renewed
can only be moved: with --move it is forgotten here once the file is on disk.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exportAccount(cmd.Context(), args[0], f, cmd.InOrStdin())
		}}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.recipients, "recipient", nil, "seal it for the `key` age1… instead of a passphrase; may be repeated")
	fl.StringVar(&f.out, "out", "", "write to a new `file` instead of standard output")
	fl.BoolVar(&f.move, "move", false, "forget the account here once it is written; needs --out")
	return cmd
}

// exportAccount writes an account, sealed. With move it is first marked as moving, then the file
// is put on disk, and then the account is forgotten here. So at any moment at most one place
// uses it, and if the process dies between two of these, the same command with another file
// completes the move.
func (a *app) exportAccount(ctx context.Context, name string, f exportFlags, stdin io.Reader) error {
	if f.move && f.out == "" {
		return exit.Misusef("--move needs --out FILE: the account is forgotten here once the file is on disk")
	}
	return a.withAccounts(ctx, database.ToDecide, func(_ *config.Config, m *account.Manager, _ database.DB) error {
		// A wrong name is said before a passphrase is asked for.
		if _, err := m.Account(ctx, name); err != nil {
			return err
		}
		var passphrase string
		if len(f.recipients) == 0 {
			var err error
			if passphrase, err = a.readSecret(ctx, "Passphrase for the file: ", stdin); err != nil {
				return err
			}
			if len(passphrase) < minPassphrase {
				return exit.Misusef("the passphrase has %d characters; want %d or more, since anybody who has the file can try", len(passphrase), minPassphrase)
			}
		}
		to := account.Sink{
			Wrap: func(plain []byte) ([]byte, error) {
				text, err := seal.Wrap(plain, passphrase, f.recipients...)
				if err != nil {
					return nil, exit.Misusef("%w", err)
				}
				return text, nil
			},
			Store: func(text []byte) error { _, err := a.Out.Write(text); return err },
		}
		if f.out != "" {
			// The file is there before the account moves: what keeps it from being made must not
			// leave an account that is used nowhere.
			file, err := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return exit.Misusef("%w", err)
			}
			defer func() {
				info, err := file.Stat()
				file.Close()
				// Nothing was written, or it was taken back: an empty file would be in the way of the
				// next attempt, which makes a new one.
				if err == nil && info.Size() == 0 {
					_ = os.Remove(f.out)
				}
			}()
			to.Store = func(text []byte) error { return writeSynced(file, text) }
		}
		err := m.Export(ctx, name, f.move, to)
		// The error says why; only here is known how it is done by the command.
		if errors.Is(err, account.ErrWouldShare) {
			return exit.Misusef("%w: move it with: keep accounts export %s --move --out FILE", err, name)
		}
		if err != nil {
			return keyError(err)
		}
		if f.move {
			fmt.Fprintf(a.Err, "Account %s is in %s, and forgotten here.\n", name, terminal.Short(f.out))
		}
		return nil
	})
}

// minPassphrase is the least length of a passphrase, in bytes. Who has the file can try
// passphrases for as long as he likes, and nothing counts the attempts.
const minPassphrase = 12

// writeSynced writes a new file, and returns when it is on disk. After an error it is empty.
func writeSynced(f *os.File, text []byte) error {
	_, err := io.Copy(f, bytes.NewReader(text))
	if err = errors.Join(err, f.Sync()); err == nil {
		var dir *os.File
		if dir, err = os.Open(filepath.Dir(f.Name())); err == nil {
			_ = dir.Sync() // not every system has it
			err = dir.Close()
		}
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(0))
	}
	return err
}

// importAccountCmd is the other end of keep accounts export.
func (a *app) importAccountCmd() *cobra.Command {
	replace := false
	cmd := &cobra.Command{Use: "import FILE", Short: "Store an account that keep accounts export wrote", Args: cobra.ExactArgs(1),
		Long: `Import opens a file of keep accounts export with the key of keep.key, or with the
passphrase that is typed or is one line of standard input, and seals the account into the
database. Delete the file then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importAccount(cmd.Context(), args[0], replace, cmd.InOrStdin())
		}}
	cmd.Flags().BoolVar(&replace, "replace", false, "replace an account of the same name")
	return cmd
}

// importAccount opens a file and seals the account with the key of this project. Without a key
// here the file may still have a passphrase, so that none is there yet is no error.
func (a *app) importAccount(ctx context.Context, file string, replace bool, stdin io.Reader) error {
	// Before the database is opened: a wrong name must not make one.
	text, err := regular.Read(file, maxExport)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.Misusef("there is no file %s: name one that keep accounts export wrote", terminal.Short(file))
	case err != nil:
		return exit.Misusef("%w", err)
	}
	return a.withAccounts(ctx, database.ToDeploy, func(cfg *config.Config, m *account.Manager, _ database.DB) error {
		keys, err := cfg.Ring.Keys()
		if err != nil && !errors.Is(err, seal.ErrNoKey) {
			return keyError(err)
		}
		plain, err := seal.Unwrap(text, keys, func() (string, error) { return a.readSecret(ctx, "Passphrase of the file: ", stdin) })
		if errors.Is(err, seal.ErrOtherKey) {
			return exit.Failedf("%s is sealed with another passphrase, or for another key than %s", terminal.Short(file), terminal.Short(cfg.Ring.Where()))
		}
		if errors.Is(err, seal.ErrNoFile) {
			return exit.Misusef("%s %w", terminal.Short(file), err)
		}
		if err != nil {
			return err
		}
		stored, err := m.Import(ctx, plain, daemon.User(), replace)
		if err != nil {
			return keyError(fmt.Errorf("%s: %w", terminal.Short(file), err))
		}
		if a.JSON {
			return a.PrintJSON(api.AccountOf(stored, nil, a.Now()))
		}
		fmt.Fprintf(a.Err, "Account %s is stored. Delete %s.\n", stored.Name, terminal.Short(file))
		return nil
	})
}

// recipientCmd prints for whom an account is exported that is to come here. It makes keep.key if
// there is none. For that it needs the database: only there it shows whether a key was never
// made, or is lost.
func (a *app) recipientCmd() *cobra.Command {
	return &cobra.Command{Use: "recipient", Short: "Print the public part of the key, to export accounts for it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAccounts(cmd.Context(), database.ToDeploy, func(_ *config.Config, m *account.Manager, _ database.DB) error {
				r, err := m.Recipient(cmd.Context())
				if err != nil {
					return keyError(err)
				}
				if a.JSON {
					return a.PrintJSON(struct {
						Recipient string `json:"recipient"`
					}{r})
				}
				_, err = fmt.Fprintln(a.Out, r)
				return err
			})
		}}
}
