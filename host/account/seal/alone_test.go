package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Another process replaces the key and begins with a third one while this one is about to replace it: the third one, with which
// nothing is sealed yet, is not put in its place.
func TestReplaceBesideAnotherProcess(t *testing.T) {
	for range 30 {
		r := Ring{Path: filepath.Join(t.TempDir(), "keep.key")}
		if _, err := r.Make(); err != nil {
			t.Fatal(err)
		}
		k, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		replaced := make(chan error, 1)
		var third Key
		err = alone(r.Path, func() error { // as the other process does
			begun := make(chan struct{})
			go func() {
				close(begun)
				replaced <- r.Replace(k, time.Now())
			}()
			<-begun
			if err := os.Rename(r.Path+string(next), r.Path); err != nil {
				return err
			}
			third, err = r.Next()
			return err
		})
		if err := errors.Join(err, <-replaced); err != nil {
			t.Fatal(err)
		}
		keys, err := r.Keys()
		if err != nil || len(keys) != 2 || !keys[0].Is(third) || !keys[1].Is(k) {
			t.Fatalf("%d keys, %v; want the third one as the next, and the second as the current one", len(keys), err)
		}
	}
}

// A chain is a keychain in memory. It calls onGet after it has read the entry of the next key.
type chain struct {
	texts map[string]string
	onGet func()
}

func (c *chain) Where() string { return "in a test" }

func (c *chain) Get(entry string) (string, error) {
	text, ok := c.texts[entry]
	if f := c.onGet; f != nil && entry == string(next) {
		c.onGet = nil
		f()
	}
	if !ok {
		return "", fs.ErrNotExist
	}
	return text, nil
}

func (c *chain) Create(entry, text string) error {
	if _, ok := c.texts[entry]; ok {
		return fs.ErrExist
	}
	c.texts[entry] = text
	return nil
}

func (c *chain) Move(from, to, text string) error {
	if c.texts[from] != text {
		return fs.ErrNotExist
	}
	c.texts[to] = text
	delete(c.texts, from)
	return nil
}

// So it is in a keychain: what is moved is the key that was to be moved.
func TestReplaceInAKeychainBesideAnotherProcess(t *testing.T) {
	c := &chain{texts: make(map[string]string)}
	r := Ring{Keychain: c}
	if _, err := r.Make(); err != nil {
		t.Fatal(err)
	}
	k, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	var third Key
	c.onGet = func() {
		if err = r.Replace(k, time.Now()); err == nil {
			third, err = r.Next()
		}
	}
	if err := errors.Join(r.Replace(k, time.Now()), err); err != nil {
		t.Fatal(err)
	}
	keys, err := r.Keys()
	if err != nil || len(keys) != 2 || !keys[0].Is(third) || !keys[1].Is(k) {
		t.Errorf("%d keys, %v; want the third one as the next, and the second as the current one", len(keys), err)
	}
}
