package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

var credentialPromises = []promise{
	{"a credential is read back as it was written, until it is dropped", func(w *world) {
		s := w.Store
		c := keep.Credential{ID: "a1", Kind: keep.CredentialToken, Hash: bytes.Repeat([]byte{0, 255}, 16), Name: odd, Role: "admin",
			Parent: "p", CreatedAt: oddTime, ExpiresAt: oddTime.Add(time.Hour), UsedAt: oddTime.Add(time.Minute)}
		w.fails("too early", second(s.Credential(w.ctx, "a1")), notFound("credential", "a1"))
		w.fails("of none", s.AddCredential(w.ctx, c), notFound("credential", "p"))
		add(w, s, keep.Credential{ID: "p", Kind: keep.CredentialLogin, Hash: make([]byte, 32), Name: "a"})
		add(w, s, c)
		w.fails("again", s.AddCredential(w.ctx, c), is(keep.ErrStale))
		c.CreatedAt, c.ExpiresAt, c.UsedAt = kept(c.CreatedAt), kept(c.ExpiresAt), kept(c.UsedAt)
		w.same("Credential", get[keep.Credential](w)(s.Credential(w.ctx, "a1")), c)
		if err := s.UseCredential(w.ctx, "a1", c.UsedAt.Add(time.Hour)); err != nil {
			w.Error(err)
		}
		c.UsedAt = c.UsedAt.Add(time.Hour)
		w.same("Credentials", get[[]keep.Credential](w)(s.Credentials(w.ctx, keep.CredentialToken)), []keep.Credential{c})
		if err := s.DropCredential(w.ctx, "a1"); err != nil {
			w.Error(err)
		}
		w.fails("a second drop", s.DropCredential(w.ctx, "a1"), notFound("credential", "a1"))
		if err := s.UseCredential(w.ctx, "a1", c.UsedAt); err != nil {
			w.Errorf("use of what is gone: %v", err)
		}
		w.same("Credentials", get[[]keep.Credential](w)(s.Credentials(w.ctx, keep.CredentialToken)), []keep.Credential(nil))
	}},
	{"what came from a credential ends with it", func(w *world) {
		s := w.Store
		hash := make([]byte, 32)
		add(w, s, keep.Credential{ID: "t1", Kind: keep.CredentialToken, Hash: hash, Name: "a"})
		add(w, s, keep.Credential{ID: "t2", Kind: keep.CredentialToken, Hash: hash, Name: "b"})
		for _, id := range []string{"t1", "t2", ""} {
			add(w, s, keep.Credential{ID: "of" + id, Kind: keep.CredentialSession, Hash: hash, Name: "c", Parent: id})
		}
		if err := s.DropCredential(w.ctx, "t1"); err != nil {
			w.Error(err)
		}
		var left []string
		for _, c := range get[[]keep.Credential](w)(s.Credentials(w.ctx, keep.CredentialSession)) {
			left = append(left, c.ID)
		}
		w.same("sessions", left, []string{"of", "oft2"})
	}},
	{"what comes from a credential as it ends does not stay", func(w *world) {
		s := w.Store
		hash := make([]byte, 32)
		for n := range 20 {
			token, session := fmt.Sprintf("t%d", n), fmt.Sprintf("s%d", n)
			add(w, s, keep.Credential{ID: token, Kind: keep.CredentialToken, Hash: hash, Name: "a"})
			var both sync.WaitGroup
			both.Go(func() {
				err := s.AddCredential(w.ctx, keep.Credential{ID: session, Kind: keep.CredentialSession, Hash: hash, Name: "a", Parent: token})
				if err != nil && !errors.Is(err, keep.ErrNotFound) {
					w.Error(err)
				}
			})
			both.Go(func() {
				if err := s.DropCredential(w.ctx, token); err != nil {
					w.Error(err)
				}
			})
			both.Wait()
		}
		w.same("sessions", get[[]keep.Credential](w)(s.Credentials(w.ctx, keep.CredentialSession)), []keep.Credential(nil))
	}},
	{"what has expired is swept", func(w *world) {
		s := w.Store
		hash := make([]byte, 32)
		add(w, s, keep.Credential{ID: "never", Kind: keep.CredentialToken, Hash: hash, Name: "a"})
		add(w, s, keep.Credential{ID: "soon", Kind: keep.CredentialLogin, Hash: hash, Name: "a", ExpiresAt: w.at.Add(time.Second)})
		for i, want := range []int{0, 0, 1, 0} {
			n, err := s.SweepCredentials(w.ctx, w.at.Add(time.Duration(i)*time.Second))
			if err != nil || n != want {
				w.Errorf("after %d s: swept %d, %v, want %d", i, n, err, want)
			}
		}
		get[keep.Credential](w)(s.Credential(w.ctx, "never"))
	}},
}

// add stores a credential that must be accepted.
func add(w *world, s store.Access, c keep.Credential) {
	w.Helper()
	if err := s.AddCredential(w.ctx, c); err != nil {
		w.Fatal(err)
	}
}

// second returns the error of two results.
func second[T any](_ T, err error) error { return err }
