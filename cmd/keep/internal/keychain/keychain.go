// Package keychain keeps the key of accounts in the keychain of the system: the Secret Service
// of a Linux desktop, the Keychain of macOS, the Credential Manager of Windows.
package keychain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/zalando/go-keyring"
)

// service is under which the entries are.
const service = "keep"

// limit is how long the keychain has for an answer: it may ask a person to unlock it.
const limit = 30 * time.Second

// A Keychain has the entries of one project. It implements seal.Keychain.
type Keychain struct{ Name string }

// Where says to people where the key is.
func (k Keychain) Where() string { return fmt.Sprintf("%q in the keychain of the system", k.Name) }

// Get returns an entry; the error is fs.ErrNotExist if there is none.
func (k Keychain) Get(entry string) (text string, err error) {
	err = k.ask("read", func() error {
		var err error
		text, err = keyring.Get(service, k.Name+entry)
		return err
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// Create makes an entry; the error is fs.ErrExist if there is one.
func (k Keychain) Create(entry, text string) error {
	return locked(func() error {
		switch _, err := k.Get(entry); {
		case err == nil:
			return fs.ErrExist
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return k.ask("written", func() error { return keyring.Set(service, k.Name+entry, text) })
	})
}

// Move puts the text of an entry into another one, in the place of what is there, and deletes
// the first. The error is fs.ErrNotExist if that has another text. A process that dies in between leaves both.
func (k Keychain) Move(from, to, text string) error {
	return locked(func() error {
		is, err := k.Get(from)
		if err == nil && is != text {
			err = fs.ErrNotExist
		}
		if err != nil {
			return err
		}
		if err := k.ask("written", func() error { return keyring.Set(service, k.Name+to, text) }); err != nil {
			return err
		}
		return k.ask("changed", func() error { return keyring.Delete(service, k.Name+from) })
	})
}

// ask waits for an answer of the keychain, for a while.
func (k Keychain) ask(what string, f func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- f() }()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err := <-answer:
		switch {
		case errors.Is(err, keyring.ErrNotFound):
			return fs.ErrNotExist
		case err != nil:
			// No %w: a bus that is not there is a file that does not exist, and no missing key.
			return fmt.Errorf("the key %s could not be %s: %v; unlock the keychain, or set KEEP_KEY", k.Where(), what, err)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("the key %s could not be %s: no answer within %s; unlock the keychain, or set KEEP_KEY", k.Where(), what, limit)
	}
}

// locked does something while no other process of this user does: a keychain replaces entries
// without asking whether they are there.
func locked(f func() error) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "keep")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "keychain.lock"))
	if err := lock.Lock(); err != nil {
		return err
	}
	return errors.Join(f(), lock.Unlock())
}
