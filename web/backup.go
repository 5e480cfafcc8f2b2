package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/keep-run/keep/api/access"
)

// Backups makes copies of the database for admins who download them.
type Backups interface {
	// Instead says what to do where no copy can be made here; empty: it can.
	Instead() string

	// Make makes a copy, one at a time. Nothing is left of it when it is closed. An error
	// that a person can do something about is a *BackupError.
	Make(ctx context.Context) (*Copy, error)
}

// A Copy is a copy of the database, which is read once.
type Copy struct {
	io.ReadCloser
	Size int64
	At   time.Time // the moment that it has
}

// A BackupError says why there is no copy.
type BackupError struct {
	What string // in one line
	Why  string
	Next string // what to do
}

// Error says what and why.
func (e *BackupError) Error() string { return e.What + ": " + e.Why }

// backupOffer is what the settings say of backups.
type backupOffer struct{ Instead string }

// A piece of a copy is sent within stalled, or nobody takes it: a slow download is not cut,
// and one that is blocked does not keep others waiting.
const (
	piece   = 256 << 10
	stalled = 5 * time.Minute
)

// backup sends a copy of the database.
func (s *site) backup(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Backups == nil || s.cfg.Backups.Instead() != "" {
		return refusef("there is no backup to download")
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) { // making it may take longer than a request may
		return err
	}
	made, err := s.cfg.Backups.Make(r.Context())
	if err != nil {
		return err
	}
	defer func() {
		if err := made.Close(); err != nil {
			s.log.ErrorContext(r.Context(), "remove a backup that was downloaded", "err", err)
		}
	}()
	asFile(w, "keep-"+made.At.UTC().Format("2006-01-02T1504Z")+".db", "application/vnd.sqlite3")
	w.Header().Set("Content-Length", strconv.FormatInt(made.Size, 10))
	for left := made.Size; left > 0; {
		err := rc.SetWriteDeadline(time.Now().Add(stalled))
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		if err == nil {
			err = cmp.Or(r.Context().Err(), access.Still(r.Context()))
		}
		var n int64
		if err == nil {
			n, err = io.CopyN(w, made, min(left, piece))
		}
		if err != nil {
			if r.Context().Err() == nil {
				s.log.WarnContext(r.Context(), "a backup was not downloaded to its end", "err", err)
			}
			panic(http.ErrAbortHandler) // the answer has begun: half a copy must not look like a whole one
		}
		left -= n
	}
	who, _ := access.From(r.Context())
	s.log.InfoContext(r.Context(), "a backup was downloaded", "by", who.Name, "bytes", made.Size)
	return nil
}
