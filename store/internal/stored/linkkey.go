package stored

import (
	"crypto/rand"
	"encoding/hex"
)

// LinkKeyName is the row of the table meta that has the key of links.
const LinkKeyName = "link_key"

// NewLinkKey returns a key of links as text.
func NewLinkKey() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return hex.EncodeToString(key)
}

// LinkKey returns the key that a text stands for.
func LinkKey(text string) ([]byte, error) { return hex.DecodeString(text) }
