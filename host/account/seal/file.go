package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// Wrap encrypts a text into one that can be sent and stored: for the keys of recipients
// (age1…), or for whoever has the passphrase.
func Wrap(plain []byte, passphrase string, recipients ...string) ([]byte, error) {
	var to []age.Recipient
	for _, text := range recipients {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%.12q is no recipient of age; it begins with age1, and keep accounts recipient prints it", text)
		}
		to = append(to, r)
	}
	if len(to) == 0 {
		r, err := age.NewScryptRecipient(passphrase)
		if err != nil {
			return nil, err
		}
		to = append(to, r)
	}
	sealed, err := Encrypt(plain, to...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := armor.NewWriter(&out)
	_, err = w.Write(sealed)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// ErrNoFile is returned for a text that Wrap did not make.
var ErrNoFile = errors.New("is no file of keep accounts export")

// Unwrap returns what Wrap was given. The passphrase is asked for if the text wants one. The
// error is ErrOtherKey if none of the keys, or not this passphrase, opens it.
func Unwrap(text []byte, keys []Key, passphrase func() (string, error)) ([]byte, error) {
	sealed, err := io.ReadAll(armor.NewReader(bytes.NewReader(text)))
	if err != nil {
		return nil, ErrNoFile // the error of age quotes the text, which may be a secret
	}
	if !bytes.Contains(sealed[:min(len(sealed), 100)], []byte("\n-> scrypt ")) {
		for _, k := range keys {
			if plain, err := k.Decrypt(sealed); err == nil {
				return plain, nil
			}
		}
		return nil, ErrOtherKey
	}
	words, err := passphrase()
	if err != nil {
		return nil, err
	}
	id, err := age.NewScryptIdentity(words)
	if err != nil {
		return nil, err
	}
	return open(sealed, id)
}

// open decrypts for an identity.
func open(sealed []byte, id age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), id)
	if err != nil {
		return nil, ErrOtherKey
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, ErrOtherKey
	}
	return plain, nil
}
