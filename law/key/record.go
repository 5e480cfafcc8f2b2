package key

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A State says what is known about the request that a key names.
type State string

const (
	// InProgress means that an owner may be executing the request, or that it
	// died: the lease tells.
	InProgress State = "in_progress"

	// Done means that the request was answered and the answer is kept.
	Done State = "done"

	// DoneWithoutBody means that the request was answered with more than is
	// kept. It is not executed again.
	DoneWithoutBody State = "done_without_body"

	// Unknown means that the request may have been executed.
	Unknown State = "unknown"

	// Released means that nothing was done, or nothing that must not be
	// repeated: the key is free.
	Released State = "released"
)

// States returns every state.
func States() []State { return []State{InProgress, Done, DoneWithoutBody, Unknown, Released} }

// Version is that of the hashes that records are found and compared by: ID,
// Alias and Fingerprint. A record keeps the one that it was made with.
//
//	1  an ID of caller and key, as records of versions before had it, and as
//	   imported ones have it, whose host nobody knows; no alias
//	2  an ID of host, caller and key; an alias
//
// The fingerprint is the same in both.
const Version = 2

// An ID names a record: a hash of a key, its caller and the host that was asked.
// It tells nobody any of them, so it is what logs, references and URLs hold.
type ID [16]byte

// alphabet is base 32 without letters that people confuse.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns the name of the record of a caller's key at a host. Each part is
// hashed with its length, so that no two can be confused by moving text between
// them.
func NewID(host, caller, key string) ID {
	sum := hash("keep idempotency key 2", host, caller, key)
	return ID(sum[:16])
}

// FormerID is NewID of version 1.
func FormerID(caller, key string) ID {
	sum := hash("keep idempotency key 1", caller, key)
	return ID(sum[:16])
}

// NewAlias names a request whoever sends it. Where the caller of a retry may look
// like another one, since his credential was renewed, it finds the record that he
// made before. If it is known who has the credential, it is the holder's request alone;
// empty: anybody's.
func NewAlias(host, holder, key string, f Fingerprint) ID {
	parts := []string{"keep idempotency alias 2", host, key, string(f[:])}
	if holder != "" {
		parts = append(parts, holder)
	}
	sum := hash(parts...)
	return ID(sum[:16])
}

