// Package seal encrypts what accounts and secrets hold, with age (age-encryption.org/v1).
// A database, its copies and its backups hold sealed rows only; the key is elsewhere.
package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"

	"github.com/keep-run/keep"
)

// ErrOtherKey is returned when what is sealed was sealed with another key, or is damaged.
var ErrOtherKey = errors.New("cannot be opened: another key")

// A Key seals and opens. Its text begins with AGE-SECRET-KEY-1.
type Key struct{ identity *age.X25519Identity }

// NewKey returns a new random key.
func NewKey() (Key, error) {
	id, err := age.GenerateX25519Identity()
	return Key{id}, err
}

// ParseKey reads the text of a key. The error doesn't quote it.
func ParseKey(text string) (Key, error) {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		return Key{}, fmt.Errorf("want one key of age, AGE-SECRET-KEY-1…; there are %d lines", len(lines))
	}
	id, err := age.ParseX25519Identity(lines[0])
	if err != nil {
		return Key{}, errors.New("is no key of age: it begins with AGE-SECRET-KEY-1")
	}
	return Key{id}, nil
}

// Text returns the key itself. It is a secret.
func (k Key) Text() string { return k.identity.String() }

// Is reports whether two keys are the same one.
func (k Key) Is(other Key) bool { return k.Recipient() == other.Recipient() }

// Recipient returns the public part of the key, age1….
func (k Key) Recipient() string { return k.identity.Recipient().String() }

// A Content is what an account or a secret holds.
type Content struct {
	Value   string `json:"value,omitempty"`   // an API key, user:password, a token, a secret
	Access  string `json:"access,omitempty"`  // OAuth
	Refresh string `json:"refresh,omitempty"` // OAuth; empty: there is none
	Type    string `json:"type,omitempty"`    // of the access token, such as Bearer

	// Owner says whose these are, to compare: one connecting of the account and what was renewed
	// since have the same. Identity is issuer and subject of an id token, which are of one user.
	// Empty: an older Keep connected it, and the service does not say.
	Owner    string `json:"owner,omitempty"`
	Identity string `json:"identity,omitempty"`

	// TokenURL issued these and is sent Refresh, RevokeURL is told that they are not wanted: those of the pack may be others by
	// now. Empty: an older Keep connected it, and nothing was renewed since.
	TokenURL  string `json:"token_url,omitempty"`
	RevokeURL string `json:"revoke_url,omitempty"`

	Client *Client `json:"client,omitempty"` // that asks for new tokens; nil: the one of the pack
}

// A Client is the OAuth client of an account whose service was found by itself, and not by a pack.
type Client struct {
	Resource  string `json:"resource"` // for which tokens are; they go nowhere else
	Issuer    string `json:"issuer"`
	TokenURL  string `json:"token_url"`
	RevokeURL string `json:"revoke_url,omitempty"`
	ID        string `json:"id"`
	Secret    string `json:"secret,omitempty"`
	Auth      string `json:"auth"`
	Near      bool   `json:"near,omitempty"` // the service is in a private network
}

// Secrets returns all values of c that must never show.
func (c Content) Secrets() []string {
	var out []string
	for _, s := range []string{c.Value, c.Access, c.Refresh} {
		if s != "" {
			out = append(out, s)
		}
	}
	if c.Client != nil && c.Client.Secret != "" {
		out = append(out, c.Client.Secret)
	}
	if _, password, ok := strings.Cut(c.Value, ":"); ok && password != "" {
		out = append(out, password)
	}
	return out
}

// String says nothing: a Content that is printed by mistake shows nothing.
func (c Content) String() string { return "[sealed]" }

// GoString says nothing.
func (c Content) GoString() string { return "[sealed]" }

// A box is a Content with the row that it belongs to, so that a row cannot be given the
// content of another one.
type box struct {
	Kind    keep.AccountKind `json:"kind"`
	Name    string           `json:"name"`
	Content Content          `json:"content"`
}

// Seal returns the content of a row, sealed.
func (k Key) Seal(kind keep.AccountKind, name string, c Content) ([]byte, error) {
	b := box{Kind: kind, Name: name, Content: c}
	plain, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	return Encrypt(plain, k.identity.Recipient())
}

// Open returns what Seal was given for the row. The error is ErrOtherKey if it was sealed
// with another key or for another row.
func (k Key) Open(kind keep.AccountKind, name string, sealed []byte) (Content, error) {
	plain, err := k.decrypt(sealed)
	if err != nil {
		return Content{}, err
	}
	var b box
	if err := json.Unmarshal(plain, &b); err != nil || b.Kind != kind || b.Name != name {
		return Content{}, ErrOtherKey
	}
	return b.Content, nil
}

// Encrypt encrypts a text for recipients.
func Encrypt(plain []byte, to ...age.Recipient) ([]byte, error) {
	var buf bytes.Buffer
	w, err := age.Encrypt(&buf, to...)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	return buf.Bytes(), err
}

// Decrypt returns what was encrypted for the key; ErrOtherKey if it was for another one.
func (k Key) Decrypt(sealed []byte) ([]byte, error) { return k.decrypt(sealed) }

func (k Key) decrypt(sealed []byte) ([]byte, error) { return open(sealed, k.identity) }
