package twin

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// Forgetful is a service that takes keys and does not honour them.
type Forgetful struct {
	Service
	Header string // of the key
}

// Change changes things without the key.
func (f Forgetful) Change(r *http.Request, body []byte) (string, func() Reply) {
	r.Header.Del(f.Header)
	return f.Service.Change(r, body)
}

// Lagging is a service that reads from a replica, which gets each change later.
type Lagging struct {
	Service                // the primary
	Replica  Service       // of the same kind, and empty
	Lag      time.Duration // of the replica
	arriving []arrival
}

type arrival struct {
	at time.Time
	do func() Reply
}

// Change changes the primary, and later the replica.
func (l *Lagging) Change(r *http.Request, body []byte) (string, func() Reply) {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	name, do := l.Service.Change(r, body)
	return name, func() Reply {
		l.arriving = append(l.arriving, arrival{time.Now().Add(l.Lag), func() Reply {
			_, do := l.Replica.Change(again, body)
			return do()
		}})
		return do()
	}
}

// Read reads from the replica.
func (l *Lagging) Read(r *http.Request) Reply {
	for now := time.Now(); len(l.arriving) > 0 && l.arriving[0].at.Before(now); l.arriving = l.arriving[1:] {
		l.arriving[0].do()
	}
	return l.Replica.Read(r)
}
