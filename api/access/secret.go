package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// ErrDenied is returned for a secret that is not accepted, whatever the reason:
// who guesses learns nothing.
var ErrDenied = errors.New("the secret is wrong, was revoked, or has expired")

// How long credentials last.
const (
	LoginLife   = time.Hour          // of a login URL that nobody used
	SessionLife = 7 * 24 * time.Hour // of a session, whatever happens
	SessionIdle = 24 * time.Hour     // of a session that is not used

	// MaxName is the longest name of a credential, in bytes.
	MaxName = 100
)

// prefix makes a secret known as one of ours, to people and to scanners.
const prefix = "keep"

// Make returns a new secret, which is kept by nobody, and what a store keeps of
// it: an id and a hash.
func Make() (secret, id string, sum []byte) {
	id, random := strings.ToLower(rand.Text()[:10]), strings.ToLower(rand.Text())
	return prefix + "_" + id + "_" + random, id, hash(random)
}

// Issue stores a new credential and returns its secret, which is shown once. A
// zero life never ends.
func Issue(ctx context.Context, s store.Access, c keep.Credential, now time.Time, life time.Duration) (secret string, _ keep.Credential, err error) {
	secret, c.ID, c.Hash = Make()
	c, err = Add(ctx, s, c, now, life)
	if err != nil {
		return "", c, err
	}
	return secret, c, nil
}

// ErrMade is returned for a form that made its credential before.
var ErrMade = errors.New("this token was made already, and its secret is shown once; if it was not copied, revoke it and make another")

// ErrOnce is returned for a name that is not of Once.
var ErrOnce = errors.New("the form does not name the token that it makes")

// Once names one new credential, for IssueOnce.
func Once() string { return strings.ToLower(rand.Text()[:10]) }

// IssueOnce issues a credential whose id is once, so that one is made however often this is asked for.
func IssueOnce(ctx context.Context, s store.Access, once string, c keep.Credential, now time.Time, life time.Duration) (secret string, _ keep.Credential, err error) {
	if len(once) != 10 || strings.Trim(once, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", c, ErrOnce
	}
	random := strings.ToLower(rand.Text())
	c.ID, c.Hash = once, hash(random)
	c, err = Add(ctx, s, c, now, life)
	if errors.Is(err, keep.ErrStale) {
		err = ErrMade
	}
	if err != nil {
		return "", c, err
	}
	return prefix + "_" + once + "_" + random, c, nil
}

// Add stores the credential of a secret that Make returned. A zero life never ends.
func Add(ctx context.Context, s store.Access, c keep.Credential, now time.Time, life time.Duration) (keep.Credential, error) {
	role := Role(c.Role)
	switch {
	case c.Name == "" || len(c.Name) > MaxName:
		return c, fmt.Errorf("a name of 1 to %d bytes is needed, not %d", MaxName, len(c.Name))
	case role.Validate() != nil:
		return c, role.Validate()
	case life < 0:
		return c, fmt.Errorf("the life %s is negative", life)
	}
	c.CreatedAt = now
	if life > 0 {
		c.ExpiresAt = now.Add(life)
	}
	var acts []keep.Decided
	if c.Kind == keep.CredentialToken {
		acts = append(acts, actAbout(ctx, c, keep.Issue, now))
	}
	if err := s.AddCredential(ctx, c, acts...); err != nil {
		return c, fmt.Errorf("store %s: %w", c.Kind, err)
	}
	return c, nil
}

// End ends a token or a session, and what came from it. One that is gone is a *keep.NotFoundError.
func End(ctx context.Context, s store.Access, c keep.Credential, now time.Time) error {
	return s.DropCredential(ctx, c.ID, actAbout(ctx, c, keep.Revoke, now))
}

// actAbout returns the record of what the caller does with a credential. Once that is gone, it alone says whose it was.
func actAbout(ctx context.Context, c keep.Credential, action keep.Action, now time.Time) keep.Decided {
	about := keep.AboutToken
	if c.Kind == keep.CredentialSession {
		about = keep.AboutSession
	}
	return Act(ctx, keep.Subject{Kind: about, ID: c.ID}, action, c.Role+", of "+c.Name, now)
}

// Act returns the record of what the caller does with something that is of no workflow.
func Act(ctx context.Context, about keep.Subject, action keep.Action, note string, now time.Time) keep.Decided {
	id, _ := From(ctx)
	return keep.Decided{About: about, Decision: keep.Decision{Action: action, By: id.Name, From: id.Surface(), Note: note, At: now}}
}

// hash is what is stored of a secret. It has 130 random bits, so that nothing
// slower is needed.
func hash(random string) []byte {
	sum := sha256.Sum256([]byte(random))
	return sum[:]
}

// verify returns the credential of a secret, if it is of the kind and lets
// somebody in now. Any failure but that of the store is ErrDenied.
func verify(ctx context.Context, s store.Access, kind keep.CredentialKind, secret string, now time.Time) (keep.Credential, error) {
	parts := strings.Split(secret, "_")
	if len(parts) != 3 || parts[0] != prefix || len(secret) > 100 {
		return keep.Credential{}, ErrDenied
	}
	c, err := s.Credential(ctx, parts[1])
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return keep.Credential{}, ErrDenied
	case err != nil:
		return keep.Credential{}, fmt.Errorf("look up a credential: %w", err)
	case c.Kind != kind, subtle.ConstantTimeCompare(c.Hash, hash(parts[2])) != 1, expired(c, now):
		return keep.Credential{}, ErrDenied
	}
	return c, nil
}

// AgentOf returns the name of the agent whose token a secret is; ErrDenied: of none.
func AgentOf(ctx context.Context, s store.Access, secret string, now time.Time) (string, error) {
	c, err := verify(ctx, s, keep.CredentialToken, secret, now)
	if err == nil && Role(c.Role) != Agent {
		err = ErrDenied
	}
	if err == nil && now.Sub(c.UsedAt) >= time.Minute {
		_ = noteUse(ctx, s, c.ID, now) // it is for people to look at
	}
	return c.Name, err
}

// useWait is how long the store may take to note that a credential is used.
const useWait = 2 * time.Second

// noteUse has the store note that a credential is used.
func noteUse(ctx context.Context, s store.Access, id string, now time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, useWait, &keep.TimeoutError{Op: "noting that a credential is used", After: useWait})
	defer cancel()
	return s.UseCredential(ctx, id, now)
}

// expired reports whether a credential has ended.
func expired(c keep.Credential, now time.Time) bool {
	idle := c.Kind == keep.CredentialSession && now.Sub(latest(c.CreatedAt, c.UsedAt)) > SessionIdle
	return idle || !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
