package transfer

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// A State is what a database is to the moves that it took part in.
type State string

const (
	// Plain: it took part in none, or that was undone. It may be worked on.
	Plain State = ""

	// Incoming: it is being copied to. Nobody may work on it.
	Incoming State = "incoming"

	// Sealed: its rows were moved to another database. Nobody may work on it.
	Sealed State = "sealed"

	// Arrived: its rows came from another database. It may be worked on.
	Arrived State = "arrived"

	// Backup: it is what another database was at one moment. Nobody may work on it before
	// somebody has said that it is the database now, with Held.Restore.
	Backup State = "backup"
)

// A Mark is what a database says of a move. Stores keep it as text.
type Mark struct {
	State  State     `json:"state"`
	Copy   string    `json:"copy"`             // random; the same on both sides
	Peer   string    `json:"peer"`             // where the other database is, for people; no password
	Store  string    `json:"store"`            // id of the source
	Digest string    `json:"digest,omitempty"` // of a sealed database, and of what arrived
	At     time.Time `json:"at"`

	// Restoring says of a backup that its restore was begun: what is beside it is its own.
	Restoring bool `json:"restoring,omitempty"`
}

// MarkName is the name under which a store keeps its mark.
const MarkName = "transfer"

// Encode returns the mark as stores keep it.
func (m Mark) Encode() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a time always encode
	}
	return string(text)
}

// DecodeMark reads a mark; an empty text is the zero Mark.
func DecodeMark(text string) (m Mark, err error) {
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("read the mark of a move: %w", err)
	}
	switch m.State {
	case Incoming, Sealed, Arrived, Backup:
		return m, nil
	}
	return m, fmt.Errorf("read the mark of a move: state %q is unknown", m.State)
}

// Fenced reports whether nobody may work on the database.
func (m Mark) Fenced() bool { return m.State == Incoming || m.State == Sealed || m.State == Backup }

// Refuse returns keep.ErrSealed, with why and what to do, if nobody may work on the
// database of that mark.
func (m Mark) Refuse() error {
	switch m.State {
	case Incoming:
		return fmt.Errorf("%w: a copy of %s to it was not finished, or was taken back (keep db unseal); use that one, or give the same keep db copy again", keep.ErrSealed, m.Peer)
	case Sealed:
		return fmt.Errorf("%w: it was moved to %s at %s; use that one, or see keep db unseal --help",
			keep.ErrSealed, m.Peer, m.At.UTC().Format(time.RFC3339))
	case Backup:
		return fmt.Errorf("%w: it is a backup of %s, of %s, and does not know what was done since; see keep db restored --help",
			keep.ErrSealed, m.Peer, m.At.UTC().Format(time.RFC3339))
	}
	return nil
}

const lostAt = "the database lost its last commits, as a host saw at "

// LostNotes is to LostNote what RestoredNotes is to RestoredNote.
const LostNotes = lostAt + "%"

// LostNote is why a workflow is paused whose database went back under a host that was at work, as
// after a failover to a standby that was behind.
func LostNote(at time.Time) string {
	return lostAt + at.UTC().Format(time.RFC3339) +
		"; what was done since is not known here, and would be done again: stop all hosts, and see keep db restored --help"
}

const restoredAt = "the database was restored from a backup at "

// RestoredNotes is the pattern of LIKE for notes that begin as RestoredNote: it was said before.
const RestoredNotes = restoredAt + "%"

// RestoredNote is why a workflow is paused whose database came from a backup: it stands beside the
// button that would let it continue.
func RestoredNote(at time.Time) string {
	return restoredAt + at.UTC().Format(time.RFC3339) +
		"; what was done after the backup was made is not known here, and would be done again: see keep db restored --help"
}