// Host returns a request's host as IDs have it: in lower case, without the port
// that its scheme has anyway. Every other spelling is a host of its own, also a dot before a port ("h.:8080"): a client that
// tries again spells it as before, and records that are there would not be found under another one.
func Host(authority string) string {
	lower := []byte(authority)
	for i, c := range lower { // ASCII alone: by HTTP/2 a host may have any bytes, which must not become those of another one
		if 'A' <= c && c <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	host := strings.TrimSuffix(string(lower), ".")
	for _, port := range []string{":80", ":443"} {
		if rest, ok := strings.CutSuffix(host, port); ok && (strings.HasSuffix(rest, "]") || !strings.Contains(rest, ":")) {
			return rest
		}
	}
	return host
}

// hash returns the SHA-256 of parts, each preceded by its length.
func hash(parts ...string) [32]byte {
	n := 0
	for _, p := range parts {
		n += 8 + len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

// String returns the reference that people and URLs use: "key_" and 26 letters.
func (id ID) String() string {
	b := make([]byte, 0, 30)
	b = append(b, "key_"...)
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	// 26 letters hold 130 bits: the first has only three.
	for shift := 125; shift >= 0; shift -= 5 {
		var v uint64
		switch {
		case shift >= 64:
			v = hi >> (shift - 64)
		case shift > 59:
			v = hi<<(64-shift) | lo>>shift
		default:
			v = lo >> shift
		}
		b = append(b, alphabet[v&31])
	}
	return string(b)
}

// ParseID is the opposite of ID.String.
func ParseID(s string) (ID, error) {
	letters, ok := strings.CutPrefix(s, "key_")
	if !ok || len(letters) != 26 || letters[0] > '7' {
		return ID{}, fmt.Errorf("not a reference: %q: want key_ and 26 letters", s)
	}
	var hi, lo uint64
	for _, c := range []byte(letters) {
		v := strings.IndexByte(alphabet, c)
		if v < 0 {
			return ID{}, fmt.Errorf("not a reference: %q: has the letter %q", s, c)
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(v)
	}
	var id ID
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, nil
}

// A Fence is held by the one owner that may complete a record. Every take-over
// makes a new one, which fences those before it. It is never 0.
type Fence int64

// A Fingerprint is a hash of what a request asks for.
type Fingerprint [32]byte

// An Answer is a response as it is kept.
type Answer struct {
	Status int
	Header []byte // as EncodeFields makes it; see there
	Body   []byte
}

// A Record is everything that is known about one key of one caller at one host.
type Record struct {
	ID          ID
	Version     int    // of its hashes; see Version
	Alias       ID     // names the request without its caller; zero: callers are stable, or it is free
	Former      ID     // by which a store finds a live record of version 1 before this one takes the key; not kept
	Host        string // that was asked; empty in version 1
	Key         string // as the client sent it, without quotes
	Caller      string // hash of who sent it; empty: anonymous
	Method      string
	Path        string
	Fingerprint Fingerprint

	State  State
	Atomic bool  // an owner that died leaves nothing that must not be repeated: see Claim
	Fence  Fence // held by the owner
	Doubts int   // how often the outcome became unknown

	LeaseUntil time.Time // until when the owner is believed to be alive
	DoubtAt    time.Time // since when the outcome is unknown; zero: it never was
	Answer     Answer    // zero unless done; DoneWithoutBody has only a status
	ResolvedBy string    // "owner", "probe" or "person: name"; empty: not resolved

	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // when a done or released key is free again

	// Rev is how often the record was written; 0 means never. Stores compare it.
	Rev int64
}

// Expired reports whether the record has outlived its time. A key whose outcome
// is open does not expire.
func (r Record) Expired(now time.Time) bool {
	return r.State != InProgress && r.State != Unknown && !now.Before(r.ExpiresAt)
}

// SettlesAt returns the time from which "it is not there" can be believed: settle after
// the doubt began, and after it ended what the handler set going, which may take effect
// after its creation: a request that may still be on its way has had time to arrive.
func (r Record) SettlesAt(effect, settle time.Duration) time.Time {
	at := r.DoubtAt
	if ends := r.CreatedAt.Add(effect); ends.After(at) {
		at = ends
	}
	return at.Add(settle)
}

// Validate reports whether r is well formed. Stores call it before they write.
func (r Record) Validate() error {
	done := r.State == Done || r.State == DoneWithoutBody
	switch {
	case r.ID == ID{}:
		return errors.New("key record: id required")
	case r.Version < 1 || r.Version > Version:
		return fmt.Errorf("key record %s: version %d: want 1 to %d", r.ID, r.Version, Version)
	case r.State == Released && r.Alias != ID{}:
		return fmt.Errorf("key record %s: released with an alias", r.ID)
	case !slices.Contains(States(), r.State):
		return fmt.Errorf("key record %s: unknown state %q", r.ID, r.State)
	case r.Fence == 0:
		return fmt.Errorf("key record %s: token required", r.ID)
	case r.CreatedAt.IsZero() || r.UpdatedAt.IsZero() || r.ExpiresAt.IsZero():
		return fmt.Errorf("key record %s: times required", r.ID)
	case r.State == InProgress && r.LeaseUntil.IsZero():
		return fmt.Errorf("key record %s: in progress without a lease", r.ID)
	case done != (r.Answer.Status != 0):
		return fmt.Errorf("key record %s: status %d not allowed in state %q", r.ID, r.Answer.Status, r.State)
	case r.State != Done && (len(r.Answer.Body) > 0 || len(r.Answer.Header) > 0):
		return fmt.Errorf("key record %s: answer not allowed in state %q", r.ID, r.State)
	case r.State == Unknown && r.DoubtAt.IsZero():
		return fmt.Errorf("key record %s: unknown since when", r.ID)
	case r.Rev < 0:
		return fmt.Errorf("key record %s: rev must not be negative: %d", r.ID, r.Rev)
	}
	return nil
}
